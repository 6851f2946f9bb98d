"""Engines to compare: what a TOML file says of them, and one of them as a running process.

    [[engine]]
    name = "fourstroke"
    command = "fourstroke serve --model $MODEL_GGUF --port 8400"
    url = "http://127.0.0.1:8400"

Further keys: `ready`, the path that answers 200 when the engine can serve (default /health); `model`, the name in
requests (default: the first that it lists); `env`, a table of variables; `start_timeout_s` (default 600). Without a
`command` the engine runs already. $NAME in `command` and `env` is a variable of the environment.
"""

from __future__ import annotations

import http
import http.client
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import psutil

from ...common.errors import ConfigError, ServerError
from ..child import end_in_words

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_ASK_EVERY_S = 0.1
_ANSWER_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 30.0
_SHOWN_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Engine:
    """See the module's docstring. `command` is split; its variables are not replaced yet."""

    name: str
    url: str
    command: tuple[str, ...] = ()
    ready: str = "/health"
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout_s: float = 600.0


def read_engines(path: Path, only: Sequence[str] = ()) -> list[Engine]:
    """The engines of a file, or those of them that are named. Raises ConfigError."""
    try:
        tables = tomllib.loads(path.read_text())["engine"]
        engines = [_engine(table) for table in tables]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: an engine has a name, a url, and perhaps a command and more: {error}") from None
    known = [engine.name for engine in engines]
    if unknown := [name for name in only if name not in known]:
        raise ConfigError(f"{path} has no engine {unknown[0]!r}; it has {', '.join(known)}")
    if len(set(known)) < len(known):
        raise ConfigError(f"{path} names two engines alike")
    return [engine for engine in engines if not only or engine.name in only]


def _engine(table: dict[str, Any]) -> Engine:
    command = table.get("command", "")
    words = shlex.split(command) if isinstance(command, str) else command
    parts = urlsplit(table["url"])
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"url must look like http://127.0.0.1:8000; got {table['url']!r}")
    return Engine(**{**table, "command": tuple(map(str, words))})


@contextmanager
def running(engine: Engine) -> Iterator[float | None]:
    """Start an engine, wait until it is ready, stop it in the end; the seconds until it was ready.

    None for one that runs already. Raises ConfigError if a variable is missing, ServerError if it does not get ready.
    """
    if not engine.command:
        yield None
        return
    if _answers(engine):
        raise ConfigError(f"something answers at {engine.url} before {engine.name} was started")
    env = os.environ | {name: _filled(value, engine.name) for name, value in engine.env.items()}
    command = [_filled(word, engine.name) for word in engine.command]
    with tempfile.TemporaryFile() as said:
        process = _start(command, env, said, engine.name)
        try:
            yield _await_ready(engine, process, said)
        finally:
            _stop(process)


def _filled(text: str, engine: str) -> str:
    """The text with the environment's variables in it."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in os.environ:
            raise ConfigError(f"the engine {engine} needs the variable {name} in the environment")
        return os.environ[name]

    return _VARIABLE.sub(value, text)


def _start(command: Sequence[str], env: Mapping[str, str], said: IO[bytes], name: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise ConfigError(f"cannot start {name}: {error}") from None


def _await_ready(engine: Engine, process: subprocess.Popen[bytes], said: IO[bytes]) -> float:
    begun_s = time.monotonic()
    while not _answers(engine):
        passed_s = time.monotonic() - begun_s
        if passed_s > engine.start_timeout_s:
            raise ServerError(f"{engine.name} is not ready after {passed_s:.0f} s{_last_words(said)}")
        try:
            status = process.wait(_ASK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue
        raise ServerError(f"{engine.name} {end_in_words(status)}{_last_words(said)}")
    return time.monotonic() - begun_s


def _answers(engine: Engine) -> bool:
    """Whether the engine answers 200 on its path, whatever it says there."""
    parts = urlsplit(engine.url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", parts.path.rstrip("/") + engine.ready)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _last_words(said: IO[bytes]) -> str:
    said.seek(max(0, said.seek(0, os.SEEK_END) - _SHOWN_BYTES))
    words = said.read().decode(errors="replace").strip()
    return f"; its last words: {words}" if words else ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End an engine as asked, and then what is left of it and of all that it has started."""
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for left in family:
        if left.is_running():
            left.kill()
    psutil.wait_procs(family, _STOP_TIMEOUT_S)
