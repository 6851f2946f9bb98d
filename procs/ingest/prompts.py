"""From a request's prompt or messages to token ids, within the model's limits, and to the hashes of their blocks.

Long texts are refused by their size where that is enough, and tokenised in a worker thread otherwise (the
tokenizer lets go of the interpreter), so that no stream waits; short ones are done on the spot. All else that
grows with a prompt is done likewise: in a thread only what is a loop in Python or many short calls lets streams go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from ...common.errors import InvalidRequest, ModelError
from ...ipc.block_hash import ROOT, chain
from ...ipc.messages import CacheKeys
from ...ipc.ring import Tokens
from .errors import prompt_too_long
from .framing import CHAT, TEXT, Framing
from .literal import Separator
from .messages import Message, read_messages
from .template import BrokenTemplate, ChatTemplate
from .tokenizer import ModelTokenizer, TooManyTokens
from .tools.format import CallFormat
from .tools.hermes import HERMES
from .tools.request import Function
from .tools.wording import in_words
from .values import is_small, to_json

Prompt = str | list[int]

INLINE_CHARS = 4096
"""A text of so many characters takes about 1 ms; waking a thread for less costs more than it saves."""

MEMBER_CHARS = 25
"""What a member of a message costs beyond its text, in the template above all: as much as so many characters (6 us)."""

INLINE_IDS = 4096
"""So many ids are checked, or become text, in some 0.5 ms."""

INLINE_HASHED_TOKENS = 4096
"""So many tokens are hashed in 0.3 ms in blocks of 16, and in a few ms in blocks of 1."""

_PIECE_IDS = 1 << 14
_WORKERS = 2
_OWN_TEMPLATES = 16
"""So many templates of requests are kept compiled: one of 4,000 characters takes 20 ms."""

_T = TypeVar("_T")


class Prompts:
    """Makes token ids of prompts. `max_model_len` is given with each call: it is known only once the executor is."""

    def __init__(self, tokenizer: ModelTokenizer, root: bytes = ROOT) -> None:
        """`root` is the hash before that of the first block of each prompt."""
        self._tokenizer = tokenizer
        self._root = root
        self._separator = Separator(tokenizer.controls)
        source = tokenizer.chat_template
        self._template = None if source is None else self._compiled(source)
        self._own_template = lru_cache(_OWN_TEMPLATES)(self._compiled_for_request)
        self._workers = ThreadPoolExecutor(_WORKERS, "tokenise")

    @property
    def tokenizer(self) -> ModelTokenizer:
        return self._tokenizer

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _compiled(self, source: str) -> ChatTemplate:
        try:
            return ChatTemplate(source, self._tokenizer.special_tokens)
        except BrokenTemplate as error:
            raise ModelError(f"the model's chat template is broken: {error}") from None

    def _compiled_for_request(self, source: str) -> ChatTemplate:
        try:
            return ChatTemplate(source, self._tokenizer.special_tokens)
        except BrokenTemplate as error:
            raise InvalidRequest(f"chat_template is broken: {error}", "chat_template") from None

    async def of_text(
        self, text: str, max_model_len: int, framing: Framing = TEXT, most: int | None = None
    ) -> list[int]:
        """The ids of a completion's prompt.

        Raises Refusal if the text is far too long, and if it has more than `most` ids.
        """
        self._check_size(len(text), max_model_len, "prompt")
        try:
            return await self._run(
                len(text) <= INLINE_CHARS, lambda: self._tokenizer.encode_prompt(text, framing.bos, most)
            )
        except TooManyTokens as error:
            raise prompt_too_long(str(error.count), max_model_len, "prompt") from None

    async def of_ids(self, ids: list[Any], max_model_len: int, vocab_size: int) -> list[int]:
        """The ids that a client sent, checked. Raises InvalidRequest, or Refusal if there are too many."""
        count = len(ids)
        if count >= max_model_len:
            await self._run(count <= INLINE_IDS, lambda: _empty(ids))
            raise prompt_too_long(str(count), max_model_len, "prompt")
        return await self._run(count <= INLINE_IDS, lambda: check_ids(ids, vocab_size, "prompt"))

    async def of_messages(
        self,
        value: Any,
        max_model_len: int,
        framing: Framing = CHAT,
        most: int | None = None,
        functions: Sequence[Function] = (),
        form: CallFormat = HERMES,
    ) -> list[int]:
        """The ids of a conversation, up to where the assistant speaks. Raises InvalidRequest or Refusal.

        A template that takes no tools has them in words, with calls of this form.
        """
        template = self._template
        if (own := framing.template) is not None:
            template = await self._run(False, lambda: self._own_template(own))
        if template is None:
            raise InvalidRequest("this model has no chat template; use /v1/completions", "messages")
        if isinstance(value, list) and len(value) >= max_model_len:
            raise prompt_too_long(f"at least {len(value)}", max_model_len, "messages")
        tools = [function.for_template() for function in functions]
        inline = is_small([value, tools, framing.variables], INLINE_CHARS, MEMBER_CHARS)

        def read() -> tuple[list[Message], list[Any]]:
            messages = read_messages(value)
            return (messages, tools) if template.takes_tools else (in_words(messages, functions, form), [])

        messages, told = await self._run(inline, read)
        self._check_size(sum(len(message["content"]) for message in messages), max_model_len, "messages")
        try:
            return await self._run(inline, lambda: self._encode_messages(template, messages, told, framing, most))
        except TooManyTokens as error:
            raise prompt_too_long(f"at least {error.count}", max_model_len, "messages") from None

    async def digests(self, tokens: Tokens, block_size: int, keys: CacheKeys) -> bytes:
        """The hashes of a prompt's full blocks, 32 bytes each (ipc/block_hash.py)."""
        return await self._run(
            len(tokens) <= INLINE_HASHED_TOKENS, lambda: chain(tokens, block_size, keys, (), self._root)
        )

    async def shown(self, prompt: Prompt) -> str:
        """A prompt as text: what was sent, or the text of the ids that were."""
        if isinstance(prompt, str):
            return prompt
        return await self._run(len(prompt) <= INLINE_IDS, lambda: self._tokenizer.decode(prompt))

    async def text_of(self, value: Any) -> str:
        """The text of a list of token ids. Raises InvalidRequest."""
        return await self._of_listed(value, lambda: self._decoded(value))

    async def text_as_json(self, value: Any) -> str:
        """The same as a string in JSON."""
        return await self._of_listed(value, lambda: to_json(self._decoded(value)))

    async def _of_listed(self, value: Any, work: Callable[[], str]) -> str:
        return await self._run(not isinstance(value, list) or len(value) <= INLINE_IDS, work)

    def _decoded(self, value: Any) -> str:
        return self._tokenizer.decode(check_ids(value, self._tokenizer.vocab_size, "tokens"))

    async def spellings(self, ids: list[int]) -> str:
        """The spellings of token ids, as a list in JSON."""
        return await self._run(len(ids) <= INLINE_IDS, lambda: to_json(self._tokenizer.spellings(ids)))

    async def listed(self, ids: list[int]) -> str:
        """Token ids as a list in JSON."""
        return await self._run(len(ids) <= INLINE_IDS, lambda: _listed(ids))

    def _encode_messages(
        self,
        template: ChatTemplate,
        messages: Sequence[Message],
        tools: Sequence[Any],
        framing: Framing,
        most: int | None,
    ) -> list[int]:
        messages, tools, mark = self._separator.mark(messages, tools)
        prompt = template.render(messages, framing.opens_answer, tools, framing.variables)
        if framing.continues:
            prompt = _left_open(prompt, messages[-1]["content"])
        ids: list[int] = []
        for part in self._separator.cut(prompt, mark):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._tokenizer.encode_text(part, first=not ids, most=most)
            if most is not None and len(ids) > most:
                raise TooManyTokens(len(ids))
        return self._tokenizer.encode_prompt("", framing.bos) + ids

    def _check_size(self, chars: int, max_model_len: int, param: str) -> None:
        """Refuse a text that its size alone shows to be too long; a character has at least one byte."""
        most = self._tokenizer.most_bytes(max_model_len)
        if chars > most:
            raise prompt_too_long(f"at least {chars * max_model_len // most}", max_model_len, param)

    async def _run(self, inline: bool, work: Callable[[], _T]) -> _T:
        if inline:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)


def _left_open(prompt: str, last: str) -> str:
    """A rendered conversation up to the end of its last message, which the template may have trimmed."""
    for text in (last, last.rstrip(), last.strip()):
        if text.strip() and (start := prompt.rfind(text)) >= 0:
            return prompt[: start + len(text)]
    raise InvalidRequest("the chat template does not show the last message, so it cannot be continued", "messages")


def read_prompts(value: Any) -> list[Prompt]:
    """The prompts in a `prompt`: a string, strings, ids, or lists of ids, which are not looked at yet.

    Raises InvalidRequest.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise InvalidRequest("prompt must be a string, a list of strings, token ids or a list of those", "prompt")
    if type(value[0]) in (str, list) and set(map(type, value)) == {type(value[0])}:
        return list(value)
    return [value]


def check_ids(value: Any, vocab_size: int, param: str) -> list[int]:
    """A list of token ids that exist. Raises InvalidRequest."""
    if not isinstance(value, list):
        raise InvalidRequest(f"{param} must be a list of token ids", param)
    for start in range(0, len(value), _PIECE_IDS):
        piece = value[start : start + _PIECE_IDS]
        if set(map(type, piece)) - {int}:
            raise InvalidRequest(f"{param} must hold token ids, or values of one other kind that it may hold", param)
        if not (min(piece) >= 0 and max(piece) < vocab_size):
            raise InvalidRequest(f"{param} holds a token id that is not in 0..{vocab_size - 1}", param)
    return value


def _empty(ids: list[Any]) -> None:
    """Forget ids piece by piece: to free four million at once takes 80 ms, in which no other thread runs."""
    while ids:
        del ids[-_PIECE_IDS:]


def _listed(ids: list[int]) -> str:
    pieces = (ids[start : start + _PIECE_IDS] for start in range(0, len(ids), _PIECE_IDS))
    return "[" + ",".join([",".join(map(str, piece)) for piece in pieces]) + "]"


def fitting(ids: list[int], max_model_len: int, param: str) -> Tokens:
    """The ids as an array. Raises InvalidRequest if there are none, Refusal if no token has room after them."""
    if not ids:
        raise InvalidRequest(f"{param} is empty: it has no token", param)
    if len(ids) >= max_model_len:
        raise prompt_too_long(str(len(ids)), max_model_len, param)
    return np.array(ids, np.int32)
