"""What of a command line is for the server that it starts."""

from __future__ import annotations

import pytest

from fourstroke.launch.arguments import split_arguments
from fourstroke.launch.bench.options import STARTING as BENCH
from fourstroke.launch.chaos.options import STARTING as CHAOS


@pytest.mark.parametrize(
    "line, own, of_server",
    [
        ("bench serve --json f -- --model x -- y", "bench serve --json f", "--model x -- y"),
        ("bench executor --", "bench executor", ""),
        ("bench http -- --model x", "bench http", "--model x"),
        ("bench served -- --model x", "bench served", "--model x"),
        ("chaos --seed 1 -- --model x", "chaos --seed 1", "--model x"),
        ("bench compare f", "bench compare f", ""),
        ("generate -- --model", "generate -- --model", ""),
        ("bench", "bench", ""),
    ],
)
def test_flags_of_the_server(line: str, own: str, of_server: str) -> None:
    """What stands after the first -- is the server's where one is started, and elsewhere argparse's business."""
    assert split_arguments(line.split(), BENCH + CHAOS) == (own.split(), of_server.split())
