"""Processes of a server are killed and stopped at random under load: every answer is that of an undisturbed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fourstroke.launch.cli import run


def test_no_client_notices(model_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever is hit behind ingest: all requests end, with exactly what they had to end with, and nothing is lost."""
    found = tmp_path / "found.json"
    blows = ["--seconds", "9", "--every", "1", "--seed", "4", "--json", str(found)]
    flags = ["--model", str(model_path), "--executor=fake", "--fake-step=0.01", "--hang-timeout=3"]
    assert run(["chaos", *blows, "--", *flags]) == 0, capfd.readouterr()
    told = json.loads(found.read_text())
    assert told["wrong"] == [] and told["requests"] > 0 and told["asked_again"] == 0
    assert {blow["process"] for blow in told["blows"]} == {"scheduler0", "executor0", "output0", "publisher0"}
    assert {blow["signal"] for blow in told["blows"]} == {"SIGKILL", "SIGSTOP"}
    assert all(blow["ready_again_s"] is not None for blow in told["blows"])
