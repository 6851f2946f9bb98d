"""Text to token ids, for the process that takes requests in; made from GGUF metadata or a Hugging Face folder.

Text is always encoded literally: a control token that somebody spells becomes the letters it is made of.
Who wants a control token's id, the chat template, asks for it by id. How ids become bytes again is in
vocabulary.py, which is all that output needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ..common.errors import ModelError
from .gguf_file import GgufFile
from .vocabulary import USER_DEFINED, Vocabulary, gguf_vocabulary, json_vocabulary, read_json

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

_NFC_GROWTH = 3
"""A text is at most so many times as long in UTF-8 as its NFC (Unicode FAQ, Normalization)."""


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A control token as templates spell it; with a strip flag it swallows the white space on that side."""

    id: int
    text: str
    strip_left: bool = False
    strip_right: bool = False


class ModelTokenizer:
    """A model's tokenizer and chat template. Safe to use from several threads.

    `special_tokens` are the texts that a template may name, as "bos_token" and "eos_token".
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rest: Tokenizer,
        vocabulary: Vocabulary,
        special_tokens: dict[str, str],
        chat_template: str | None,
        add_bos: bool,
    ) -> None:
        """`rest` encodes text that does not begin a prompt; it is mostly the same as `tokenizer`."""
        tokenizer.encode_special_tokens = True
        rest.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._rest = rest
        self._strips_space = _begins_with_space(tokenizer)
        self.token_bytes = vocabulary.token_bytes
        self.special_ids = vocabulary.special_ids
        self.special_tokens = special_tokens
        self.chat_template = chat_template
        self.controls = _controls(tokenizer, vocabulary)
        bos = special_tokens.get("bos_token")
        self.bos_id = None if bos is None else tokenizer.token_to_id(bos)
        self.add_bos = add_bos and self.bos_id is not None
        self._longest = max(map(len, self.token_bytes)) * _shrinking(tokenizer)

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.special_tokens.get("eos_token")

    def encode_text(self, text: str, first: bool = True) -> list[int]:
        """The ids of a text, taken literally. `first` is false for a text that follows other tokens."""
        tokenizer = self._tokenizer if first else self._rest
        return tokenizer.encode(text, add_special_tokens=False).ids

    def encode_prompt(self, text: str) -> list[int]:
        """The ids of a whole prompt: its text, after a BOS token if the model wants one."""
        ids = self.encode_text(text)
        return [self.bos_id, *ids] if self.add_bos and self.bos_id is not None else ids

    def decode(self, ids: list[int]) -> str:
        """The text of which `encode_prompt` makes these ids; bytes that are no UTF-8 become U+FFFD."""
        if self.add_bos and ids[:1] == [self.bos_id]:
            ids = ids[1:]
        text = b"".join([self.token_bytes[token] for token in ids]).decode("utf-8", "replace")
        return text.removeprefix(" ") if self._strips_space else text

    def most_bytes(self, tokens: int) -> int:
        """A text of more bytes of UTF-8 than this surely has more than so many tokens."""
        return tokens * self._longest


def load_tokenizer(model: str) -> ModelTokenizer:
    """The tokenizer of a local model: a GGUF file or a Hugging Face folder. Raises ModelError."""
    path = Path(model)
    return _from_folder(path) if path.is_dir() else _from_gguf(path)


def _controls(tokenizer: Tokenizer, vocabulary: Vocabulary) -> tuple[ControlToken, ...]:
    added = tokenizer.get_added_tokens_decoder()
    return tuple(
        ControlToken(token, added[token].content, added[token].lstrip, added[token].rstrip)
        for token in sorted(vocabulary.special_ids)
    )


def _begins_with_space(tokenizer: Tokenizer) -> bool:
    """Whether encoding puts a space before a text that decoding must take away (SentencePiece's habit)."""
    return tokenizer.encode("a", add_special_tokens=False).tokens[0].startswith("▁")


def _shrinking(tokenizer: Tokenizer) -> int:
    """How many times shorter, at most, normalisation makes a text."""
    kind = None if tokenizer.normalizer is None else json.loads(tokenizer.to_str())["normalizer"]["type"]
    return _NFC_GROWTH if kind == "NFC" else 1


# GGUF


def _from_gguf(path: Path) -> ModelTokenizer:
    metadata = GgufFile(path).metadata
    vocabulary = gguf_vocabulary(metadata, path)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", [])
    tokenizer = _byte_level(metadata, path)
    tokenizer.add_special_tokens(
        [AddedToken(tokens[token], special=True, normalized=False) for token in sorted(vocabulary.special_ids)]
    )
    tokenizer.add_tokens(
        [AddedToken(tokens[token], normalized=False) for token, kind in enumerate(types) if kind == USER_DEFINED]
    )
    names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    ids = {short: metadata.get(f"tokenizer.ggml.{long}_token_id") for long, short in names.items()}
    special = {f"{short}_token": tokens[token] for short, token in ids.items() if token is not None}
    template = metadata.get("tokenizer.chat_template")
    add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", False))
    return ModelTokenizer(tokenizer, tokenizer, vocabulary, special, template, add_bos)


def _byte_level(metadata: dict[str, Any], path: Path) -> Tokenizer:
    """A byte-level BPE tokenizer, its text split as `tokenizer.ggml.pre` names it (llama.cpp, llama-vocab.cpp)."""
    name = metadata.get("tokenizer.ggml.pre", "default")
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    split = {
        "default": gpt2,
        "gpt-2": gpt2,
        "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
        "llama-bpe": _split_by(_LLAMA3),
        "qwen2": _split_by(_QWEN2),
    }.get(name)
    if split is None:
        raise ModelError(f"{path} has the pre-tokenizer {name!r}, which is not supported yet")
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges", [])]
    try:
        model = models.BPE(
            vocab={token: place for place, token in enumerate(tokens)},
            merges=merges,
            ignore_merges=name == "llama-bpe",
        )
    except (ValueError, TypeError) as error:
        raise ModelError(f"{path} has merges that do not fit its tokens: {error}") from None
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


# Hugging Face


def _from_folder(path: Path) -> ModelTokenizer:
    spec = read_json(path / "tokenizer.json")
    config = _optional_json(path / "tokenizer_config.json")
    tokenizer = _from_spec(spec, path)
    special = _special_tokens({**_optional_json(path / "special_tokens_map.json"), **config})
    add_bos = config.get("add_bos_token")
    if not isinstance(add_bos, bool):
        first = tokenizer.encode("", add_special_tokens=True).tokens[:1]
        add_bos = first == [special.get("bos_token")]
    return ModelTokenizer(
        tokenizer,
        _for_the_rest(spec, path) or tokenizer,
        json_vocabulary(spec, path),
        special,
        _chat_template(path, config),
        add_bos,
    )


def _from_spec(spec: dict[str, Any], path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(spec))
    except Exception as error:  # noqa: BLE001 (the library raises no narrower type)
        raise ModelError(f"{path}/tokenizer.json cannot be used: {error}") from None


def _for_the_rest(spec: dict[str, Any], path: Path) -> Tokenizer | None:
    """A tokenizer for text after a control token, where the model's puts a space before the first text alone."""
    splitter = spec.get("pre_tokenizer") or {}
    if splitter.get("type") != "Metaspace" or splitter.get("prepend_scheme") != "first":
        return None
    return _from_spec({**spec, "pre_tokenizer": {**splitter, "prepend_scheme": "never"}}, path)


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """The texts of bos_token and its like; each is given as a string or as an object."""
    names = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
    values = {name: config.get(name) for name in names}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in values.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _chat_template(path: Path, config: dict[str, Any]) -> str | None:
    """The template file if there is one, else the configuration's: a string, or a list of named ones."""
    file = path / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        return {entry["name"]: entry["template"] for entry in template}.get("default")
    return template
