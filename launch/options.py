"""The command line's options for a Config, as a table: argparse and the offline API are both made from it."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..common.config import BACKENDS, DTYPES, EXECUTORS, LOG_LEVELS, Config
from ..common.errors import ConfigError

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
