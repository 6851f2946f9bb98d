"""What a checkpoint offers to whoever builds a model, and opening one by its path.

Tensors go by Hugging Face's names, whatever the file calls them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from gguf import GGMLQuantizationType

from ....common.errors import ModelError
from ..models.config import ModelConfig
from .blocks import Blocks
from .gguf import GgufCheckpoint
from .huggingface import HuggingFaceCheckpoint


class Checkpoint(Protocol):
    """An open checkpoint; nothing of its weights has been read yet."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def read(self, name: str) -> torch.Tensor:
        """A tensor in the shape of `shapes`, in some float dtype. May be called from several threads."""
        ...

    def block_type(self, name: str) -> GGMLQuantizationType | None:
        """The type of the quantized blocks in which a matrix is stored; None for one that is stored otherwise."""
        ...

    def blocks(self, name: str) -> Blocks | None:
        """A matrix as these blocks."""
        ...


def weight_bytes(checkpoint: Checkpoint, item_bytes: int) -> int:
    """The memory that the loaded weights take; tied embeddings lie there twice, once for each use's order."""
    elements = sum(map(math.prod, checkpoint.shapes.values()))
    if checkpoint.config.tied_embeddings:
        elements += checkpoint.config.vocab_size * checkpoint.config.hidden_size
    return elements * item_bytes


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a folder in Hugging Face's form or a .gguf file. Raises ModelError if it cannot be served."""
    if not path.exists():
        raise ModelError(f"the model {path} does not exist")
    if not path.is_dir() and path.suffix != ".gguf":
        raise ModelError(f"the model {path} is neither a folder nor a .gguf file")
    try:
        return HuggingFaceCheckpoint(path) if path.is_dir() else GgufCheckpoint(path)
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        # What a configuration raises whose numbers are strings, zeros or lists.
        raise ModelError(f"{path} describes no model that can be computed: {error}") from None
