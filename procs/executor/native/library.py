"""The C kernels as Python sees them: the structs of src/decoder.h and src/weights.h, and their functions.

Calls let go of the interpreter's lock. Pointers are numbers: whoever makes a struct keeps the memory that it points to.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int, c_int32, c_long, c_void_p
from pathlib import Path

from ....common.errors import ResourceError

BF16, INT8, INT4 = range(3)
"""Kinds of weights."""


class Weight(ctypes.Structure):
    """A projection's weights in tiles."""

    _fields_ = (
        ("kind", c_int32),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("tiles", c_void_p),
        ("bias", c_void_p),
    )


class Layer(ctypes.Structure):
    """The weights of a layer, and where its keys and values lie."""

    _fields_ = (
        ("query_key_value", Weight),
        ("output", Weight),
        ("gate_up", Weight),
        ("down", Weight),
        ("attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
    )


class Decoder(ctypes.Structure):
    """A model and its KV cache."""

    _fields_ = (
        *((name, c_int32) for name in ("layers", "hidden", "inner", "heads", "kv_heads", "head_dim", "block_size")),
        ("epsilon", c_float),
        ("layer", POINTER(Layer)),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("embedding", c_void_p),
        ("final_norm", c_void_p),
        ("head", Weight),
    )


class Step(ctypes.Structure):
    """A step's batch, and memory to compute it in."""

    _fields_ = (
        *((name, c_int32) for name in ("tokens", "rows", "tiles", "table_stride")),
        *(
            (name, c_void_p)
            for name in (
                *("token", "position", "slot", "first", "count", "length", "table", "tile_row", "tile_first"),
                *("hidden", "stream", "normed", "attended", "gated", "queries", "mixed", "projected"),
            )
        ),
    )


class MatrixUnitRefused(ResourceError):
    """The system does not let this process use AMX, for which the kernels were built."""


class Library(ctypes.CDLL):
    """The loaded kernels. Raises ResourceError if they cannot be loaded, MatrixUnitRefused if they may not be run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            super().__init__(str(path))
        except OSError as error:
            raise ResourceError(f"the kernels in {path} cannot be loaded: {error}") from None
        self._declare("processor_prepare", c_int)
        self._declare("team_start", c_void_p, c_int)
        self._declare("team_stop", None, c_void_p)
        self._declare("weight_tile_bytes", c_long, c_int)
        self._declare("weight_pack_bf16", None, c_void_p, c_int, c_int, c_void_p)
        self._declare("weight_pack_gguf", c_int, c_int, c_void_p, c_int, c_int, c_void_p)
        self._declare("cache_clear", None, POINTER(Decoder), c_void_p, c_int)
        self._declare("decoder_forward", c_int, c_void_p, POINTER(Decoder), POINTER(Step))
        arguments = (c_void_p, POINTER(Decoder), c_int, *(4 * (c_void_p,)), c_int)
        self._declare("decoder_logits", None, *arguments)
        if not self.processor_prepare():
            raise MatrixUnitRefused("the system does not let this process use the processor's matrix unit")

    def _declare(self, name: str, result: type | None, *arguments: type) -> None:
        function = self[name]
        function.restype, function.argtypes = result, arguments
        setattr(self, name, function)
