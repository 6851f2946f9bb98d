"""From the command line of `fourstroke bench` to the part that is meant."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ...common.config import Config
from .accuracy import bench_accuracy
from .compare import bench_compare
from .engines import read_engines
from .executor import Work, bench_executor
from .http_path import Outputs, bench_http
from .load import Load
from .options import CONCURRENCIES, LEAST_REQUESTS, REQUESTS_PER_STREAM
from .prompts import Prompts, read_lines
from .scheduler import bench_scheduler
from .serve import Files, Server, bench_serve
from .served import bench_served
from .summary import Limits

_INPUT_WORDS = 128
_REQUESTS_OF_A_RATE = 64
_ROUNDS_OF_HTTP = 2


def bench(
    namespace: argparse.Namespace, api_key: str | None, flags: list[str], configure: Callable[[list[str]], Config]
) -> None:
    """Run a part. `flags` are those for a server, of which `configure` makes its configuration."""
    match namespace.part:
        case "serve":
            limits = Limits(namespace.ttft_limit, namespace.itl_limit)
            server = Server(namespace.url, flags, namespace.model, namespace.name, api_key)
            files = Files(namespace.json, namespace.plot, namespace.others)
            bench_serve(server, loads_of(namespace), limits, namespace.clients, files)
        case "compare":
            engines = read_engines(namespace.engines, namespace.only)
            files = Files(namespace.json, namespace.plot)
            bench_compare(engines, loads_of(namespace), namespace.repetitions, namespace.clients, files)
        case "executor":
            tokens = namespace.input_tokens, namespace.output_tokens, namespace.prefill
            bench_executor(configure(flags), Work(namespace.rows, *tokens, namespace.repetitions), namespace.json)
        case "served":
            loads = [closed_loop(namespace, streams) for streams in namespace.concurrency]
            bench_served(configure(flags), flags, loads, namespace.repetitions, namespace.clients, namespace.json)
        case "http":
            load = closed_loop(namespace, namespace.streams, _ROUNDS_OF_HTTP * namespace.streams)
            outputs = Outputs(namespace.json, namespace.flame)
            bench_http(load, namespace.step, namespace.clients, flags, outputs)
        case "accuracy":
            bench_accuracy(configure(flags), namespace.tokens, namespace.json)
        case "scheduler":
            bench_scheduler(namespace.cases, namespace.steps, namespace.slack, namespace.json)


def loads_of(namespace: argparse.Namespace) -> list[Load]:
    """The loads that are asked for: closed loops first, then open ones."""
    prompts = _prompts(namespace.input_words, namespace.input_tokens, namespace.prompts)
    concurrencies = namespace.concurrency or ([] if namespace.rate else CONCURRENCIES)
    asked = [(streams, 0.0) for streams in concurrencies] + [(0, rate) for rate in namespace.rate]
    return [
        Load(
            requests=namespace.requests or _requests(streams),
            output_tokens=namespace.output_tokens,
            prompts=prompts,
            concurrency=streams,
            rate=rate,
            seed=str(namespace.seed),
        )
        for streams, rate in asked
    ]


def closed_loop(namespace: argparse.Namespace, streams: int, requests: int | None = None) -> Load:
    """So many streams of prompts of random token ids; `requests` is how many there are if the user does not say."""
    return Load(
        requests=namespace.requests or requests or _requests(streams),
        output_tokens=namespace.output_tokens,
        prompts=Prompts(tokens=namespace.input_tokens),
        concurrency=streams,
        seed=str(namespace.seed),
    )


def _requests(streams: int) -> int:
    return max(LEAST_REQUESTS, REQUESTS_PER_STREAM * streams) if streams else _REQUESTS_OF_A_RATE


def _prompts(words: int | None, tokens: int | None, file: Path | None) -> Prompts:
    if file is not None:
        return Prompts(lines=read_lines(file))
    return Prompts(tokens=tokens) if tokens else Prompts(words=words or _INPUT_WORDS)
