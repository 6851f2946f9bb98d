"""An ingest in one process, for tests that need one."""

from pathlib import Path

import pytest

from .surroundings import Surroundings


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    return Surroundings(tmp_path / "model")
