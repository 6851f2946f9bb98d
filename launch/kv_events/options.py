"""The command line of `fourstroke kv-events`. It knows what may be said, not what is done."""

from __future__ import annotations

import argparse
from typing import Any

from ..arguments import finite, positive_number, whole

_PURPOSE = "watch, check or measure a stream of KV events"
_ACTIONS = {
    "tail": "print batches as they come, those of before first",
    "check": "hold the stream against what the known readers need; ends with 1 if something is wrong",
    "bench": "how much comes, and how late; without --pub: what subscribers cost an engine, on a server of its own",
}


def add_kv_events(commands: Any) -> None:
    """Add the command with its actions; `action` in the result says which one is meant."""
    parser = commands.add_parser("kv-events", help=_PURPOSE, description=_PURPOSE, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="|".join(_ACTIONS))
    for name, purpose in _ACTIONS.items():
        action = actions.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
        _add_stream(action, required=name != "bench")
        if name == "tail":
            action.add_argument(
                "--batches", type=whole, default=0, metavar="N", help="stop after so many (default: never)"
            )
        else:
            action.add_argument("--seconds", type=positive_number, default=10.0, help="how long (default: 10)")
        if name == "check":
            action.add_argument("--seed", default="vllm-none-hash", help="--kv-events-hash-seed of the server")
            action.add_argument(
                "--other-hash", action="store_true", help="the hash is not sha256_cbor: do not compute it"
            )


def _add_stream(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--pub", required=required, metavar="ENDPOINT", help="such as tcp://127.0.0.1:5557")
    parser.add_argument("--replay", default="", metavar="ENDPOINT", help="such as tcp://127.0.0.1:5558 (default: none)")
    parser.add_argument("--topic", default="", help="only what has this topic (default: all)")
    parser.add_argument("--rank", type=whole, default=0, help="the rank at these endpoints (default: 0)")
    parser.add_argument(
        "--heartbeat", type=finite, default=5.0, metavar="S", help="--kv-events-heartbeat of the server (default: 5)"
    )
    parser.add_argument("--json", action="store_true", help="write JSON, a line for each batch or for the result")
