"""Sending a stream to a client that reads slowly, or not at all any more."""

import asyncio
import json
from typing import Any

import numpy as np
from starlette.types import Message

from fourstroke.common.types import Finish
from fourstroke.ipc.messages import Limits, Sampling
from fourstroke.procs.ingest.answers import Head
from fourstroke.procs.ingest.live import Choice, LiveRequest
from fourstroke.procs.ingest.stream import send_stream
from fourstroke.procs.ingest.token_names import TokenNames

from .surroundings import ending

HEAD = Head("r", "completions", "m", 0)


class Connection:
    """A client's connection that takes what is sent only while it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.pieces: list[bytes] = []

    async def send(self, message: Message) -> None:
        await self.open.wait()
        if message["type"] == "http.response.body":
            self.pieces.append(message["body"])

    def chunks(self) -> list[Any]:
        blocks = b"".join(self.pieces).decode().split("\n\n")
        return [json.loads(block.removeprefix("data: ")) for block in blocks if block.startswith("data: {")]


def live() -> tuple[LiveRequest, Choice]:
    request = LiveRequest("r", (), False, True)
    choice = Choice(request, 1, 0, 0, 0, np.zeros(3, np.int32), b"", Sampling(0, 0, 1, 0), Limits(9, 0, False, ()))
    request.choices.append(choice)
    return request, choice


def test_slow_client(names: TokenNames) -> None:
    """What comes while a client does not read is sent as one chunk when it does: memory holds the text, not events."""

    async def run() -> Connection:
        connection, (request, choice) = Connection(), live()
        sending = asyncio.create_task(send_stream(request, HEAD, names, False, connection.send))
        words = [f"{number} " for number in range(1000)]
        for word in words:
            request.post(choice, word)
            await asyncio.sleep(0)
        request.post(choice, "", ending(1, Finish.LENGTH))
        connection.open.set()
        await sending
        assert "".join(chunk["choices"][0]["text"] for chunk in connection.chunks()) == "".join(words)
        return connection

    connection = asyncio.run(run())
    assert len(connection.pieces) == 2  # the word that was on its way, and all the rest with the end
    assert connection.pieces[-1].endswith(b"data: [DONE]\n\n")


def test_client_that_is_gone(names: TokenNames) -> None:
    """When the client leaves, sending ends without an end of the stream."""

    async def run() -> Connection:
        connection, (request, choice) = Connection(), live()
        connection.open.set()
        sending = asyncio.create_task(send_stream(request, HEAD, names, False, connection.send))
        request.post(choice, "text")
        await asyncio.sleep(0)
        request.leave()
        await asyncio.wait_for(sending, 10)
        return connection

    assert b"[DONE]" not in b"".join(asyncio.run(run()).pieces)
