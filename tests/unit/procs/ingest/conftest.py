"""An ingest in one process, for tests that need one."""

from pathlib import Path

import pytest

from fourstroke.procs.ingest.load_tokenizer import load_tokenizer
from fourstroke.procs.ingest.token_names import TokenNames

from ..tokenizer_files import byte_level, write_folder
from .surroundings import Surroundings


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    return Surroundings(tmp_path / "model")


@pytest.fixture(scope="session")
def names(tmp_path_factory: pytest.TempPathFactory) -> TokenNames:
    """The names of a small vocabulary's tokens: all bytes, some pieces of text, two control tokens."""
    return TokenNames(load_tokenizer(str(write_folder(tmp_path_factory.mktemp("names") / "model", byte_level()))))
