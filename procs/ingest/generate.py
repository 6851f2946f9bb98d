"""The two routes that generate: from a request to its choices, and from their text to the answer."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ...common.errors import InvalidRequest
from ...common.types import SamplingParams
from ...ipc.messages import CacheKeys
from ...ipc.ring import Tokens
from .answers import Head, first_choices
from .body import Body, read_object
from .choices import EncodedPrompt, add_choices
from .errors import Refusal, as_refusal
from .fields import Route
from .framing import Framing, read_framing
from .health import ModelLimits
from .live import LiveRequest
from .parameters import Parameters, read_parameters
from .prompts import fitting, read_prompts
from .service import Service
from .stream import send_stream, send_whole
from .tools.request import Tools

log = logging.getLogger("fourstroke")

_PROMPT_END_TOKENS = 16
"""Enough to see whether the chat template has begun a thought."""

_PREFIXES: dict[Route, str] = {"completions": "cmpl", "chat": "chatcmpl"}


class Generate:
    """One of the two routes, an ASGI application."""

    def __init__(self, service: Service, route: Route) -> None:
        self._service = service
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._service.row.add("http_requests")
        try:
            request, parameters, head = await self._accept(Request(scope, receive))
            await self._answer(request, parameters, head, receive, send)
        except (Refusal, InvalidRequest) as error:
            refusal = as_refusal(error)
            if refusal.status < 500:
                self._service.row.add("http_refused")
            log.info("refused with %d: %.200s", refusal.status, refusal)
            raise

    async def _accept(self, http: Request) -> tuple[LiveRequest, Parameters, Head]:
        """Check a request and hand it to the engine."""
        service = self._service
        body = await read_object(http)
        limits = service.limits()
        model = service.model_name(body)
        head = Head(service.siblings.new_id(_PREFIXES[self._route]), self._route, model, int(time.time()))
        parameters = read_parameters(body, self._route, limits.vocab_size)
        service.dialect.check(parameters.tools)
        request = await self._admit(body, parameters, limits, head.id)
        return request, parameters, head

    async def _admit(self, body: Body, parameters: Parameters, limits: ModelLimits, request_id: str) -> LiveRequest:
        table, params = self._service.table, parameters.sampling
        trusted = self._service.config.trust_request_chat_template
        prompts, framing = self._prompts(body), read_framing(body, self._route == "chat", trusted)
        body.check_numbers()
        count = len(prompts) * params.n
        if count > table.capacity:
            raise InvalidRequest(f"a request may have at most {table.capacity} choices; this one has {count}", "n")
        request = self._live(request_id, params)
        table.reserve(count)
        try:
            encoded = []
            for prompt in prompts:
                tokens = await self._encode(prompt, limits, framing, parameters.tools)
                encoded.append(EncodedPrompt(tokens, await self._digests(tokens, request.keys)))
                if parameters.echo:
                    request.echoes.append(await self._service.prompts.shown(prompt))
                await asyncio.sleep(0)  # streams go first: a thousand short prompts take a second
            grammar = await self._grammar(request, parameters, encoded[0].tokens)
            add_choices(request, encoded, params, table, self._longest(limits), grammar)
            table.open(request)
        finally:
            table.release(count)
        return request

    async def _grammar(self, request: LiveRequest, parameters: Parameters, prompt: Tokens) -> str:
        """The grammar that the texts of a request must obey; how they are to be read becomes known on the way."""
        structure = parameters.structure
        if self._route == "chat":
            dialect = self._service.dialect
            end = await self._service.prompts.text_of(prompt[-_PROMPT_END_TOKENS:].tolist())
            request.speech = dialect.speech(parameters.tools, end)
            structure = dialect.structure(structure, parameters.tools, request.speech)
        return await self._service.grammars.text(structure)

    def _live(self, request_id: str, params: SamplingParams) -> LiveRequest:
        """A request without choices; its time begins to run."""
        timeout_s = params.timeout or self._service.config.request_timeout_s
        return LiveRequest(
            request_id,
            params.stop,
            params.include_stop_str_in_output,
            params.skip_special_tokens,
            keys=CacheKeys(salt=params.cache_salt or ""),
            priority=params.priority,
            deadline_s=time.monotonic() + timeout_s if timeout_s else math.inf,
        )

    def _prompts(self, body: Body) -> list[Any]:
        if self._route == "chat":
            return [body.get("messages")]
        return read_prompts(body.get("prompt"))

    async def _encode(self, prompt: Any, limits: ModelLimits, framing: Framing, tools: Tools) -> Tokens:
        prompts = self._service.prompts
        longest = self._longest(limits)
        if self._route == "chat":
            written = self._service.dialect.written
            ids = await prompts.of_messages(prompt, longest, framing, longest - 1, tools.functions, written)
            return fitting(ids, longest, "messages")
        if isinstance(prompt, list):
            return fitting(await prompts.of_ids(prompt, longest, limits.vocab_size), longest, "prompt")
        return fitting(await prompts.of_text(prompt, longest, framing, longest - 1), longest, "prompt")

    def _longest(self, limits: ModelLimits) -> int:
        """Tokens of a prompt and its output: what is longer than the ring, but for the last, cannot be handed over."""
        return min(limits.max_model_len, self._service.router.prompt_capacity + 1)

    async def _digests(self, tokens: Tokens, keys: CacheKeys) -> bytes:
        config = self._service.config
        return await self._service.prompts.digests(tokens, config.block_size, keys) if config.prefix_cache else b""

    async def _answer(
        self, request: LiveRequest, parameters: Parameters, head: Head, receive: Receive, send: Send
    ) -> None:
        watch = asyncio.create_task(self._watch(request, receive))
        began_s = time.monotonic()
        try:
            if parameters.stream:
                await send_stream(request, head, self._service.names, parameters.include_usage, send)
            else:
                await send_whole(request, head, self._service.names, send)
        finally:
            watch.cancel()
            self._service.table.close(request)
            log.info("%s: %s in %.2f s", request.id, _summary(request), time.monotonic() - began_s)

    async def _watch(self, request: LiveRequest, receive: Receive) -> None:
        """End a request as soon as its client is gone."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._service.table.abandon(request)


def _summary(request: LiveRequest) -> str:
    """One line for the log: how much, and how it ended. No word of what was said."""
    prompt = sum(len(choice.prompt) for choice in first_choices(request))
    generated = sum(len(choice.generated) for choice in request.choices) // 4
    ends = [choice.ending.finish.name.lower() if choice.ending else "cut off" for choice in request.choices]
    return f"{prompt} + {generated} tokens, {'client left' if request.gone else ', '.join(dict.fromkeys(ends))}"
