"""Clients that others wrote, against one real server of the real model in float32, with a key.

These tests run in an environment of their own (run.sh makes it), which has the clients and no fourstroke; the server
runs in the other one. Without the clients pytest finds no tests here.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from ..process.server import Server
from .around import KEY, ROOT, TIMEOUT_S

if importlib.util.find_spec("litellm") is None:
    collect_ignore_glob = ["test_*.py"]

# The clients read these when they are imported: nothing is fetched, traced or sent anywhere else.
os.environ |= {
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "*",
    "OPENAI_API_KEY": KEY,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--server-python", default=ROOT / ".venv/bin/python", help="the Python that has fourstroke")


@pytest.fixture(scope="session")
def server_python(pytestconfig: pytest.Config) -> Path:
    return Path(pytestconfig.getoption("--server-python"))


@pytest.fixture(scope="session")
def server(server_python: Path) -> Iterator[str]:
    """The URL of the server. It runs 8 rows, and 8 more may wait: a test can fill it."""
    flags = ["--port=0", "--dtype=float32", "--max-num-seqs=8", "--max-queue=8", f"--api-key={KEY}"]
    with Server([str(server_python), "-P", "-m", "fourstroke", "serve", *flags]) as running:
        yield running.wait_ready()


@pytest.fixture(scope="session")
def base_url(server: str) -> str:
    """What clients are given as the base of the API."""
    return f"{server}/v1"


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    """The official client. It does not retry, which would hide failures."""
    with openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=TIMEOUT_S) as client:
        yield client


@pytest.fixture(scope="session")
def tokenizer(server_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's tokenizer as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("tokenizer")
    subprocess.run([server_python, "-m", "tests.clients.tokenizer", folder], cwd=ROOT, check=True)
    return folder
