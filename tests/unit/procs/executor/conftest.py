"""Tiny models on disk, and drivers of runners that have loaded them."""

from pathlib import Path

import pytest
import torch

from .driver import Driver, executor_config
from .tiny import CONTEXT, save_folder, tiny_weights


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tests share the machine: two threads that wait for each other on a busy core take a hundred times as long."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random Llama."""
    return save_folder(tmp_path_factory.mktemp("models") / "tiny", tiny_weights())


@pytest.fixture
def tiny(tiny_model: Path) -> Driver:
    """A driver of the tiny model in float32."""
    return Driver(executor_config(tiny_model, max_model_len=CONTEXT))
