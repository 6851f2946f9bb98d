"""Making a ModelTokenizer from the metadata of a GGUF file.

Two kinds of tokenizers are known, as GGUF calls them: "gpt2", byte-level BPE with a list of merges, and "llama",
SentencePiece with scores. A way to cut texts into words that is not known is refused: with another one the model
would be given tokens that it has not learnt, and nobody would see why its answers are bad.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers

from ...common.errors import ModelError
from ..gguf_file import GgufFile
from ..sentencepiece_file import PieceType, SentencePieces
from ..vocabulary import gguf_pieces, gguf_special_tokens, gguf_vocabulary, pieces_vocabulary
from .library import Merge, check_merges, named_errors
from .markers import markers
from .pre_tokenizers import SPLITTINGS, Splitting
from .sentencepiece_tokenizer import sentencepiece_tokenizer
from .tokenizer import ModelTokenizer, SpaceBefore

log = logging.getLogger("fourstroke")


def from_gguf(path: Path) -> ModelTokenizer:
    """The tokenizer in a GGUF file. Raises ModelError."""
    metadata = GgufFile(path).metadata
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str | None):
        raise ModelError(f"{path} has a chat template that is no text")
    pieces = gguf_pieces(metadata, path)
    if pieces is not None:
        with named_errors(path):
            return _from_pieces(metadata, pieces, template)
    return _byte_level(metadata, template, path)


def _from_pieces(metadata: dict[str, Any], pieces: SentencePieces, template: str | None) -> ModelTokenizer:
    tokenizer = sentencepiece_tokenizer(pieces, template)
    # llama.cpp puts the space behind every control token, too.
    space = SpaceBefore.EVERY if pieces.space_first else SpaceBefore.NONE
    add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", True))
    return ModelTokenizer(tokenizer, pieces_vocabulary(pieces), pieces.special, template, add_bos, space)


def _byte_level(metadata: dict[str, Any], template: str | None, path: Path) -> ModelTokenizer:
    vocabulary = gguf_vocabulary(metadata, path)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", [])
    special = gguf_special_tokens(metadata, tokens, path)
    splitting = _splitting(metadata, path)
    tokenizer = _bpe(metadata, tokens, splitting, path)
    added = [tokens[token] for token, kind in enumerate(types) if kind == PieceType.USER_DEFINED]
    controls = {tokens[token] for token in vocabulary.special_ids} | markers(added, template)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in tokens if text in controls]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added if text not in controls])
    add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", splitting.add_bos))
    return ModelTokenizer(tokenizer, vocabulary, special, template, add_bos)


def _splitting(metadata: dict[str, Any], path: Path) -> Splitting:
    name = metadata.get("tokenizer.ggml.pre")
    if name is None:
        log.warning("%s names no pre-tokenizer: it is old, and some texts may be cut otherwise than in training", path)
        name = "default"
    if not isinstance(name, str) or name not in SPLITTINGS:
        known = ", ".join(sorted(SPLITTINGS))
        raise ModelError(f"{path} has the pre-tokenizer {name!r}, which is not supported; supported are {known}")
    return SPLITTINGS[name]


def _bpe(metadata: dict[str, Any], tokens: list[str], splitting: Splitting, path: Path) -> Tokenizer:
    vocabulary = {token: place for place, token in enumerate(tokens)}
    merges = _merges(metadata, path)
    check_merges(vocabulary, merges, "", path)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=splitting.whole_words))
    tokenizer.pre_tokenizer = splitting.pre_tokenizer()
    if splitting.composes:
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _merges(metadata: dict[str, Any], path: Path) -> list[Merge]:
    merges = metadata.get("tokenizer.ggml.merges", [])
    if not isinstance(merges, list) or not all(isinstance(merge, str) and " " in merge for merge in merges):
        raise ModelError(f"{path} has merges that are not two tokens with a space between them")
    pairs = (merge.partition(" ") for merge in merges)
    return [(left, right) for left, _, right in pairs]
