"""A tokenizer of the tokenizers library from a SentencePiece model, be it from a file of its own or from GGUF metadata.

SentencePiece's BPE joins the neighbours that make the token with the best score (src/bpe_model.cc); the library
wants a list of merges, best first, so every way to cut a token into two others becomes one. Spaces before a text
are not put here: that is ModelTokenizer's. Who calls: load_tokenizer.py and gguf_tokenizer.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers

from ...common.errors import ModelError
from ..sentencepiece_file import METASPACE, PieceType, SentencePieces
from .markers import markers


def sentencepiece_tokenizer(pieces: SentencePieces, template: str | None) -> Tokenizer:
    """The tokenizer. Special are the control tokens of `pieces_vocabulary` and the template's markers."""
    tokenizer = Tokenizer(_unigram(pieces) if pieces.unigram else _bpe(pieces))
    tokenizer.normalizer = _normalizer(pieces)
    added = _of_type(pieces, PieceType.USER_DEFINED)
    controls = {*_of_type(pieces, PieceType.CONTROL, PieceType.UNKNOWN), *markers(added, template)}
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in pieces.texts if text in controls]
    )
    # Looked for behind the normaliser, where spaces are "▁" as in the model's own texts.
    tokenizer.add_tokens([AddedToken(text, normalized=True) for text in added if text not in controls])
    return tokenizer


def _of_type(pieces: SentencePieces, *types: PieceType) -> list[str]:
    return [text for text, kind in zip(pieces.texts, pieces.types, strict=True) if kind in types]


def _unigram(pieces: SentencePieces) -> models.Model:
    if PieceType.UNKNOWN not in pieces.types:
        raise ModelError("a Unigram model without a piece for what is unknown")
    unknown = pieces.types.index(PieceType.UNKNOWN)
    return models.Unigram(list(zip(pieces.texts, pieces.scores, strict=True)), unknown, _has_bytes(pieces))


def _bpe(pieces: SentencePieces) -> models.Model:
    ids = {text: token for token, text in enumerate(pieces.texts)}
    unknown = pieces.types.index(PieceType.UNKNOWN) if PieceType.UNKNOWN in pieces.types else None
    return models.BPE(
        vocab=ids,
        merges=_merges(pieces, ids),
        unk_token=None if unknown is None else pieces.texts[unknown],
        fuse_unk=True,
        byte_fallback=_has_bytes(pieces),
    )


def _has_bytes(pieces: SentencePieces) -> bool:
    return PieceType.BYTE in pieces.types


def _merges(pieces: SentencePieces, ids: dict[str, int]) -> list[tuple[str, str]]:
    """Every cut of a token into two others, the tokens of the best score first."""
    normal = set(_of_type(pieces, PieceType.NORMAL))
    best_first = sorted(normal, key=lambda text: (-pieces.scores[ids[text]], ids[text]))
    return [cut for text in best_first for cut in _cuts(text, normal)]


def _cuts(text: str, tokens: set[str]) -> Iterator[tuple[str, str]]:
    for place in range(1, len(text)):
        if text[:place] in tokens and text[place:] in tokens:
            yield text[:place], text[place:]


def _normalizer(pieces: SentencePieces) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = [normalizers.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    if pieces.squeezes_spaces:
        steps.append(normalizers.Strip(left=not pieces.space_first, right=True))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", METASPACE)])
