"""The names of number types on the command line, as torch's types."""

from __future__ import annotations

import torch

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def torch_dtype(name: str, auto: torch.dtype = torch.bfloat16) -> torch.dtype:
    """The type of that name; "auto" is what suits the machine."""
    return auto if name == "auto" else _TYPES[name]
