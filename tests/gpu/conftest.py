"""Tests that need a GPU. `pytest tests/gpu` on a machine that has one; elsewhere each is skipped, with the reason."""

import os
from pathlib import Path

import pytest
import torch

from .shapes import random_model

HERE = Path(__file__).parent


def _why_not() -> str | None:
    if not torch.cuda.is_available():
        return "there is no GPU"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "Triton's interpreter is on: run this folder by itself"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder, and skip it where it cannot run."""
    reason = _why_not()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with heads of 64, as matrix units want them."""
    return random_model(tmp_path_factory.mktemp("models") / "small")
