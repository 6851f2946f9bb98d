"""The `fourstroke` command: serve, generate, chat, bench, chaos, kv-events, kernels, doctor.

An error is one line, `fourstroke: error: ...`, and an exit status:

    0    done, or stopped as asked
    1    something failed: a process died too often, or did not end when asked to and was killed; a server does not
         answer, a benchmark misses a target, a check sees red
    2    the command line or a parameter is wrong
    3    refused: what is asked for cannot be done here (no such model, port taken, too little memory, too few files)
    130  interrupted by Ctrl-C;  143  by SIGTERM (a server that is up drains and exits with 0 instead)
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
from collections.abc import Sequence

import setproctitle

from .. import __version__
from ..common.config import Config
from ..common.devices import visible_devices
from ..common.errors import ConfigError, FourstrokeError, InvalidRequest, MachineUnfit, ServerError, TargetMissed
from ..common.machine import usable_cores
from ..common.types import EXIT_FAILED, EXIT_REFUSED, SamplingParams
from . import listener as listening
from .arguments import split_arguments
from .bench.options import STARTING as BENCH
from .chaos.options import STARTING as CHAOS
from .console import say
from .kernels import kernels
from .model_source import DEFAULT_NAME, kernel_folder, resolve_model
from .options import ENGINE, EXIT_USAGE, HTTP, KEY_VARIABLE, given, make_parser
from .supervisor import supervise
from .topology import build, picture

_EXIT_TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    """The console script: run the command line and exit with its status."""
    _open_standard_files()
    # So that a private server, or a half-fetched model, is cleared away before the end.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_EXIT_TERMINATED))
    sys.exit(run(sys.argv[1:]))


def _open_standard_files() -> None:
    """Where the caller has closed standard input, output or error, put nothing there: the next file must not be it."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    try:
        own, server_flags = split_arguments(arguments, BENCH + CHAOS)
        namespace = make_parser(__version__).parse_args(own)
        namespace.server_flags = server_flags
        _COMMANDS[namespace.command](namespace)
    except FourstrokeError as error:
        say("fourstroke: error: " + " ".join(str(error).split()))
        return exit_status(error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def exit_status(error: FourstrokeError) -> int:
    """The exit status that stands for an error."""
    if isinstance(error, ConfigError | InvalidRequest):
        return EXIT_USAGE
    return EXIT_FAILED if isinstance(error, ServerError | TargetMissed | MachineUnfit) else EXIT_REFUSED


def _serve(namespace: argparse.Namespace) -> None:
    setproctitle.setproctitle("fourstroke: launcher")  # takes the command line, and the key on it, out of `ps`
    config = _config(namespace)
    topology = build(config, usable_cores())
    if namespace.show_topology:
        sys.stdout.write(picture(topology) + "\n")
        return
    listening.raise_file_limit(topology.files)
    listener = listening.bind(config)  # before a model is fetched, which may take minutes
    try:
        path, name = resolve_model(namespace.model)
        names = config.served_model_names if namespace.served_model_name else (name,)
        port = config.port if listener.port is None else listener.port
        config = dataclasses.replace(config, model=str(path), served_model_names=names, port=port)
        supervise(config, topology, listener, namespace.stop_on_eof)
    finally:
        listener.close()


def _config(namespace: argparse.Namespace) -> Config:
    """The configuration, checked, with the model still under the name that the user gave it."""
    name = DEFAULT_NAME if namespace.model is None else namespace.model
    return Config(
        model=name,
        served_model_names=tuple(dict.fromkeys(namespace.served_model_name or [name])),
        api_key=_api_key(namespace),
        allowed_origins=tuple(dict.fromkeys(namespace.allowed_origins)),
        visible_devices=_visible_devices(namespace),
        kernel_folder=str(kernel_folder()),
        **given(namespace, HTTP + ENGINE),
    )


def _visible_devices(namespace: argparse.Namespace) -> tuple[str, ...] | None:
    """What the environment says of devices. Who wants the CPU need not put it in order."""
    if given(namespace, ENGINE).get("backend") == "cpu":
        return None
    return visible_devices(os.environ)


def _api_key(namespace: argparse.Namespace) -> str | None:
    if namespace.api_key is not None:
        return str(namespace.api_key)
    return os.environ.get(KEY_VARIABLE) or None


def _generate(namespace: argparse.Namespace) -> None:
    params = _sampling(namespace)
    from .llm import LLM  # here: `serve` should not wait for a progress bar's package

    with LLM(namespace.model, **given(namespace, ENGINE)) as llm:
        completions = llm.generate(namespace.prompts, params, progress=len(namespace.prompts) > 1)
    for completion in completions:
        if len(completions) > 1:
            sys.stdout.write(f"> {completion.prompt}\n")
        sys.stdout.write(completion.text + "\n")


def _chat(namespace: argparse.Namespace) -> None:
    params = _sampling(namespace)
    from .chat import Chat  # here, as above
    from .client import Client
    from .llm import LLM

    if namespace.url is not None:
        setproctitle.setproctitle("fourstroke: chat")  # the key on the command line
        Chat(Client(namespace.url, _api_key(namespace)), params, namespace.system, namespace.model).run()
        return
    with LLM(namespace.model, **given(namespace, ENGINE)) as llm:
        Chat(Client(llm.url), params, namespace.system).run()


def _bench(namespace: argparse.Namespace) -> None:
    if namespace.part == "serve":
        setproctitle.setproctitle("fourstroke: bench")  # the key on the command line
    from .bench.command import bench  # here, as above

    key = _api_key(namespace) if namespace.part == "serve" else None
    bench(namespace, key, namespace.server_flags, _config_of_flags)


def _chaos(namespace: argparse.Namespace) -> None:
    from .chaos.command import chaos  # here, as above

    chaos(namespace, namespace.server_flags, _config_of_flags)


def _config_of_flags(flags: list[str]) -> Config:
    """The configuration that `fourstroke serve` with these flags has, with its model at hand."""
    namespace = make_parser(__version__).parse_args(["serve", *flags])
    config = _config(namespace)
    path, _ = resolve_model(namespace.model)
    return dataclasses.replace(config, model=str(path))


def _kv_events(namespace: argparse.Namespace) -> None:
    from .kv_events.command import kv_events  # here, as above

    kv_events(namespace)


def _kernels(namespace: argparse.Namespace) -> None:
    kernels(namespace.action, namespace.arch, namespace.kernel)


def _doctor(namespace: argparse.Namespace) -> None:
    from .doctor.report import doctor  # here, as above

    doctor(namespace.json, namespace.timeout)


def _sampling(namespace: argparse.Namespace) -> SamplingParams:
    return SamplingParams(
        max_tokens=namespace.max_tokens,
        temperature=namespace.temperature,
        top_p=namespace.top_p,
        seed=namespace.seed,
    )


_COMMANDS = {
    "serve": _serve,
    "generate": _generate,
    "chat": _chat,
    "bench": _bench,
    "chaos": _chaos,
    "kv-events": _kv_events,
    "kernels": _kernels,
    "doctor": _doctor,
}
