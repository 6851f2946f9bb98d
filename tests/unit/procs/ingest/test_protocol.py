"""Connections, on real sockets: who has left and who only stopped sending, and bytes that are no request."""

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from fourstroke.common.types import Finish
from fourstroke.procs.ingest import protocol
from fourstroke.procs.ingest.protocol import MAX_HEAD_BYTES, MAX_OVERHEAD_BYTES

from .surroundings import COMPLETIONS, Surroundings

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
HIGH_WATER_BYTES = 1 << 16
"""At so many unsent bytes asyncio and uvloop tell the protocol to pause."""

Test = Callable[[int], Coroutine[Any, Any, None]]


def serve(around: Surroundings, test: Test) -> None:
    """Run a test, which is given the server's port."""

    async def run() -> None:
        async with around.served() as port:
            await asyncio.wait_for(test(port), 30)

    uvloop.run(run())


def request(streamed: bool = False, connection: str = "close", **fields: Any) -> bytes:
    """A whole request, head and body."""
    body = json.dumps({"prompt": "Hi", "max_tokens": 3, "stream": streamed, **fields}).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def raw(port: int, data: bytes) -> bytes:
    """Everything that comes back for these bytes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


@STREAMED
@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_client_that_closes_its_sending_side(around: Surroundings, streamed: bool, connection: str) -> None:
    """A client that sends no more but still reads gets its whole answer, however late, and then the end."""
    around.engine.by_hand = True

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(streamed, connection))
        writer.write_eof()
        await around.engine.until(1, around.engine.rids)
        rid = around.engine.rids[0]
        begun = await reader.readexactly(2)  # two probes: the client was found to be there
        around.engine.say(rid, "text")
        if streamed:
            begun += await reader.readuntil(b":\n\n")
        around.engine.end(rid, Finish.LENGTH)
        answer = begun + await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.count(b"text") >= 1 and b'"length"' in answer
        assert not around.engine.aborts

    serve(around, test)


@STREAMED
@pytest.mark.parametrize("begun", [False, True], ids=["before-text", "after-text"])
@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
def test_client_that_leaves(around: Surroundings, streamed: bool, begun: bool, reset: bool) -> None:
    """A client that closes its connection ends its request, wherever it was, without a further token."""
    around.engine.by_hand = True

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(streamed))
        await around.engine.until(1, around.engine.rids)
        rid = around.engine.rids[0]
        if begun:
            around.engine.say(rid, "text")
        if begun and streamed:
            await reader.readuntil(b"\n\n")
        if reset:
            writer.transport.abort()
        else:
            writer.close()
        await around.engine.until(1, around.engine.aborts)
        assert [(abort.rid, abort.reason) for abort in around.engine.aborts] == [(rid, Finish.ABORT)]
        assert len(around.service.table) == 0

    serve(around, test)


@pytest.mark.parametrize("half_closed", [False, True], ids=["open", "half-closed"])
def test_client_that_does_not_read(around: Surroundings, half_closed: bool) -> None:
    """What is kept for a client that never reads is its text, once: the connection takes no more than its buffer."""
    around.engine.by_hand = True
    delta = "x" * 1000

    async def test(port: int) -> None:
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        client.send(request(streamed=True))
        if half_closed:
            client.shutdown(socket.SHUT_WR)
        await around.engine.until(1, around.engine.rids)
        rid = around.engine.rids[0]
        (connection,), (choice,) = around.connections, around.service.table._choices.values()
        while not connection.flow.write_paused:  # the kernel takes some megabytes
            around.engine.say(rid, delta)
            await asyncio.sleep(0)
        for _ in range(1000):
            around.engine.say(rid, delta)
            if half_closed:
                connection._probe()
            await asyncio.sleep(0)
        assert connection.transport.get_write_buffer_size() <= HIGH_WATER_BYTES + 2 * len(delta)
        sent, kept = choice.sent_chars, len(choice.mail)
        assert kept >= 999 * len(delta)  # one piece was on its way
        around.engine.end(rid, Finish.LENGTH)
        reader, writer = await asyncio.open_connection(sock=client)
        assert (await reader.read()).count(b"x") >= sent + kept
        writer.close()

    serve(around, test)


def test_client_that_leaves_in_the_middle_of_its_request(around: Surroundings) -> None:
    """Half a request is nothing, whether the client closes one side or both."""

    async def test(port: int) -> None:
        for half in (b"POST / HT", request()[:-5]):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(half)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert not around.engine.submits

    serve(around, test)


def test_pipelined_requests(around: Surroundings) -> None:
    """Requests sent one after the other without waiting are answered in order, half-closed too."""

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(connection="keep-alive") + request(connection="keep-alive", max_tokens=1))
        writer.write_eof()
        answer = await reader.read()
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert answer.index(b"w0 w1 w2 ") < answer.rindex(b'"w0 "')
        writer.close()

    serve(around, test)


def test_pipelining_client_that_leaves(around: Surroundings) -> None:
    """A client that leaves ends the request that runs, also when it has sent another one."""
    around.engine.by_hand = True

    async def test(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(connection="keep-alive") * 2)
        await around.engine.until(1, around.engine.rids)
        writer.transport.abort()
        await around.engine.until(1, around.engine.aborts)

    serve(around, test)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01",
    ],
    ids=["nonsense", "version", "not-ascii", "connect", "tls"],
)
def test_bytes_that_are_no_request(around: Surroundings, data: bytes) -> None:
    """What is no HTTP gets an error object like everything else that is wrong."""

    async def test(port: int) -> None:
        head, body = (await raw(port, data)).split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 40")
        assert json.loads(body)["error"]["type"] in ("invalid_request_error", "not_found_error")

    serve(around, test)


@pytest.mark.parametrize("piece", [b"a", b"x: y\r\n"], ids=["one-long-header", "many-headers"])
def test_endless_head(around: Surroundings, piece: bytes) -> None:
    """A head that does not end is refused, not kept in memory."""

    async def test(port: int) -> None:
        head, body = (await raw(port, b"GET /live HTTP/1.1\r\nx: " + piece * (MAX_HEAD_BYTES // len(piece)))).split(
            b"\r\n\r\n"
        )
        assert head.startswith(b"HTTP/1.1 431")
        assert "larger" in json.loads(body)["error"]["message"]

    serve(around, test)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_large_body_is_refused_while_it_is_sent(around: Surroundings, chunked: bool) -> None:
    """The refusal of a large body reaches a client that is still sending, and the connection can go on."""

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        how = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {33 << 20}"
        writer.write(f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\n{how}\r\n\r\n".encode())
        piece = b" " * (1 << 20)
        for _ in range(33):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()
        if chunked:
            writer.write(b"0\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413")
        await reader.readuntil(b"}}")
        writer.write(request())
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        await reader.read()
        writer.close()

    serve(around, test)


def test_endless_trailers(around: Surroundings) -> None:
    """Trailers are no place to store things: a connection that sends them without end is closed."""

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"prompt": "Hi", "max_tokens": 3}'
        writer.write(f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        writer.write(b"%x\r\n%s\r\n0\r\n" % (len(body), body))
        trailers = b"X: y\r\n" * 10_000
        with pytest.raises(ConnectionError):
            for _ in range(20 * MAX_OVERHEAD_BYTES // len(trailers)):
                writer.write(trailers)
                await writer.drain()
            await reader.read()
            raise AssertionError("the server took all trailers")
        writer.transport.abort()
        assert (await raw(port, request())).startswith(b"HTTP/1.1 200")

    serve(around, test)


def test_body_in_the_smallest_chunks(around: Surroundings) -> None:
    """A body that comes byte by byte has more overhead than content, and is read."""

    async def test(port: int) -> None:
        body = json.dumps({"prompt": "Hi", "max_tokens": 3, "user": "x" * 100_000}).encode()
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        assert (await raw(port, head.encode() + chunks + b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")

    serve(around, test)


def test_more_connections_than_files(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit a connection gets a 503 and is closed; those that are open go on."""
    monkeypatch.setattr(protocol, "connection_limit", lambda: 2)

    async def test(port: int) -> None:
        first = await asyncio.open_connection("127.0.0.1", port)
        second = await asyncio.open_connection("127.0.0.1", port)
        for _, writer in (first, second):
            writer.write(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        for reader, _ in (first, second):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert (await raw(port, b"")).startswith(b"HTTP/1.1 503")
        second[1].close()
        await second[1].wait_closed()
        first[1].write(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200" in await first[0].readuntil(b"HTTP/1.1 200")

    serve(around, test)
