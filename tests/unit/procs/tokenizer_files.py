"""Small tokenizers written as files, for tests that need other kinds than the default model's."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from fourstroke.procs.sentencepiece_file import PieceType, SentencePieces

TEXT = ["The quick brown fox jumps over the lazy dog 12345 times, doesn't it? Größe, 世界, 👋\n\n  yes"] * 3
CONTROL = ["<s>", "<|end|>"]


def byte_level() -> Tokenizer:
    """A byte-level BPE tokenizer that knows every byte, with two control tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=CONTROL, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def whole_words() -> Tokenizer:
    """A byte-level tokenizer that takes any text for a token that is one, and has the control token "@system"."""
    spec = json.loads(byte_level().to_str())
    spec["model"]["ignore_merges"] = True
    spec["model"]["vocab"]["@system"] = max(spec["model"]["vocab"].values()) + 1
    spec["pre_tokenizer"]["use_regex"] = False
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.add_special_tokens(["@system"])
    return tokenizer


def metaspace() -> Tokenizer:
    """A SentencePiece-like tokenizer: "▁" for spaces, put before the first text, and bytes as a last resort."""
    pieces = ["<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "▁b", "ab", "▁ab"]
    merges = [("▁", "a"), ("▁", "b"), ("a", "b"), ("▁a", "b")]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    return tokenizer


WORDS = ["▁", *"abcé世", "▁a", "▁b", "ab", "▁ab", "abc", "▁▁", "▁▁▁▁", "世世", "\n\n", "cab"]


def pieces(words: list[str] = WORDS, **instead: Any) -> SentencePieces:
    """A SentencePiece model: "<unk>", two control tokens, the bytes, a token of the user's, and words, best first."""
    texts = ["<unk>", "<s>", "<|end|>", *(f"<0x{byte:02X}>" for byte in range(256)), "<tool>", *words]
    types = [PieceType.UNKNOWN, *[PieceType.CONTROL] * 2, *[PieceType.BYTE] * 256, PieceType.USER_DEFINED]
    model = SentencePieces(
        texts=texts,
        scores=[0.0] * 260 + [float(-rank) for rank in range(len(words))],
        types=[*map(int, types), *[int(PieceType.NORMAL)] * len(words)],
        unigram=False,
        space_first=True,
        squeezes_spaces=False,
        charsmap=b"",
        special={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "<|end|>"},
    )
    return replace(model, **instead)


def pieces_file(model: SentencePieces) -> bytes:
    """A `tokenizer.model`; its special tokens are the first three."""
    found = b""
    for text, score, kind in zip(model.texts, model.scores, model.types, strict=True):
        found += _field(1, _field(1, text.encode()) + _field(2, struct.pack("<f", score), 5) + _field(3, kind))
    trainer = _field(3, 1 if model.unigram else 2) + _field(40, 0) + _field(41, 1) + _field(42, 2) + _field(43, -1)
    normalizer = _field(2, model.charsmap) + _field(3, model.space_first) + _field(4, model.squeezes_spaces)
    return found + _field(2, trainer) + _field(3, normalizer)


def _field(number: int, value: int | bytes, wire: int = 2) -> bytes:
    """A field of a protobuf message: a number, or bytes with their length, or (wire type 5) four bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value % (1 << 64))
    return _varint(number << 3 | wire) + (value if wire == 5 else _varint(len(value)) + value)


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7) if value > 0x7F else bytes([value])


def write_folder(folder: Path, tokenizer: Tokenizer, **config: Any) -> Path:
    """A Hugging Face folder with a tokenizer and its configuration."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write_gguf(path: Path, tokenizer: Tokenizer, pre: str, kind: str = "gpt2", **instead: Any) -> Path:
    """A GGUF file that holds the metadata of a byte-level tokenizer and nothing else; `instead` are other values."""
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in CONTROL else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_add_bos_token(True)
    return _finish(writer, path, instead)


def write_gguf_pieces(path: Path, model: SentencePieces, **instead: Any) -> Path:
    """A GGUF file that holds a SentencePiece model as llama.cpp's converter writes it, and nothing else."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(model.texts)
    writer.add_token_scores(model.scores)
    writer.add_token_types(model.types)
    writer.add_add_space_prefix(model.space_first)
    writer.add_bos_token_id(1)
    return _finish(writer, path, instead)


def _finish(writer: gguf.GGUFWriter, path: Path, instead: dict[str, Any]) -> Path:
    for key, value in instead.items():
        writer.kv_data[0][key] = gguf.GGUFValue(value, gguf.GGUFValueType.get_type(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A file with a few other bytes, numbers that are far too large among them, and maybe without its end."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data) - 1))
        piece = draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, bytes(8), b"\x00\x00\x00\x80"]))
        data[place : place + len(piece)] = piece
    return bytes(data[: draw(st.just(len(data)) | st.integers(0, len(data)))])
