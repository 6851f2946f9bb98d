"""The process that asks: how it reads a stream."""

from __future__ import annotations

import asyncio
import json
from unittest import mock

import pytest

from fourstroke.launch.bench.record import Record

aiohttp = pytest.importorskip("aiohttp")
client = pytest.importorskip("fourstroke.launch.bench.client")  # which imports it


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stream_in_any_pieces(size: int) -> None:
    """Wherever the network cuts a stream, also within a character or a line's end, the same is read."""
    events = [{"choices": [{"text": text, "finish_reason": None}]} for text in ("a", "é", "")]
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    lines = [json.dumps(event, ensure_ascii=False) for event in (*events, usage)]
    stream = "".join(f"data: {line}\r\n\r\n" for line in lines).encode() + b"data: [DONE]"

    async def answer() -> Record:
        content = aiohttp.StreamReader(mock.Mock(_reading_paused=False), 1 << 16, loop=asyncio.get_running_loop())
        found = client.Answer()
        reading = asyncio.create_task(found.read(content))
        for at in range(0, len(stream), size):
            content.feed_data(stream[at : at + size])
            await asyncio.sleep(0)
        content.feed_eof()
        await reading
        return found.record(0.0, 1.0)

    record = asyncio.run(answer())
    assert (record.error, len(record.chunks_s), record.input_tokens, record.output_tokens) == (None, 3, 7, 3)
