"""The command line: its commands, and the options for a Config as a table, which the offline API shares.

It knows what may be said, not what is done with it.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ..common.config import BACKENDS, DTYPES, EXECUTORS, LOG_LEVELS, Config
from ..common.errors import ConfigError
from .model_source import DEFAULT_NAME

KEY_VARIABLE = "FOURSTROKE_API_KEY"
"""The environment's variable for the API key, which keeps it off the command line."""

EXIT_USAGE = 2
"""Exit status of a command whose command line or parameters are wrong."""

_GENERATE_TOKENS = 128
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def whole(text: str) -> int:
    """A whole number. Python's int() would take 1_000 and digits of other scripts as well."""
    if not _WHOLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be a whole number; got {text!r}")
    return int(text)


def finite(text: str) -> float:
    """A number that is neither NaN nor infinite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text or not text.isascii():
        raise argparse.ArgumentTypeError(f"must be a finite number; got {text!r}")
    return value


@dataclass(frozen=True, slots=True)
class Option:
    """One flag and the field of Config that it sets; its default is the field's."""

    flag: str
    field: str
    type: Callable[[str], Any]
    help: str
    choices: tuple[str, ...] | None = None


ENGINE = (
    Option("--backend", "backend", str, "where the model runs", BACKENDS),
    Option("--executor", "executor", str, "fake: no model, invented tokens, to measure everything else", EXECUTORS),
    Option("--dtype", "dtype", str, "type of weights and KV cache", DTYPES),
    Option("--threads", "threads", whole, "threads that compute; default: the cores that may be used"),
    Option("--block-size", "block_size", whole, "tokens in a block of the KV cache"),
    Option("--num-blocks", "num_blocks", whole, "blocks of the KV cache; default: what fits --memory-fraction"),
    Option("--memory-fraction", "memory_fraction", finite, "share of the free memory that the KV cache may take"),
    Option("--max-model-len", "max_model_len", whole, "longest prompt and output together, in tokens"),
    Option("--max-num-seqs", "max_num_seqs", whole, "requests that run at the same time"),
    Option("--max-num-batched-tokens", "max_num_batched_tokens", whole, "tokens computed in one step"),
    Option("--pipeline-depth", "pipeline_depth", whole, "steps on their way at the same time, 1 or 2"),
    Option("--start-timeout", "start_timeout_s", finite, "seconds until every process must be ready"),
    Option("--log-level", "log_level", str, "how much the processes log", LOG_LEVELS),
    Option("--fake-step", "fake_step_s", finite, "seconds that a step of the fake executor takes"),
)
"""What the server is. `generate`, `chat` and LLM(...) have these too."""

HTTP = (
    Option("--host", "host", str, "address to listen on"),
    Option("--port", "port", whole, "port to listen on; 0: any free one"),
    Option("--unix-socket", "unix_socket", str, "listen on a Unix socket at this path instead"),
    Option("--max-queue", "max_queue", whole, "requests that may wait; more are refused with 429"),
    Option("--drain-timeout", "drain_timeout_s", finite, "seconds that requests may take to end on SIGTERM"),
)
"""How the server is reached."""


def add_options(parser: argparse.ArgumentParser, options: tuple[Option, ...]) -> None:
    """Add options to a parser. One that is not given stays out of the namespace: Config has its default."""
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}
    for option in options:
        shown = defaults[option.field]
        parser.add_argument(
            option.flag,
            dest=option.field,
            type=option.type,
            choices=option.choices,
            default=argparse.SUPPRESS,
            metavar=None if option.choices else option.flag.removeprefix("--").upper(),
            help=option.help if shown is None else f"{option.help} (default: {shown})",
        )


def given(namespace: argparse.Namespace, options: tuple[Option, ...]) -> dict[str, Any]:
    """The fields of Config that the command line sets."""
    values = vars(namespace)
    return {option.field: values[option.field] for option in options if option.field in values}


def as_flags(fields: Mapping[str, Any], options: tuple[Option, ...]) -> list[str]:
    """The flags that set these fields of Config. Raises ConfigError for a field that is in none of the options."""
    flags = {option.field: option.flag for option in options}
    unknown = [field for field in fields if field not in flags]
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(flags))}")
    return [f"{flags[field]}={value}" for field, value in fields.items() if value is not None]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as ConfigError; the usage has `--help`."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def make_parser(version: str) -> argparse.ArgumentParser:
    """The parser of the whole command; `command` in its result is serve, generate or chat."""
    parser = _Parser(
        prog="fourstroke", description="An LLM server, built as a pipeline of processes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"fourstroke {version}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="serve|generate|chat")
    _add_serve(commands)
    _add_generate(commands)
    _add_chat(commands)
    return parser


def _add_command(commands: Any, name: str, purpose: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
    parser.add_argument("--model", help=f"a folder, a GGUF file or org/name on the hub (default: {DEFAULT_NAME})")
    return parser


def _add_serve(commands: Any) -> None:
    parser = _add_command(commands, "serve", "serve a model over HTTP")
    parser.add_argument(
        "--served-model-name", nargs="+", action="extend", metavar="NAME", help="the names that requests may use"
    )
    parser.add_argument("--api-key", help=f"what clients must send as a bearer token (default: ${KEY_VARIABLE})")
    add_options(parser, HTTP)
    add_options(parser, ENGINE)
    parser.add_argument("--show-topology", action="store_true", help="show processes, wires and memory, and exit")
    parser.add_argument("--stop-on-eof", type=whole, metavar="FD", help=argparse.SUPPRESS)


def _add_generate(commands: Any) -> None:
    parser = _add_command(commands, "generate", "continue prompts and exit")
    parser.add_argument("prompts", nargs="+", metavar="PROMPT")
    _add_sampling(parser, _GENERATE_TOKENS)
    add_options(parser, ENGINE)


def _add_chat(commands: Any) -> None:
    parser = _add_command(commands, "chat", "talk to a model; /exit ends")
    parser.add_argument("--url", help="use the server that runs there, instead of starting one")
    parser.add_argument("--api-key", help=f"the key of that server (default: ${KEY_VARIABLE})")
    parser.add_argument("--system", metavar="TEXT", help="a system message")
    _add_sampling(parser, None)
    add_options(parser, ENGINE)


def _add_sampling(parser: argparse.ArgumentParser, max_tokens: int | None) -> None:
    room = "the room in the context" if max_tokens is None else max_tokens
    parser.add_argument("--max-tokens", type=whole, default=max_tokens, help=f"longest answer (default: {room})")
    parser.add_argument("--temperature", type=finite, default=0.0, help="0: always the likeliest token (default: 0)")
    parser.add_argument("--top-p", type=finite, default=1.0, help="share of likelihood to sample from (default: 1)")
    parser.add_argument("--seed", type=whole, help="for the same random numbers again")
