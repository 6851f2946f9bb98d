"""The bytes of token ids: every byte has its spelling, and files that cannot be used are refused by name."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from fourstroke.common.errors import ModelError
from fourstroke.procs.vocabulary import load_vocabulary

from .tokenizer_files import (
    CONTROL,
    WORDS,
    byte_level,
    metaspace,
    pieces,
    pieces_file,
    write_folder,
    write_gguf,
    write_gguf_pieces,
)


def test_folder_and_gguf_agree(tmp_path: Path) -> None:
    """The same tokenizer gives the same bytes and control tokens from either kind of file."""
    folder = load_vocabulary(str(write_folder(tmp_path / "model", byte_level())))
    file = load_vocabulary(str(write_gguf(tmp_path / "model.gguf", byte_level(), "gpt-2")))
    assert folder.token_bytes == file.token_bytes
    assert folder.special_ids == file.special_ids == {0, 1}


def test_byte_level_spells_every_byte(tmp_path: Path) -> None:
    """In GPT-2's alphabet each byte has one token, and a control token stands for its own spelling."""
    found = load_vocabulary(str(write_folder(tmp_path / "model", byte_level()))).token_bytes
    assert sorted(token for token in found if len(token) == 1) == [bytes([byte]) for byte in range(256)]
    assert found[: len(CONTROL)] == [text.encode() for text in CONTROL]


def test_sentencepiece_spells_bytes_and_spaces(tmp_path: Path) -> None:
    """<0xNN> is one byte, and the lower block is a space."""
    found = load_vocabulary(str(write_folder(tmp_path / "model", metaspace()))).token_bytes
    assert found[1:257] == [bytes([byte]) for byte in range(256)]
    assert found[257:] == [b" ", b"a", b"b", b" a", b" b", b"ab", b" ab"]


def test_sentencepiece_from_either_file(tmp_path: Path) -> None:
    """A tokenizer.model and GGUF metadata give the same bytes; the unknown token is hidden like a control token."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.model").write_bytes(pieces_file(pieces()))
    folder = load_vocabulary(str(tmp_path / "model"))
    assert folder == load_vocabulary(str(write_gguf_pieces(tmp_path / "model.gguf", pieces())))
    assert folder.special_ids == {0, 1, 2}
    assert folder.token_bytes[:3] == [b"<unk>", b"<s>", b"<|end|>"]
    assert folder.token_bytes[3:260] == [*(bytes([byte]) for byte in range(256)), b"<tool>"]
    assert folder.token_bytes[260:] == [word.replace("▁", " ").encode() for word in WORDS]


def test_words_added_to_sentencepiece(tmp_path: Path) -> None:
    """A word that was added with the lower block in it stands for spaces as well."""
    tokenizer = metaspace()
    tokenizer.add_tokens(["▁▁▁"])
    assert load_vocabulary(str(write_folder(tmp_path / "model", tokenizer))).token_bytes[-1] == b"   "


def test_ids_without_a_token_stand_for_nothing(tmp_path: Path) -> None:
    """A hole in the ids is b""."""
    path = write_folder(tmp_path / "model", byte_level()) / "tokenizer.json"
    spec = json.loads(path.read_text())
    top = max(spec["model"]["vocab"].values())
    spec["added_tokens"].append({"id": top + 3, "content": "<far>", "special": True})
    path.write_text(json.dumps(spec))
    found = load_vocabulary(str(path.parent))
    assert found.token_bytes[top + 1 :] == [b"", b"", b"<far>"]
    assert top + 3 in found.special_ids


def test_refusals(tmp_path: Path) -> None:
    """What is missing, damaged or of an unknown kind is a ModelError that says so."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "tokenizer.json").write_text("{")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "tokenizer.json").write_text('{"model": 5}')
    for folder, words in [
        (tmp_path / "empty", "missing"),
        (tmp_path / "bad", "damaged"),
        (tmp_path / "odd", "damaged"),
        (write_folder(tmp_path / "words", Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))), "decoder"),
        (write_gguf(tmp_path / "t5.gguf", byte_level(), "default", kind="t5"), "'t5'.*supported are"),
        (write_gguf(tmp_path / "bare.gguf", byte_level(), "default", kind="llama"), "0 scores"),
    ]:
        with pytest.raises(ModelError, match=words):
            load_vocabulary(str(folder))
