"""Reading GGUF model files: the metadata as Python values, the tensors as raw bytes mapped from the file.

Ingest and output want the tokenizer in the metadata, the executor wants the weights; all of them want it
before the first request. The reader of the `gguf` package builds an array for each of the hundred
thousand strings of a tokenizer, which takes 3 seconds; this one takes 0.1 s. The types of tensors and
their dequantization are the package's. Format: ggml/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..common.errors import ModelError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor as it lies in the file. `shape` is row-major, as torch has it; `data` are the raw bytes."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    data: np.ndarray


class GgufFile:
    """An open GGUF file. `metadata` and `tensors` are by name. Raises ModelError if it is damaged."""

    def __init__(self, path: Path, tensor_bytes: Callable[[int, int], int] | None = None) -> None:
        """`tensor_bytes(type_id, elements)` tells the size of a tensor; without it tensors are not read."""
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, GgufTensor] = {}
        try:
            with path.open("rb") as file:
                self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            tensor_count = self._read_header()
            if tensor_bytes is not None:
                self._read_tensors(tensor_count, tensor_bytes)
        except (struct.error, ValueError, OverflowError, RecursionError) as error:
            raise ModelError(f"{path} is damaged or no GGUF file: {error}") from None
        except OSError as error:
            raise ModelError(f"cannot read {path}: {error.strerror}") from None

    def _read_header(self) -> int:
        if self._memory[:4] != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._scalar("<I")
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is not known")
        tensor_count, field_count = self._scalar("<Q"), self._scalar("<Q")
        for _ in range(field_count):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("<I"))
        return int(tensor_count)

    def _read_tensors(self, count: int, tensor_bytes: Callable[[int, int], int]) -> None:
        heads = []
        for _ in range(count):
            name, dimensions = self._string(), self._scalar("<I")
            if dimensions > _MAX_DIMENSIONS:
                raise ValueError(f"tensor {name} has {dimensions} dimensions")
            shape = tuple(self._scalar("<Q") for _ in range(dimensions))
            heads.append((name, shape[::-1], self._scalar("<I"), self._scalar("<Q")))
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"its alignment is {alignment!r}")
        base = -(-self._at // alignment) * alignment
        for name, shape, type_id, offset in heads:
            elements = int(np.prod(shape, dtype=object))
            size = tensor_bytes(type_id, elements)
            if base + offset + size > len(self._memory):
                raise ValueError(f"it ends before tensor {name} ({len(self._memory):,} bytes)")
            data = np.frombuffer(self._memory, np.uint8, size, base + offset)
            self.tensors[name] = GgufTensor(name, shape, type_id, data)

    def _scalar(self, layout: str) -> Any:
        (value,) = struct.unpack_from(layout, self._memory, self._at)
        self._at += struct.calcsize(layout)
        return value

    def _string(self) -> str:
        length = self._scalar("<Q")
        text = self._memory[self._at : self._at + length]
        if len(text) != length:
            raise ValueError("it ends in the middle of a string")
        self._at += length
        return text.decode()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind not in _SCALARS and kind != _ARRAY:
            raise ValueError(f"it holds a value of type {kind}, which is not known")
        if kind != _ARRAY:
            return self._scalar(_SCALARS[kind])
        item, count = self._scalar("<I"), self._scalar("<Q")
        if item not in _SCALARS:
            return [self._value(item) for _ in range(count)]
        layout = np.dtype(_SCALARS[item])
        values = np.frombuffer(self._memory, layout, count, self._at)
        self._at += values.nbytes
        return values.tolist()
