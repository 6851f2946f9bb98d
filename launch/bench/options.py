"""The command line of `fourstroke bench`: its parts and their flags. It knows what may be said, not what is done."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..arguments import positive, positive_number, whole

CONCURRENCIES = (1, 8, 32)
STREAMS = 256
REQUESTS_PER_STREAM = 3
LEAST_REQUESTS = 4

_PURPOSE = "measure a server, several servers in turn, or a part of ours by itself"
_SERVE = "put load on an OpenAI-compatible server: the one at --url, or one of its own with the flags after --"
_COMPARE = "put the same load on several engines of this machine, in turn, and show their ratios"
_EXECUTOR = "the model by itself, in one process; after -- flags of `fourstroke serve`"
_ACCURACY = "what precision costs: float32 and less on the same text; after -- flags of `fourstroke serve`"
_SERVED = "the model by itself and behind a server, in turn; after -- flags of `fourstroke serve`"
_HTTP = "everything but the model: HTTP streams from steps of a fixed time; after -- flags of `fourstroke serve`"
_SCHEDULER = "CPU time of planning, messages and settling, without a model"

STARTING = tuple(("bench", part) for part in ("serve", "executor", "served", "http", "accuracy"))
"""What takes flags of `fourstroke serve` after `--`."""


def add_bench(commands: Any) -> None:
    """Add the command with all its parts; `part` in the result says which one is meant."""
    parser = commands.add_parser("bench", help=_PURPOSE, description=_PURPOSE, allow_abbrev=False)
    metavar = "serve|compare|executor|served|http|accuracy|scheduler"
    parts = parser.add_subparsers(dest="part", required=True, metavar=metavar)
    _add_serve(parts)
    _add_compare(parts)
    _add_executor(parts)
    _add_served(parts)
    _add_http(parts)
    _add_accuracy(parts)
    _add_scheduler(parts)


def _add_part(parts: Any, name: str, purpose: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = parts.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
    return parser


def _add_serve(parts: Any) -> None:
    parser = _add_part(parts, "serve", _SERVE)
    parser.add_argument("--url", help="the server, such as http://127.0.0.1:8000 (default: one of its own)")
    parser.add_argument("--api-key", help="the key of that server (default: $FOURSTROKE_API_KEY)")
    parser.add_argument("--model", metavar="NAME", help="the name in requests (default: the first that it serves)")
    parser.add_argument("--name", help="what this run is called in tables and plots (default: the model's name)")
    _add_load(parser)
    parser.add_argument("--ttft-limit", type=positive_number, metavar="MS", help="goodput: longest to the first token")
    parser.add_argument("--itl-limit", type=positive_number, metavar="MS", help="goodput: longest mean between tokens")
    _add_files(parser)
    parser.add_argument(
        "--with",
        nargs="+",
        default=[],
        type=Path,
        metavar="FILE",
        dest="others",
        help="earlier --json files that the plot shows beside this run",
    )


def _add_compare(parts: Any) -> None:
    parser = _add_part(parts, "compare", _COMPARE)
    parser.add_argument("engines", type=Path, metavar="ENGINES.toml", help="the engines; the first is held against all")
    parser.add_argument(
        "--repetitions", type=positive, default=3, help="times that each engine's turn comes (default: 3)"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these engines of the file")
    _add_load(parser)
    _add_files(parser)


def _add_load(parser: argparse.ArgumentParser) -> None:
    """What is asked of a server, and by how many at a time."""
    shown = " ".join(map(str, CONCURRENCIES))
    parser.add_argument(
        "--concurrency",
        nargs="+",
        type=positive,
        default=[],
        metavar="N",
        help=f"closed loop: so many requests at any time (default: {shown}, unless there is a rate)",
    )
    parser.add_argument(
        "--rate",
        nargs="+",
        type=positive_number,
        default=[],
        metavar="R",
        help="open loop: requests come at random, R in a second on average, whether earlier ones have ended or not",
    )
    most = f"{REQUESTS_PER_STREAM} for each stream, at least {LEAST_REQUESTS}; of a rate: 64"
    parser.add_argument("--requests", type=positive, metavar="N", help=f"requests of each load (default: {most})")
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--input-words", type=positive, metavar="N", help="common words in a prompt (default: 128)")
    prompts.add_argument("--input-tokens", type=positive, metavar="N", help="random token ids in a prompt, instead")
    prompts.add_argument("--prompts", type=Path, metavar="FILE", help="prompts from a file instead, one in each line")
    parser.add_argument("--output-tokens", type=positive, default=128, metavar="N", help="default: 128")
    _add_clients(parser)


def _add_clients(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=positive, default=1, metavar="N", help="processes that ask (default: 1)")
    parser.add_argument("--seed", type=whole, default=0, help="for other prompts and arrivals (default: 0)")


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file, too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw throughput and TTFT: FILE.svg or FILE.png")


def _add_executor(parts: Any) -> None:
    parser = _add_part(parts, "executor", _EXECUTOR)
    shown = " ".join(map(str, CONCURRENCIES))
    parser.add_argument(
        "--rows",
        nargs="+",
        type=positive,
        default=list(CONCURRENCIES),
        metavar="N",
        help=f"requests side by side (default: {shown})",
    )
    parser.add_argument("--input-tokens", type=positive, default=128, metavar="N", help="of each row (default: 128)")
    parser.add_argument("--output-tokens", type=positive, default=128, metavar="N", help="of each row (default: 128)")
    parser.add_argument(
        "--prefill", type=positive, default=512, metavar="N", help="tokens of a lone prompt (default: 512)"
    )
    parser.add_argument("--repetitions", type=positive, default=3, metavar="N", help="of everything (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")


def _add_served(parts: Any) -> None:
    parser = _add_part(parts, "served", _SERVED)
    shown = " ".join(map(str, CONCURRENCIES))
    parser.add_argument(
        "--concurrency",
        nargs="+",
        type=positive,
        default=list(CONCURRENCIES),
        metavar="N",
        help=f"requests at any time, and rows side by side in the bare loop (default: {shown})",
    )
    most = f"{REQUESTS_PER_STREAM} for each stream, at least {LEAST_REQUESTS}"
    parser.add_argument("--requests", type=positive, metavar="N", help=f"requests of each load (default: {most})")
    _add_lengths(parser, 128)
    parser.add_argument("--repetitions", type=positive, default=3, metavar="N", help="turns of each (default: 3)")
    _add_clients(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")


def _add_http(parts: Any) -> None:
    parser = _add_part(parts, "http", _HTTP)
    parser.add_argument(
        "--streams", type=positive, default=STREAMS, metavar="N", help=f"requests at any time (default: {STREAMS})"
    )
    parser.add_argument(
        "--step", type=positive_number, default=0.008, metavar="S", help="seconds that a step takes (default: 0.008)"
    )
    parser.add_argument("--requests", type=positive, metavar="N", help="requests in all (default: 2 for each stream)")
    _add_lengths(parser, 256)
    _add_clients(parser)
    parser.add_argument(
        "--flame",
        type=Path,
        metavar="FILE",
        help="draw a flame graph of the server's processes: FILE.svg; needs py-spy, and the load runs once more for it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")


def _add_lengths(parser: argparse.ArgumentParser, output: int) -> None:
    parser.add_argument("--input-tokens", type=positive, default=128, metavar="N", help="of a prompt (default: 128)")
    parser.add_argument(
        "--output-tokens", type=positive, default=output, metavar="N", help=f"of an answer (default: {output})"
    )


def _add_accuracy(parts: Any) -> None:
    parser = _add_part(parts, "accuracy", _ACCURACY)
    parser.add_argument("--tokens", type=positive, default=64, metavar="N", help="of each greedy text (default: 64)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")


def _add_scheduler(parts: Any) -> None:
    parser = _add_part(parts, "scheduler", _SCHEDULER)
    parser.add_argument(
        "--cases",
        nargs="+",
        default=["*"],
        metavar="NAME",
        help="which cases; a name may be a pattern such as 'decode-512-*' (default: all)",
    )
    parser.add_argument("--steps", type=positive, default=200, help="steps that are measured (default: 200)")
    parser.add_argument(
        "--slack",
        type=positive_number,
        default=1.5,
        help="how many times its target a time may be; 1 is for a machine that nobody else uses (default: 1.5)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
