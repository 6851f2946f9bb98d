"""Reading tokenizer.model files: what was written is read, and a damaged one is a ModelError."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourstroke.common.errors import ModelError
from fourstroke.procs.sentencepiece_file import read_sentencepiece

from .tokenizer_files import damaged, pieces, pieces_file


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    unigram=st.booleans(),
    space_first=st.booleans(),
    squeezes_spaces=st.booleans(),
    charsmap=st.binary(),
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True),
)
def test_read_as_written(tmp_path: Path, words: list[str], **model: bool | bytes) -> None:
    """Whatever a model holds is read as it was written."""
    written = pieces([word for word in words if word not in pieces([]).texts], **model)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(pieces_file(written))
    assert read_sentencepiece(path) == written


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damaged(pieces_file(pieces())))
def test_damage(tmp_path: Path, data: bytes) -> None:
    """Whatever byte is another one, and wherever the file ends, there is a model or a ModelError."""
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    try:
        read_sentencepiece(path)
    except ModelError as error:
        assert "tokenizer.model" in str(error)


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "0 tokens"),
        (pieces_file(pieces()).replace(b"<0x0A>", b"<0x0B>"), "same text"),
        (pieces_file(pieces()) + b"\x12\x02\x18\x03", "words or characters"),
        (pieces_file(pieces()) + b"\x12\x03\xc0\x01\x01", "behind words"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\xff\x01", "longer"),
        (b"\xff" * 11, "ten bytes"),
    ],
)
def test_refusals(tmp_path: Path, data: bytes, words: str) -> None:
    """What is no model, or a kind that is not supported, is refused in words."""
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=words):
        read_sentencepiece(path)


def test_no_file(tmp_path: Path) -> None:
    """A file that is missing or cannot be read is named."""
    with pytest.raises(ModelError, match=r"nowhere\.model is missing"):
        read_sentencepiece(tmp_path / "nowhere.model")
    with pytest.raises(ModelError, match="cannot read"):
        read_sentencepiece(tmp_path)
