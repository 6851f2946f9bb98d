"""The offline API: batches of prompts in, completions out, over the same processes that serve HTTP.

An LLM starts a private server and sends it requests over a Unix socket. This process imports no torch
and loads no model; it works from notebooks and threads, and the server ends with it.
"""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..common.config import Config
from ..common.errors import InvalidRequest, ServerError
from ..common.rules import MAX_TOKEN_ID
from ..common.types import SamplingParams
from .client import Client, request_fields
from .completions import Completion, Messages, Prompt, read_completion
from .model_source import resolve_model
from .options import ENGINE, as_flags
from .private_server import PrivateServer

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_MAX_QUEUE = 1 << 20
_DEATH_TIMEOUT_S = 15.0
"""A server whose process died takes up to this long to stop the others and to say why."""


class LLM:
    """A model to generate with.

        with LLM() as llm:
            for completion in llm.generate(["One, two,", "Hello"], SamplingParams(max_tokens=16)):
                print(completion.text)

    `model` is a folder, a GGUF file or a name on the hub; None is a small default model. Options are the
    fields of Config that say how it runs, such as `max_num_seqs`. Raises ModelError, ConfigError or ServerError
    if it cannot start.
    """

    def __init__(self, model: str | None = None, **options: Any) -> None:
        flags = as_flags(options, ENGINE)
        path, self.model = resolve_model(model)
        self._in_flight = math.prod(
            options.get(field) or _default(field) for field in ("max_num_seqs", "data_parallel_size")
        )
        self._server = PrivateServer(
            [f"--model={path}", f"--served-model-name={self.model}", f"--max-queue={_MAX_QUEUE}", *flags]
        )
        # At the end of the interpreter, or when nobody holds this object any more: close() without a __del__.
        self._finalizer = weakref.finalize(self, self._server.close)

    @property
    def url(self) -> str:
        """Where the server listens."""
        return self._server.url

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        progress: bool = True,
    ) -> list[Completion]:
        """Continue each prompt, a text or token ids; the completions are in the order of the prompts.

        `params` are for all prompts, or one for each. Raises InvalidRequest if a prompt cannot be served
        and ServerError if the server dies; other prompts of the call are given up then.
        """
        asked: list[Prompt] = _prompts(prompts)
        bodies = [
            {"prompt": prompt, "max_tokens": MAX_TOKEN_ID, **request_fields(one)}
            for prompt, one in zip(asked, _params(params, len(asked)), strict=True)
        ]
        return self._ask(_COMPLETIONS, asked, bodies, progress)

    def chat(
        self,
        conversations: Messages | Sequence[Messages],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        progress: bool = True,
    ) -> list[Completion]:
        """Answer each conversation, a list of {"role": ..., "content": ...}; otherwise as `generate`."""
        asked: list[Prompt] = _conversations(conversations)
        bodies = [
            {"messages": messages, **request_fields(one, chat=True)}
            for messages, one in zip(asked, _params(params, len(asked)), strict=True)
        ]
        return self._ask(_CHAT, asked, bodies, progress)

    def reset_prefix_cache(self, force: bool = False) -> None:
        """Forget all prefixes, as after new weights. Raises ServerError while requests run; `force` waits for them."""
        self._client().post("/reset_prefix_cache", {"force": force})

    def close(self) -> None:
        """Stop the server. May be called again."""
        self._finalizer()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, path: str, asked: list[Prompt], bodies: list[dict[str, Any]], progress: bool) -> list[Completion]:
        client = self._client()
        try:
            answers = _post_all(client, path, bodies, self._in_flight, progress)
        except ServerError as error:
            raise self._explained(error) from None
        return [read_completion(prompt, answer) for prompt, answer in zip(asked, answers, strict=True)]

    def _client(self) -> Client:
        if not self._finalizer.alive:
            raise ServerError("this LLM was closed")
        return Client(self.url)

    def _explained(self, error: ServerError) -> ServerError:
        """The same error, or the death of the server that is behind it."""
        try:
            Client(self.url).get("/health")
        except ServerError:  # it has died, or is stopping because one of its processes has
            cause = self._server.cause_of_death(_DEATH_TIMEOUT_S)
            return error if cause is None else ServerError(f"the server died: {cause}")
        return error


def _default(field: str) -> Any:
    return next(known.default for known in dataclasses.fields(Config) if known.name == field)


def _post_all(client: Client, path: str, bodies: list[dict[str, Any]], in_flight: int, progress: bool) -> list[Any]:
    """The answers to all bodies, in order. The first that fails ends all others and is raised."""
    with ThreadPoolExecutor(max(1, min(in_flight, len(bodies)))) as pool, _progress(len(bodies), progress) as advance:
        futures = [pool.submit(client.post, path, body) for body in bodies]
        try:
            for future in as_completed(futures):
                future.result()
                advance()
        finally:
            for future in futures:
                future.cancel()
            client.close()
        return [future.result() for future in futures]


@contextmanager
def _progress(total: int, shown: bool) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, *times, console=Console(stderr=True), disable=not shown) as bar:
        task = bar.add_task("generating", total=total)
        yield lambda: bar.advance(task)


def _prompts(prompts: str | Sequence[Any]) -> list[Any]:
    """A list of prompts; a text, or a list of ids, is one prompt."""
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]
    return [prompt if isinstance(prompt, str) else list(prompt) for prompt in prompts]


def _conversations(conversations: Sequence[Any]) -> list[Any]:
    if conversations and isinstance(conversations[0], dict):
        return [list(conversations)]
    return [list(messages) for messages in conversations]


def _params(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise InvalidRequest(f"{len(params)} params for {count} prompts", "params")
    return list(params)
