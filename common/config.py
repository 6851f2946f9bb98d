"""Everything that can be configured, in frozen dataclasses that are validated when they are made.

The command line, the environment and the offline API meet in a Config: `launch` makes it, and no process reads
the environment. `Assignment` is what one process is told when it starts.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from dataclasses import dataclass
from pathlib import Path

from .endpoints import check_apart, check_endpoint
from .errors import ConfigError

DTYPES = ("auto", "float32", "bfloat16", "float16")
BACKENDS = ("auto", "cpu", "rocm", "cuda")
QUANTIZATIONS = ("auto", "none", "int8", "int4", "fp8")
KV_CACHE_DTYPES = ("auto", "bfloat16", "fp8")
EXECUTORS = ("model", "fake")
POLICIES = ("decode-first", "prefill-first")
ALIGNMENTS = ("off", "delay", "coalesce")
TOOL_CALL_PARSERS = ("auto", "none", "hermes", "llama3_json", "mistral")
REASONING_PARSERS = ("auto", "none", "think")
KV_ENCODINGS = ("map", "array")
KV_REPLAY_FORMS = ("topic", "legacy")
KV_HASHES = ("sha256_cbor",)
LOG_LEVELS = ("debug", "info", "warning", "error")

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How one server runs. `model` is a local path: hub names are resolved before.

    `None` for `num_blocks` and `max_model_len` means as much as memory and the model allow, for `memory_fraction` what
    suits the backend. What "auto" is, and what a backend cannot do, the executor says. Raises ConfigError, which names
    the flag.
    """

    model: str
    served_model_names: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    unix_socket: str | None = None
    api_key: str | None = None
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may call the server from a browser (CORS); "*" is all."""

    backend: str = "auto"
    executor: str = "model"
    dtype: str = "auto"
    quantization: str = "auto"
    kv_cache_dtype: str = "auto"
    batch_invariant: bool = False
    """A row's logits have the same bits alone, in any batch and in any chunking."""

    visible_devices: tuple[str, ...] | None = None
    """The devices that the launcher's environment allows; None: all."""

    threads: int | None = None
    kernel_folder: str | None = None
    """Where C kernels lie that were built for this machine; None: the CPU computes without them."""

    block_size: int = 16
    num_blocks: int | None = None
    memory_fraction: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    pipeline_depth: int = 2
    policy: str = "decode-first"
    chunked_prefill: bool = True
    prefix_cache: bool = True
    long_prefill_threshold: int = 0
    scheduler_delay_factor: float = 0.0
    num_speculative_tokens: int = 0
    data_parallel_size: int = 1
    """How many engines serve, each with a copy of the model."""

    ingest_procs: int = 1
    output_procs: int = 1
    """Processes that share the HTTP port, and processes that turn tokens into text; each serves all engines."""

    alignment: str = "off"
    """How the engines agree on when to prefill."""

    tool_call_parser: str = "auto"
    reasoning_parser: str = "auto"
    """How a model writes calls, and what it thinks before it answers; auto: as its chat template says."""

    trust_request_chat_template: bool = False
    """Requests may bring a chat template of their own, and variables for the model's."""
    kv_events: bool = False
    """Changes of the KV cache are published, for routers."""

    kv_events_endpoint: str = "tcp://127.0.0.1:5557"
    kv_events_replay_endpoint: str | None = None
    """None: the usual one for so many engines; empty: no replay."""

    kv_events_topic: str = ""
    kv_events_encoding: str = "map"
    kv_events_replay_form: str = "topic"
    kv_events_buffer_steps: int = 10_000
    kv_events_queue: int = 10_000
    kv_events_hwm: int = 100_000
    kv_events_heartbeat_s: float = 5.0
    kv_events_min_interval_s: float = 0.0
    kv_events_hash: str = "sha256_cbor"
    kv_events_hash_seed: str = "vllm-none-hash"
    kv_events_dynamo_salt: bool = False

    request_timeout_s: float = 0.0
    """How long a request may take unless it says so itself; 0 is for ever."""

    max_queue: int = 1024
    drain_timeout_s: float = 30.0
    start_timeout_s: float = 600.0
    max_restarts: int = 5
    """So many processes in a row may take the place of one that died; 0: none."""

    hang_timeout_s: float = 10.0
    """A process that makes no progress for so long is killed and replaced; 0: never."""

    step_timeout_s: float = 600.0
    """How long one step may take: far above the longest prefill of a large model on a slow machine."""

    log_level: str = "info"

    fake_step_s: float = 0.0
    """How long a step of the fake executor takes; only with executor "fake"."""

    def __post_init__(self) -> None:
        if not self.served_model_names or not all(self.served_model_names):
            raise ConfigError("--served-model-name must name at least one model, none of them empty")
        _one_of("--backend", self.backend, BACKENDS)
        _one_of("--executor", self.executor, EXECUTORS)
        _one_of("--dtype", self.dtype, DTYPES)
        _one_of("--quantization", self.quantization, QUANTIZATIONS)
        _one_of("--kv-cache-dtype", self.kv_cache_dtype, KV_CACHE_DTYPES)
        _one_of("--tool-call-parser", self.tool_call_parser, TOOL_CALL_PARSERS)
        _one_of("--reasoning-parser", self.reasoning_parser, REASONING_PARSERS)
        _one_of("--log-level", self.log_level, LOG_LEVELS)
        _one_of("--policy", self.policy, POLICIES)
        _one_of("--alignment", self.alignment, ALIGNMENTS)
        _between("--long-prefill-threshold", self.long_prefill_threshold, 0, 1 << 30)
        _between("--scheduler-delay-factor", self.scheduler_delay_factor, 0, 1000)
        _between("--num-speculative-tokens", self.num_speculative_tokens, 0, 16)
        _between("--data-parallel-size", self.data_parallel_size, 1, 32)
        _between("--ingest-procs", self.ingest_procs, 1, 64)
        _between("--output-procs", self.output_procs, 1, 64)
        _between("--request-timeout", self.request_timeout_s, 0, 1 << 30)
        _between("--port", self.port, 0, 65535)
        _between("--block-size", self.block_size, 1, 1024)
        _between("--max-num-seqs", self.max_num_seqs, 1, 65536)
        _between("--max-num-batched-tokens", self.max_num_batched_tokens, 1, 1 << 20)
        _between("--pipeline-depth", self.pipeline_depth, 1, 2)
        _between("--max-queue", self.max_queue, 1, 1 << 20)
        self._check_kv_events()
        if self.memory_fraction is not None:
            _between("--memory-fraction", self.memory_fraction, 0.01, 0.95)
        _between("--drain-timeout", self.drain_timeout_s, 0, 86400)
        _between("--start-timeout", self.start_timeout_s, 1, 86400)
        _between("--max-restarts", self.max_restarts, 0, 1 << 30)
        _between("--hang-timeout", self.hang_timeout_s, 0, 86400)
        _between("--step-timeout", self.step_timeout_s, 1, 86400)
        _between("--fake-step", self.fake_step_s, 0, 3600)
        for flag, value in (
            ("--threads", self.threads),
            ("--num-blocks", self.num_blocks),
            ("--max-model-len", self.max_model_len),
        ):
            if value is not None:
                _between(flag, value, 1, 1 << 30)
        for origin in self.allowed_origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ConfigError(f"--allowed-origins must look like https://example.org, or be *; got {origin!r}")
        if self.api_key is not None and (not self.api_key or not self.api_key.isascii()):
            raise ConfigError("--api-key must be ASCII and not empty")

    def _check_kv_events(self) -> None:
        _one_of("--kv-events-encoding", self.kv_events_encoding, KV_ENCODINGS)
        _one_of("--kv-events-replay-form", self.kv_events_replay_form, KV_REPLAY_FORMS)
        _one_of("--kv-events-hash", self.kv_events_hash, KV_HASHES)
        _between("--kv-events-buffer-steps", self.kv_events_buffer_steps, 1, 1 << 24)
        _between("--kv-events-queue", self.kv_events_queue, 1, 1 << 24)
        _between("--kv-events-hwm", self.kv_events_hwm, 1, 1 << 30)
        _between("--kv-events-heartbeat", self.kv_events_heartbeat_s, 0, 3600)
        _between("--kv-events-min-interval", self.kv_events_min_interval_s, 0, 3600)
        if not self.kv_events:
            return
        if not self.prefix_cache:
            raise ConfigError("--kv-events tells of the prefix cache, which --no-prefix-cache switches off")
        flags = "--kv-events-endpoint", "--kv-events-replay-endpoint"
        check_endpoint(flags[0], self.kv_events_endpoint)
        if self.kv_replay_endpoint:
            check_endpoint(flags[1], self.kv_replay_endpoint)
            ranks = self.data_parallel_size
            check_apart(flags[0], self.kv_events_endpoint, flags[1], self.kv_replay_endpoint, ranks)

    @property
    def kv_replay_endpoint(self) -> str:
        """Where rank 0 replays KV events; empty: nowhere."""
        if self.kv_events_replay_endpoint is not None:
            return self.kv_events_replay_endpoint
        return f"tcp://127.0.0.1:{5558 if self.data_parallel_size == 1 else 5657}"

    @classmethod
    def of_fields(cls, fields: dict[str, typing.Any]) -> Config:
        """The configuration whose fields went through JSON."""
        return cls(**_with_tuples(cls, fields))

    @property
    def aligned(self) -> bool:
        """Whether there are engines that agree on when to prefill."""
        return self.alignment != "off" and self.data_parallel_size > 1

    def threads_of_engine(self, cores: int) -> int:
        """Threads that compute in each engine, on a machine with so many cores to use."""
        return self.threads or max(1, cores // self.data_parallel_size)


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{flag} must be one of {', '.join(allowed)}; got {value!r}")


def _between(flag: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{flag} must be between {low:g} and {high:g}; got {value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What one process is told when it starts: who it is, whom it talks to, and the configuration.

    `sends_to` and `hears_from` are names of processes; `board` lists all processes with a row on the
    board, in the order of the rows. `owner` marks the shared memory of this server.
    `life` is 0 for the first process of this name, and one more for each that takes the place of one that died.
    """

    name: str
    role: str
    index: int
    supervisor_pid: int
    socket_folder: str
    owner: str
    board: tuple[str, ...]
    sends_to: tuple[str, ...]
    hears_from: tuple[str, ...]
    config: Config
    life: int = 0

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Assignment:
        fields = json.loads(path.read_text())
        fields["config"] = Config.of_fields(fields["config"])
        return cls(**_with_tuples(cls, fields))


def _with_tuples(cls: type, fields: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """JSON has no tuples: turn the lists of fields that are declared as tuples back."""
    hints = typing.get_type_hints(cls)
    return {
        name: tuple(value) if isinstance(value, list) and _is_tuple(hints[name]) else value
        for name, value in fields.items()
    }


def _is_tuple(hint: object) -> bool:
    if isinstance(hint, types.UnionType):
        return any(map(_is_tuple, typing.get_args(hint)))
    return typing.get_origin(hint) is tuple
