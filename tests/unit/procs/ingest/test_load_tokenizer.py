"""Making a tokenizer from files: both kinds of them agree, and nothing that a file holds is a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourstroke.common.errors import ModelError
from fourstroke.procs.ingest.load_tokenizer import load_tokenizer
from fourstroke.procs.ingest.pre_tokenizers import SPLITTINGS

from ..tokenizer_files import (
    byte_level,
    damaged,
    metaspace,
    pieces,
    pieces_file,
    write_folder,
    write_gguf,
    write_gguf_pieces,
)

CUT = "don't I'LL 12345! \n  xY/\n"


@pytest.mark.parametrize(
    "pre, words",
    [
        ("gpt-2", ["don", "'t", " I", "'", "LL", " 12345", "!", " \n ", " xY", "/", "\n"]),
        ("default", ["don", "'", "t", " I", "'", "LL", " ", "123", "45", "!", " \n ", " xY", "/", "\n"]),
        ("falcon", ["don", "'", "t", " I", "'", "LL", " ", "123", "45", "!", " \n ", " xY", "/", "\n"]),
        ("smollm", ["don", "'t", " I", "'", "LL", " ", *"12345", "!", " \n ", " xY", "/", "\n"]),
        ("llama-bpe", ["don", "'t", " I", "'LL", " ", "123", "45", "!", " \n", " ", " xY", "/\n"]),
        ("qwen2", ["don", "'t", " I", "'LL", " ", *"12345", "!", " \n", " ", " xY", "/\n"]),
        ("qwen35", ["don", "'t", " I", "'LL", " ", *"12345", "!", " \n", " ", " xY", "/\n"]),
        ("tekken", ["don", "'t", " I", "'LL", " ", *"12345", "!", " \n", " ", " x", "Y", "/\n"]),
        ("gpt-4o", ["don't", " I'LL", " ", "123", "45", "!", " \n", " ", " x", "Y", "/\n"]),
        ("deepseek-v3", ["don", "'t", " I", "'LL", " ", "123", "45", "!", " \n", " ", " xY", "/\n"]),
        ("deepseek-coder", ["don", "'", "t", " I", "'", "LL", " ", *"12345", "!", " ", "\n", " ", " xY", "/", "\n"]),
    ],
)
def test_pre_tokenizers(pre: str, words: list[str]) -> None:
    """Each pre-tokenizer cuts a text where llama.cpp's of that name does."""
    found = SPLITTINGS[pre].pre_tokenizer().pre_tokenize_str(CUT)
    assert [CUT[start:end] for _, (start, end) in found] == words
    assert "".join(words) == CUT


def test_unknown_pre_tokenizer(tmp_path: Path) -> None:
    """A pre-tokenizer that is not known is refused by name, not replaced by another."""
    with pytest.raises(ModelError, match=r"'kimi-k2'.*supported are .*llama-bpe"):
        load_tokenizer(str(write_gguf(tmp_path / "model.gguf", byte_level(), "kimi-k2")))


def test_no_pre_tokenizer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that names none is old: it is read as llama.cpp reads it, and the log says so."""
    path = write_gguf(tmp_path / "model.gguf", byte_level(), "default")
    expected = load_tokenizer(str(path)).encode_text(CUT)
    assert not caplog.records
    path.write_bytes(path.read_bytes().replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.prf"))
    assert load_tokenizer(str(path)).encode_text(CUT) == expected
    assert "no pre-tokenizer" in caplog.text


def test_folder_and_gguf_agree(tmp_path: Path) -> None:
    """The same tokenizer gives the same ids from either kind of file."""
    folder = load_tokenizer(str(write_folder(tmp_path / "model", byte_level())))
    file = load_tokenizer(str(write_gguf(tmp_path / "model.gguf", byte_level(), "gpt-2")))
    for text in ["The quick fox", "<s>12345", "世界 👋"]:
        assert folder.encode_text(text) == file.encode_text(text)
    assert [control.text for control in folder.controls] == [control.text for control in file.controls]


def test_configuration_of_a_folder(tmp_path: Path) -> None:
    """Special tokens are strings or objects; a list of templates has one called default; a file comes first."""
    templates = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    config = {"bos_token": {"content": "<s>"}, "eos_token": "<|end|>", "pad_token": None, "chat_template": templates}
    folder = write_folder(tmp_path / "model", byte_level(), add_bos_token=True, **config)
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.special_tokens == {"bos_token": "<s>", "eos_token": "<|end|>"}
    assert (tokenizer.chat_template, tokenizer.add_bos) == ("D", True)
    (folder / "chat_template.jinja").write_text("F")
    assert load_tokenizer(str(folder)).chat_template == "F"


def _without_a_result(spec: Any) -> None:
    left, right = spec["model"]["merges"][0]
    del spec["model"]["vocab"][left + right]


def _unknown_half(spec: Any) -> None:
    spec["model"]["merges"][0] = ["no such", "token"]


def _unknown_part(spec: Any) -> None:
    spec["pre_tokenizer"]["type"] = "Nonsense"


def _far_id(spec: Any) -> None:
    spec["added_tokens"][0]["id"] = 10**15


def _negative_id(spec: Any) -> None:
    spec["added_tokens"][0]["id"] = -1


@pytest.mark.parametrize("damage", [_without_a_result, _unknown_half, _unknown_part, _far_id, _negative_id])
def test_damaged_specifications(tmp_path: Path, damage: Callable[[Any], None]) -> None:
    """A tokenizer.json that fits no tokenizer is a ModelError, also where the library would panic."""
    path = write_folder(tmp_path / "model", byte_level()) / "tokenizer.json"
    spec = json.loads(path.read_text())
    damage(spec)
    path.write_text(json.dumps(spec))
    with pytest.raises(ModelError, match="model"):
        load_tokenizer(str(path.parent))


def test_old_merges(tmp_path: Path) -> None:
    """Merges are pairs, or texts with a space between the two: the same tokenizer."""
    path = write_folder(tmp_path / "model", byte_level()) / "tokenizer.json"
    spec = json.loads(path.read_text())
    new = load_tokenizer(str(path.parent))
    spec["model"]["merges"] = [" ".join(merge) for merge in spec["model"]["merges"]]
    path.write_text(json.dumps(spec))
    assert load_tokenizer(str(path.parent)).encode_text("The quick fox") == new.encode_text("The quick fox")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("content", [b"[]", b"5", b"{", b"\xff", b"null"])
def test_files_of_another_shape(tmp_path: Path, name: str, content: bytes) -> None:
    """A file with anything else in it is damaged, not a traceback."""
    folder = write_folder(tmp_path / "model", byte_level())
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError):
        load_tokenizer(str(folder))


@pytest.mark.parametrize("template", [[{}], ["x"], [5], {}, 5, [{"name": "default", "template": 5}]], ids=json.dumps)
def test_chat_templates_of_another_shape(tmp_path: Path, template: Any) -> None:
    """A chat template is a text or a list of named texts."""
    with pytest.raises(ModelError, match="chat template"):
        load_tokenizer(str(write_folder(tmp_path / "model", byte_level(), chat_template=template)))


def test_chat_template_that_is_not_utf8(tmp_path: Path) -> None:
    """A file of other bytes is damaged."""
    folder = write_folder(tmp_path / "model", metaspace())
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelError, match="chat template"):
        load_tokenizer(str(folder))


@pytest.mark.parametrize(
    "key, value",
    [
        ("tokenizer.ggml.bos_token_id", 400),
        ("tokenizer.ggml.bos_token_id", -1),
        ("tokenizer.ggml.bos_token_id", 1.5),
        ("tokenizer.ggml.eos_token_id", "x"),
        ("tokenizer.ggml.merges", ["nospace"]),
        ("tokenizer.ggml.merges", ["no such"]),
        ("tokenizer.ggml.merges", 5),
        ("tokenizer.ggml.token_type", [1.0] * 400),
        ("tokenizer.ggml.token_type", [1]),
        ("tokenizer.ggml.tokens", [1] * 400),
        ("tokenizer.ggml.tokens", ["<s>"] * 400),
        ("tokenizer.ggml.pre", ["gpt-2"]),
        ("tokenizer.chat_template", 5),
    ],
    ids=repr,
)
def test_damaged_metadata(tmp_path: Path, key: str, value: Any) -> None:
    """Metadata of the right form and the wrong meaning is a ModelError."""
    path = write_gguf(tmp_path / "model.gguf", byte_level(), "gpt-2", **{key: value})
    with pytest.raises(ModelError):
        load_tokenizer(str(path))


def test_normalisation_that_cannot_be_used(tmp_path: Path) -> None:
    """What the library says of a part that it cannot use comes with the name of the file."""
    (tmp_path / "tokenizer.model").write_bytes(pieces_file(pieces(charsmap=b"nonsense")))
    with pytest.raises(ModelError, match=r"tokenizer\.model cannot be used: .*precompiled_charsmap"):
        load_tokenizer(str(tmp_path))


def _byte_level_file(path: Path) -> bytes:
    return write_gguf(path, byte_level(), "gpt-2").read_bytes()


def _pieces_gguf(path: Path) -> bytes:
    return write_gguf_pieces(path, pieces()).read_bytes()


def _bpe_model(path: Path) -> bytes:
    return pieces_file(pieces())


def _unigram_model(path: Path) -> bytes:
    return pieces_file(pieces(unigram=True, squeezes_spaces=True))


@pytest.mark.parametrize("make", [_byte_level_file, _pieces_gguf, _bpe_model, _unigram_model])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes(tmp_path: Path, make: Callable[[Path], bytes], data: st.DataObject) -> None:
    """Whatever byte of a file is another one, and wherever it ends, there is a tokenizer or a ModelError."""
    whole = tmp_path / "whole"
    if not whole.exists():
        whole.write_bytes(make(tmp_path / "made.gguf"))
    broken = tmp_path / ("broken.gguf" if whole.read_bytes().startswith(b"GGUF") else "broken/tokenizer.model")
    broken.parent.mkdir(exist_ok=True)
    broken.write_bytes(data.draw(damaged(whole.read_bytes())))
    try:
        load_tokenizer(str(broken if broken.suffix == ".gguf" else broken.parent)).encode_prompt(
            "The quick fox <s> 世界"
        )
    except ModelError as error:
        assert "broken" in str(error) or "control token" in str(error)
