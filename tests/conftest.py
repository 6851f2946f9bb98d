"""What all tests share: the default model, fetched once into the user's cache folder."""

from pathlib import Path

import pytest

from fourstroke.launch.model_source import default_model


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    return default_model()
