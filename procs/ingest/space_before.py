"""The space that some tokenizers put before a text, taken out of a tokenizer.json to be put there by ModelTokenizer.

SentencePiece begins a text with a space, so that its first word is the token that the word is elsewhere, and takes
the space away when it decodes. The tokenizers library has three ways to write that down. They differ in whether a
text that begins with a space gets another one; only if it does can the text be had back, and so has SentencePiece.
"""

from __future__ import annotations

from typing import Any

from .tokenizer import SpaceBefore

Part = dict[str, Any]


def take_space(spec: dict[str, Any]) -> tuple[dict[str, Any], SpaceBefore]:
    """The specification without that space, and where the space belongs."""
    found = {SpaceBefore.NONE}
    splitter = _without(spec.get("pre_tokenizer"), "pretokenizers", found)
    normalizer = _without(spec.get("normalizer"), "normalizers", found)
    return {**spec, "pre_tokenizer": splitter, "normalizer": normalizer}, max(found)


def _without(part: Any, nested: str, found: set[SpaceBefore]) -> Any:
    """A part without what puts a space; None if that is all it did. Adds to `found`."""
    if not isinstance(part, dict):
        return part
    if isinstance(part.get(nested), list):
        inner = [_without(one, nested, found) for one in part[nested]]
        return {**part, nested: [one for one in inner if one is not None]}
    if part.get("type") == "Metaspace":
        found.add(_scheme(part))
        return {name: part[name] for name in part if name != "add_prefix_space"} | {"prepend_scheme": "never"}
    if part.get("type") == "ByteLevel" and part.get("add_prefix_space"):
        found.add(SpaceBefore.EVERY)
        return {**part, "add_prefix_space": False}
    if part.get("type") == "Prepend" and part.get("prepend") == "▁":
        found.add(SpaceBefore.EVERY)
        return None
    return part


def _scheme(part: Part) -> SpaceBefore:
    scheme = part.get("prepend_scheme") or ("always" if part.get("add_prefix_space", True) else "never")
    return {"always": SpaceBefore.EVERY, "first": SpaceBefore.FIRST}.get(scheme, SpaceBefore.NONE)
