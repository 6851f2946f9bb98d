"""The command line's grammar. It knows what may be said, not what is done with it."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from .. import __version__
from ..common.errors import ConfigError
from .model_source import DEFAULT_NAME
from .options import ENGINE, HTTP, add_options, finite, whole

KEY_VARIABLE = "FOURSTROKE_API_KEY"

_GENERATE_TOKENS = 128


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as ConfigError; the usage has `--help`."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command; `command` in its result is serve, generate or chat."""
    parser = _Parser(
        prog="fourstroke", description="An LLM server, built as a pipeline of processes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"fourstroke {__version__}")
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
