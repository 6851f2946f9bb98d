"""Reading GGUF files: the same as the format's own reader, and no damage that is a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fourstroke.common.errors import ModelError
from fourstroke.procs.gguf_file import GgufFile

from .tokenizer_files import damaged

METADATA: dict[str, Any] = {
    "general.name": "tiny é",
    "tiny.count": 7,
    "tiny.negative": -7,
    "tiny.scale": 0.5,
    "tiny.flag": True,
    "tiny.texts": ["a", "", "世界"],
    "tiny.numbers": [1, 2, 3],
    "tiny.scores": [0.5, 1.5],
}
TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.float16)}


def sizes(type_id: int, elements: int) -> int:
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type_id)]
    return elements // block_elements * block_bytes


def write(path: Path, **metadata: Any) -> Path:
    writer = gguf.GGUFWriter(path, "tiny")
    for key, value in {**METADATA, **metadata}.items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for name, tensor in TENSORS.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_what_was_written(tmp_path: Path) -> None:
    """Metadata comes back as Python values, tensors as their bytes with their shapes."""
    file = GgufFile(write(tmp_path / "model.gguf"), sizes)
    assert {key: file.metadata[key] for key in METADATA} == METADATA
    assert set(file.tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert file.tensors[name].shape == tensor.shape
        assert file.tensors[name].data.tobytes() == tensor.tobytes()


def test_without_tensors(tmp_path: Path) -> None:
    """Who wants only the metadata need not know the types of tensors."""
    file = GgufFile(write(tmp_path / "model.gguf"))
    assert file.metadata["tiny.count"] == 7
    assert file.tensors == {}


@pytest.mark.parametrize("alignment", [0, -32, 32.0, True, "32", [32]], ids=repr)
def test_alignments_that_are_none(tmp_path: Path, alignment: Any) -> None:
    """An alignment is a number of bytes; a file with any other is damaged."""
    path = write(tmp_path / "model.gguf", **{"general.alignment": alignment})
    with pytest.raises(ModelError, match="alignment"):
        GgufFile(path, sizes)


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"GGML" + bytes(20), b"GGUF\x09" + bytes(19), b"GGUF\x03" + b"\xff" * 60]
)
def test_files_of_another_kind(tmp_path: Path, content: bytes) -> None:
    """An empty file, one of another kind or version, and one of nonsense are named in the refusal."""
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.gguf is damaged or no GGUF file"):
        GgufFile(path, sizes)


def test_missing_files(tmp_path: Path) -> None:
    """What cannot be opened is refused with the system's reason."""
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(ModelError, match="cannot read"):
            GgufFile(path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bytes(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever byte is another one, and wherever the file ends, it is read or it is a ModelError."""
    whole = tmp_path / "model.gguf"
    if not whole.exists():
        write(whole)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(data.draw(damaged(whole.read_bytes())))
    try:
        tensors = GgufFile(broken, sizes).tensors.values()
    except ModelError:
        return
    assert sum(tensor.data.nbytes for tensor in tensors) < 8 * broken.stat().st_size
