"""The command line: its commands, and the options for a Config as a table, which the offline API shares.

It knows what may be said, not what is done with it.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ..common.config import (
    ALIGNMENTS,
    BACKENDS,
    DTYPES,
    EXECUTORS,
    KV_CACHE_DTYPES,
    KV_ENCODINGS,
    KV_HASHES,
    KV_REPLAY_FORMS,
    LOG_LEVELS,
    POLICIES,
    QUANTIZATIONS,
    REASONING_PARSERS,
    TOOL_CALL_PARSERS,
    Config,
)
from ..common.errors import ConfigError
from .arguments import finite, positive_number, whole
from .bench.options import add_bench
from .chaos.options import add_chaos
from .kv_events.options import add_kv_events
from .model_source import DEFAULT_NAME

KEY_VARIABLE = "FOURSTROKE_API_KEY"
"""The environment's variable for the API key, which keeps it off the command line."""

EXIT_USAGE = 2
"""Exit status of a command whose command line or parameters are wrong."""

_GENERATE_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Option:
    """One flag and the field of Config that it sets; its default is the field's.

    One of type bool is two flags: --name and --no-name.
    """

    flag: str
    field: str
    type: Callable[[str], Any]
    help: str
    choices: tuple[str, ...] | None = None


KV_EVENTS = (
    Option("--kv-events", "kv_events", bool, "publish the changes of the KV cache, for routers"),
    Option("--kv-events-endpoint", "kv_events_endpoint", str, "where they are published; engine i: i ports further"),
    Option(
        "--kv-events-replay-endpoint",
        "kv_events_replay_endpoint",
        str,
        "where missed ones are had; '': nowhere; default: tcp://127.0.0.1:5558, with several engines :5657",
    ),
    Option("--kv-events-topic", "kv_events_topic", str, "their topic; {model}, {host} and {port} are filled in"),
    Option("--kv-events-encoding", "kv_events_encoding", str, "how an event is written", KV_ENCODINGS),
    Option("--kv-events-replay-form", "kv_events_replay_form", str, "frames of a replay's answer", KV_REPLAY_FORMS),
    Option("--kv-events-buffer-steps", "kv_events_buffer_steps", whole, "batches that are kept for replay"),
    Option("--kv-events-queue", "kv_events_queue", whole, "batches that may wait to be published"),
    Option("--kv-events-hwm", "kv_events_hwm", whole, "batches that may wait for a subscriber, before it misses some"),
    Option("--kv-events-heartbeat", "kv_events_heartbeat_s", finite, "idle seconds before an empty batch; 0: none"),
    Option("--kv-events-min-interval", "kv_events_min_interval_s", finite, "seconds between batches, at least"),
    Option("--kv-events-hash", "kv_events_hash", str, "how blocks are hashed", KV_HASHES),
    Option("--kv-events-hash-seed", "kv_events_hash_seed", str, "the text of which the root's hash is made"),
    Option("--kv-events-dynamo-salt", "kv_events_dynamo_salt", bool, "salts are told with Dynamo's prefix"),
)
"""What routers are told."""

COMPUTE = (
    Option("--backend", "backend", str, "where the model runs", BACKENDS),
    Option("--executor", "executor", str, "fake: no model, invented tokens, to measure everything else", EXECUTORS),
    Option("--dtype", "dtype", str, "type of weights and KV cache", DTYPES),
    Option(
        "--quantization",
        "quantization",
        str,
        "how weights are kept; auto: as the checkpoint has them; none: in the type of --dtype; "
        "int8, int4: only on the CPU's C kernels, so in bfloat16; fp8: only on a GPU",
        QUANTIZATIONS,
    ),
    Option("--kv-cache-dtype", "kv_cache_dtype", str, "type of the KV cache; auto: that of --dtype", KV_CACHE_DTYPES),
    Option(
        "--batch-invariant",
        "batch_invariant",
        bool,
        "the same bits of a row's logits alone, in any batch and in any chunking; "
        "the CPU's C kernels give them anyway, and without these, as in float32, it is refused there",
    ),
    Option("--threads", "threads", whole, "threads that compute in an engine; default: its share of the cores"),
    Option("--block-size", "block_size", whole, "tokens in a block of the KV cache"),
    Option("--num-blocks", "num_blocks", whole, "blocks of the KV cache; default: what fits --memory-fraction"),
    Option(
        "--memory-fraction",
        "memory_fraction",
        finite,
        "share of the free memory that the KV cache may take; default: 0.3, on a GPU 0.9",
    ),
    Option("--max-model-len", "max_model_len", whole, "longest prompt and output together, in tokens"),
    Option("--max-num-seqs", "max_num_seqs", whole, "requests that run at the same time"),
    Option("--max-num-batched-tokens", "max_num_batched_tokens", whole, "tokens computed in one step"),
    Option("--policy", "policy", str, "what fills a step first: running requests, or prompts", POLICIES),
    Option("--chunked-prefill", "chunked_prefill", bool, "compute long prompts in pieces, beside the running requests"),
    Option(
        "--long-prefill-threshold", "long_prefill_threshold", whole, "most tokens of one prompt in a step; 0: no limit"
    ),
    Option(
        "--scheduler-delay-factor",
        "scheduler_delay_factor",
        finite,
        "gather prompts for so many times the length of the last step that had some; 0: start them at once",
    ),
    Option("--prefix-cache", "prefix_cache", bool, "compute only once what several prompts begin with"),
    Option(
        "--num-speculative-tokens",
        "num_speculative_tokens",
        whole,
        "tokens guessed ahead of each, by n-grams in the request's own text",
    ),
    Option("--pipeline-depth", "pipeline_depth", whole, "steps on their way at the same time, 1 or 2"),
    Option("--data-parallel-size", "data_parallel_size", whole, "engines that serve, each with a copy of the model"),
    Option("--ingest-procs", "ingest_procs", whole, "processes that serve HTTP and tokenise, on one port"),
    Option("--output-procs", "output_procs", whole, "processes that turn tokens into text"),
    Option(
        "--alignment",
        "alignment",
        str,
        "engines prefill together: as soon as all can (delay), or when it fills a step of all (coalesce)",
        ALIGNMENTS,
    ),
    Option("--log-level", "log_level", str, "how much the processes log", LOG_LEVELS),
    Option("--fake-step", "fake_step_s", finite, "seconds that a step of the fake executor takes"),
)
"""What computes, and in which order."""

WATCH = (
    Option("--start-timeout", "start_timeout_s", finite, "seconds until every process must be ready"),
    Option(
        "--hang-timeout",
        "hang_timeout_s",
        finite,
        "seconds without progress after which a process is killed and replaced; 0: never",
    ),
    Option("--step-timeout", "step_timeout_s", finite, "seconds that a step may take, as long as it computes"),
    Option(
        "--max-restarts",
        "max_restarts",
        whole,
        "so often in a row a process that died is replaced; then the server ends; 0: it ends at the first death",
    ),
)
"""What becomes of processes that die or hang."""

ENGINE = (*COMPUTE, *KV_EVENTS, *WATCH)
"""What the server is. `generate`, `chat` and LLM(...) have these too."""

HTTP = (
    Option("--host", "host", str, "address to listen on"),
    Option("--port", "port", whole, "port to listen on; 0: any free one"),
    Option("--unix-socket", "unix_socket", str, "listen on a Unix socket at this path instead"),
    Option("--max-queue", "max_queue", whole, "requests that may wait; more are refused with 429"),
    Option(
        "--request-timeout",
        "request_timeout_s",
        finite,
        "seconds that a request may take, unless it says so itself; 0: for ever",
    ),
    Option(
        "--tool-call-parser",
        "tool_call_parser",
        str,
        "how the model writes tool calls; auto: as its chat template says",
        TOOL_CALL_PARSERS,
    ),
    Option(
        "--reasoning-parser",
        "reasoning_parser",
        str,
        "how the model writes what it thinks before it answers; auto: as its chat template says",
        REASONING_PARSERS,
    ),
    Option(
        "--trust-request-chat-template",
        "trust_request_chat_template",
        bool,
        "requests may bring a chat template, and variables for the model's",
    ),
    Option("--drain-timeout", "drain_timeout_s", finite, "seconds that requests may take to end on SIGTERM"),
)
"""How the server is reached."""


_GROUPS = (
    ("HTTP", HTTP),
    ("model and steps", COMPUTE),
    ("events of the KV cache", KV_EVENTS),
    ("processes that die or hang", WATCH),
)
"""How the options stand in the help."""


def add_options(parser: argparse.ArgumentParser, options: tuple[Option, ...]) -> None:
    """Add options to a parser, in groups."""
    for title, group in _GROUPS:
        if set(group) <= set(options):
            _add_group(parser.add_argument_group(title), group)


def _add_group(parser: argparse._ArgumentGroup, options: tuple[Option, ...]) -> None:
    """Add options to a group of a parser. One that is not given stays out of the namespace: Config has its default."""
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}
    for option in options:
        parser.add_argument(
            option.flag,
            dest=option.field,
            default=argparse.SUPPRESS,
            help=_help(option, defaults[option.field]),
            **_how(option),
        )


def _how(option: Option) -> dict[str, Any]:
    """How argparse reads an option."""
    if option.type is bool:
        return {"action": argparse.BooleanOptionalAction}
    metavar = None if option.choices else option.flag.removeprefix("--").upper()
    return {"type": option.type, "choices": option.choices, "metavar": metavar}


def _help(option: Option, default: Any) -> str:
    if default is None:
        return option.help
    shown = {True: "on", False: "off"}[default] if option.type is bool else default
    return f"{option.help} (default: {shown})"


def given(namespace: argparse.Namespace, options: tuple[Option, ...]) -> dict[str, Any]:
    """The fields of Config that the command line sets."""
    values = vars(namespace)
    return {option.field: values[option.field] for option in options if option.field in values}


def as_flags(fields: Mapping[str, Any], options: tuple[Option, ...]) -> list[str]:
    """The flags that set these fields of Config. Raises ConfigError for a field that is in none of the options."""
    by_field = {option.field: option for option in options}
    unknown = [field for field in fields if field not in by_field]
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]!r}; known are {', '.join(sorted(by_field))}")
    return [_as_flag(by_field[field], value) for field, value in fields.items() if value is not None]


def _as_flag(option: Option, value: Any) -> str:
    if option.type is not bool:
        return f"{option.flag}={value}"
    if not isinstance(value, bool):
        raise ConfigError(f"{option.field} must be True or False; got {value!r}")
    return option.flag if value else f"--no-{option.flag.removeprefix('--')}"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as ConfigError; the usage has `--help`."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def make_parser(version: str) -> argparse.ArgumentParser:
    """The parser of the whole command; `command` in its result is one of those below."""
    parser = _Parser(
        prog="fourstroke", description="An LLM server, built as a pipeline of processes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"fourstroke {version}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="serve|generate|chat|bench|chaos|kv-events|kernels|doctor"
    )
    _add_serve(commands)
    _add_generate(commands)
    _add_chat(commands)
    add_bench(commands)
    add_chaos(commands)
    add_kv_events(commands)
    _add_kernels(commands)
    _add_doctor(commands)
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
    parser.add_argument(
        "--allowed-origins",
        nargs="+",
        action="extend",
        default=[],
        metavar="ORIGIN",
        help="origins whose pages may call the server in a browser, as https://example.org; *: all (default: none)",
    )
    add_options(parser, HTTP + ENGINE)
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


def _add_doctor(commands: Any) -> None:
    purpose = "tell what this machine has, test what it computes, and say what to do about each flaw"
    parser = commands.add_parser("doctor", help=purpose, description=purpose, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="write the findings as JSON")
    parser.add_argument(
        "--timeout", type=positive_number, default=300.0, help="seconds that the tests may take (default: 300)"
    )


def _add_kernels(commands: Any) -> None:
    purpose = "compile the GPU kernels for AMD architectures, without a card, and look at their assembly"
    parser = commands.add_parser("kernels", help=purpose, description=purpose, allow_abbrev=False)
    actions = {
        "show": "show the figures",
        "report": "write them to docs/amd-kernels.md",
        "check": "hold them against the limits and against docs/amd-kernels.json",
    }
    said = "; ".join(f"{action}: {what}" for action, what in actions.items())
    parser.add_argument("action", choices=actions, help=said)
    parser.add_argument("--arch", nargs="+", default=[], metavar="NAME", help="such as gfx942 (default: all)")
    parser.add_argument(
        "--kernel",
        nargs="+",
        default=["*"],
        metavar="NAME",
        help="which files of kernels; a name may be a pattern such as 'attention_*' (default: all)",
    )


def _add_sampling(parser: argparse.ArgumentParser, max_tokens: int | None) -> None:
    room = "the room in the context" if max_tokens is None else max_tokens
    parser.add_argument("--max-tokens", type=whole, default=max_tokens, help=f"longest answer (default: {room})")
    parser.add_argument("--temperature", type=finite, default=0.0, help="0: always the likeliest token (default: 0)")
    parser.add_argument("--top-p", type=finite, default=1.0, help="share of likelihood to sample from (default: 1)")
    parser.add_argument("--seed", type=whole, help="for the same random numbers again")
