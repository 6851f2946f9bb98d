"""`fourstroke bench` with real servers of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fourstroke.launch.cli import run

pytest.importorskip("aiohttp")


def test_a_server_of_its_own(model_path: Path, tmp_path: Path) -> None:
    """It is started with the flags after --, asked for all that was ordered, and gone in the end."""
    found = tmp_path / "found.json"
    load = ["--concurrency", "2", "--requests", "4", "--input-words", "9", "--output-tokens", "6", "--json", str(found)]
    flags = ["--model", str(model_path), "--executor", "fake"]
    assert run(["bench", "serve", *load, "--", *flags]) == 0
    (measured,) = json.loads(found.read_text())["runs"]
    (figures,) = measured["loads"]
    assert measured["model"] == model_path.stem
    assert (figures["requests"], figures["failed"], figures["output_tokens"]) == (4, 0, 24)
    assert figures["input_tokens"] >= 4 * 9


def test_a_server_that_does_not_start(capfd: pytest.CaptureFixture[str]) -> None:
    """Its last line is the error, and its status says that the command line is wrong."""
    assert run(["bench", "serve", "--", "--block-size", "0"]) == 2
    assert "--block-size" in capfd.readouterr().err
