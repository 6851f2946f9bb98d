"""The command line of `fourstroke chaos`. It knows what may be said, not what is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..arguments import positive, positive_number, whole

STARTING = (("chaos",),)
"""The command takes flags of `fourstroke serve` after `--`."""

ROLES = ("scheduler", "executor", "output", "publisher", "ingest")
BEHIND_INGEST = ROLES[:-1]
"""Whose deaths no client may notice but by a pause."""

_PURPOSE = (
    "kill and stop processes of a server under load, and compare every answer with that of an undisturbed run; "
    "after -- flags of `fourstroke serve` (default: --dtype float32 and a small KV cache)"
)


def add_chaos(commands: Any) -> None:
    parser = commands.add_parser("chaos", help=_PURPOSE, description=_PURPOSE, allow_abbrev=False)
    parser.add_argument("--seconds", type=positive_number, default=180.0, help="of disturbed load (default: 180)")
    parser.add_argument(
        "--every", type=positive_number, default=5.0, metavar="S", help="seconds from blow to blow (default: 5)"
    )
    shown = " ".join(BEHIND_INGEST)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=ROLES,
        default=list(BEHIND_INGEST),
        metavar="ROLE",
        help=f"whom to hit (default: {shown}); ingest takes its connections along, so what broke is asked again",
    )
    parser.add_argument("--streams", type=positive, default=8, metavar="N", help="requests at any time (default: 8)")
    parser.add_argument("--seed", type=whole, default=0, help="for other blows (default: 0)")
    parser.add_argument(
        "--soak",
        type=positive_number,
        metavar="MINUTES",
        help="no blows, so many minutes of load instead: memory and descriptors must stay flat",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was found to this file, too")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write down what the server says")
