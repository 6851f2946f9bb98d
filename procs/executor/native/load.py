"""The C kernels for this process: built if need be, loaded, and with the matrix unit if the system permits it."""

from __future__ import annotations

from pathlib import Path

from .build import WITHOUT_AMX, built_library
from .library import Library, MatrixUnitRefused


def load_kernels(folder: Path) -> tuple[Library, str | None]:
    """The kernels, kept in `folder`, and in words what they must do without. Raises ResourceError if there are none."""
    try:
        return Library(built_library(folder)), None
    except MatrixUnitRefused as error:
        return Library(built_library(folder, WITHOUT_AMX)), str(error)
