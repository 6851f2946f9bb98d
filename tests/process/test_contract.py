"""Requests made from the description of the API, sound and broken ones: a real server answers them as described.

schemathesis makes them, and needs some 40 s for over 2,000.
"""

import re
import subprocess
import sys
from pathlib import Path

from .server import start_server

EXAMPLES = 60
"""For each route, beside those that cover each part of its description."""

TIMEOUT_S = 300
SETTINGS = """
[checks.not_a_server_error]
# A request may give itself a timeout that is over at once, and a server is told so.
expected-statuses = ["2xx", "3xx", "4xx", "504"]

[checks.positive_data_acceptance]
# What a schema cannot say: which ids the vocabulary has, how long a prompt is, which fields exclude each other.
enabled = false
"""


def test_description_is_true(tmp_path: Path) -> None:
    """Each answer has a status, a type, headers and a body that are described, and what is forbidden is refused."""
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(SETTINGS)
    command = [sys.executable, "-P", "-m", "schemathesis.cli", "--config-file", str(settings), "run"]
    flags = ["--phases=coverage,fuzzing", f"--max-examples={EXAMPLES}", "--seed=1", "--no-color", "--workers=1"]
    with start_server("--executor=fake", "--max-model-len=64") as server:
        url = f"{server.wait_ready()}/openapi.json"
        done = subprocess.run([*command, url, *flags], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (cases,) = re.findall(r"(\d+) generated", done.stdout)
    assert int(cases) > 2000
