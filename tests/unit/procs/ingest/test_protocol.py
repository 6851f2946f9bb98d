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
from fourstroke.procs.ingest.protocol import MAX_HEAD_BYTES, MAX_OVERHEAD_BYTES, MAX_WAITING

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


def request(
    streamed: bool = False, connection: str = "close", version: str = "1.1", more: str = "", **fields: Any
) -> bytes:
    """A whole request, head and body; `more` are further headers."""
    body = json.dumps({"prompt": "Hi", "max_tokens": 3, "stream": streamed, **fields}).encode()
    head = f"POST {COMPLETIONS} HTTP/{version}\r\nHost: x\r\nConnection: {connection}\r\n{more}"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def refusal(answer: bytes, status: int) -> str:
    """The message of an answer that must be nothing but a refusal with this status."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    assert lines[0].startswith(f"HTTP/1.1 {status} ")
    assert headers["content-type"] == "application/json" and int(headers["content-length"]) == len(body)
    assert headers["x-request-id"]
    found = json.loads(body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return str(found["message"])


def small(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let time-outs pass at once."""
    for name in names:
        monkeypatch.setattr(protocol, name, 0.01)


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
                connection._probes.send()
            await asyncio.sleep(0)
        assert connection.transport.get_write_buffer_size() <= HIGH_WATER_BYTES + 2 * len(delta)
        sent, kept = choice.read_chars, len(choice.mail)
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
        answer = await raw(port, data)
        refusal(answer, int(answer.split()[1]))
        assert answer.startswith(b"HTTP/1.1 40")

    serve(around, test)


@pytest.mark.parametrize("where", ["head", "body"])
@STREAMED
def test_garbage_behind_a_request(around: Surroundings, streamed: bool, where: str) -> None:
    """Bytes that are no request are answered after the answers that are due, and never inside one of them."""
    around.engine.by_hand = True
    garbage = b"\0garbage\r\n\r\n"
    if where == "body":
        garbage = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(streamed, "keep-alive"))
        await around.engine.until(1, around.engine.rids)
        writer.write(garbage)
        (connection,) = around.connections
        while connection._refusal is None:
            await asyncio.sleep(0)
        writer.write(garbage)
        rid = around.engine.rids[0]
        around.engine.say(rid, "text")
        around.engine.end(rid, Finish.LENGTH)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b'"length"' in answer
        before, _, after = answer.partition(b"HTTP/1.1 400")
        assert before.endswith(b"0\r\n\r\n" if streamed else b"}")
        refusal(b"HTTP/1.1 400" + after, 400)
        assert not around.engine.aborts
        writer.close()

    serve(around, test)


def test_garbage_in_a_body(around: Surroundings) -> None:
    """A request whose body turns out to be none is refused at once, and never reaches the engine."""

    async def test(port: int) -> None:
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        refusal(await raw(port, head + b'5\r\n{"a":\r\nzz\r\n'), 400)
        assert not around.engine.submits

    serve(around, test)


def test_more_requests_than_may_wait(around: Surroundings) -> None:
    """So many requests may wait on one connection; all of them are answered, and what comes after is refused."""
    around.engine.by_hand = True

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        probe = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"
        writer.write(request(connection="keep-alive") + probe * (MAX_WAITING + 50))
        await around.engine.until(1, around.engine.rids)
        around.engine.end(around.engine.rids[0], Finish.LENGTH)
        answer = await reader.read()
        assert answer.count(b"HTTP/1.1 200 OK") == 1 + MAX_WAITING
        assert answer.count(b"HTTP/1.1 400") == 1
        writer.close()

    serve(around, test)


# Time


@pytest.mark.parametrize("part", [b"G", b"GET /live HTTP/1.1\r\nHost: x\r\nA: b"], ids=["letter", "header"])
def test_head_that_dribbles(around: Surroundings, monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    """A head that does not come in time is refused, on a fresh connection and on one that was used."""
    small(monkeypatch, "HEAD_S")

    async def test(port: int) -> None:
        refusal(await raw(port, part), 408)
        answer = await raw(port, b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n" + part)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        refusal(answer[answer.index(b"HTTP/1.1 408") :], 408)

    serve(around, test)


def test_body_that_dribbles(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that does not come in time is refused; one that was refused for its size before is not waited for."""
    small(monkeypatch, "BODY_S")

    async def test(port: int) -> None:
        assert "0.01 s" in refusal(await raw(port, request()[:-5]), 408)
        too_large = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {33 << 20}\r\n\r\n".encode()
        refusal(await raw(port, too_large), 413)
        assert not around.engine.submits

    serve(around, test)


def test_nobody_is_late_behind_an_answer(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an answer is made nothing is read, so half a request behind it has its time after that."""
    small(monkeypatch, "HEAD_S")
    around.engine.by_hand = True

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(connection="keep-alive") + b"GET /li")
        await around.engine.until(1, around.engine.rids)
        (connection,) = around.connections
        timer = connection._late_timer
        while connection._late_timer is timer:
            await asyncio.sleep(0)
        around.engine.end(around.engine.rids[0], Finish.LENGTH)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()

    serve(around, test)


def test_connection_on_which_nothing_comes(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection on which no request begins is closed without a word; blank lines begin none."""
    small(monkeypatch, "KEEP_ALIVE_S")

    async def test(port: int) -> None:
        assert await raw(port, b"") == b""
        assert await raw(port, b"\r\n\r\n") == b""

    serve(around, test)


def test_blank_lines_between_requests(around: Surroundings) -> None:
    """Blank lines keep no connection open: only a request ends the wait for one."""

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"}")
        (connection,) = around.connections
        timer = connection.timeout_keep_alive_task
        assert timer is not None
        writer.write(b"\r\n")
        await writer.drain()
        while not connection._overhead_bytes:
            await asyncio.sleep(0)
        assert connection.timeout_keep_alive_task is timer and not timer.cancelled()
        writer.close()

    serve(around, test)


def test_head_that_began_during_an_answer(around: Surroundings) -> None:
    """Its request is no idle time: no wait for another one goes on while it is answered."""
    around.engine.by_hand = True

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        second = request()
        writer.write(request(connection="keep-alive") + second[:9])
        await around.engine.until(1, around.engine.rids)
        around.engine.end(around.engine.rids[0], Finish.LENGTH)
        await reader.readuntil(b"HTTP/1.1 200")
        (connection,) = around.connections
        assert connection.timeout_keep_alive_task is not None
        writer.write(second[9:])
        await around.engine.until(2, around.engine.rids)
        assert connection.timeout_keep_alive_task is None and connection._late_timer is None
        around.engine.end(around.engine.rids[1], Finish.LENGTH)
        await reader.readuntil(b"HTTP/1.1 200")
        writer.close()

    serve(around, test)


# Versions and wishes

UPGRADES = ["Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n", "Upgrade: websocket\r\n"]


@pytest.mark.parametrize("upgrade", UPGRADES, ids=["h2c", "websocket"])
@pytest.mark.parametrize("split", [0, 3, 200], ids=["one-piece", "in-the-head", "in-the-body"])
def test_wish_for_another_protocol(around: Surroundings, upgrade: str, split: int) -> None:
    """A request that would rather speak another protocol is answered in this one, with its body, as those behind it."""

    async def test(port: int) -> None:
        wish = request(connection="Upgrade, HTTP2-Settings", more=upgrade, user="x" * 100)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wish[:split])
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(wish[split:] + request(max_tokens=1))
        answer = await reader.read()
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert b"w0 w1 w2 " in answer and b'"w0 "' in answer
        writer.close()

    serve(around, test)


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_old_client(around: Surroundings, connection: str) -> None:
    """A client of HTTP/1.0 gets its answer without chunks or interim answers, and then the end of the connection."""

    async def test(port: int) -> None:
        for streamed in (False, True):
            answer = await raw(port, request(streamed, connection, "1.0", "Expect: 100-continue\r\n"))
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"chunked" not in head and b"connection: close" in head
            assert (b"content-length" in head) != streamed
            assert body.endswith(b"data: [DONE]\n\n" if streamed else b"}") and body.count(b"w2") == 1

    serve(around, test)


def test_old_client_that_closes_its_sending_side(around: Surroundings) -> None:
    """It is probed with comments that are no chunks."""
    around.engine.by_hand = True

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(True, version="1.0"))
        writer.write_eof()
        await around.engine.until(1, around.engine.rids)
        rid = around.engine.rids[0]
        around.engine.say(rid, "text")
        begun = await reader.readuntil(b"\n\n:\n\n")
        around.engine.end(rid, Finish.LENGTH)
        answer = begun + await reader.read()
        blocks = answer.partition(b"\r\n\r\n")[2].split(b"\n\n")
        assert all(block.startswith((b"data: ", b":")) for block in blocks[:-1]) and blocks[-1] == b""

    serve(around, test)


def test_body_that_waits_to_be_asked_for(around: Surroundings) -> None:
    """A client that asks first is told to go on, unless it is refused for what its head says."""

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        whole = request(more="Expect: 100-continue\r\n")
        head, _, body = whole.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        too_large = head.replace(b"Content-Length: ", b"Content-Length: 99999999") + b"\r\n\r\n"
        refusal(await raw(port, too_large), 413)

    serve(around, test)


@pytest.mark.parametrize("piece", [b"a", b"x: y\r\n"], ids=["one-long-header", "many-headers"])
def test_endless_head(around: Surroundings, piece: bytes) -> None:
    """A head that does not end is refused, not kept in memory."""

    async def test(port: int) -> None:
        start = b"GET /live HTTP/1.1\r\nx: " + piece * (MAX_HEAD_BYTES // len(piece))
        assert "larger" in refusal(await raw(port, start), 431)
        assert "larger" in refusal(await raw(port, start + b"\r\n\r\n"), 431)
        assert "larger" in refusal(await raw(port, b"GET /" + b"a" * MAX_HEAD_BYTES), 431)

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


def chunked(content_type: str = "application/json", trailers: bytes = b"") -> bytes:
    """A request whose body is one chunk; without the blank line that ends it."""
    body = b'{"prompt": "Hi", "max_tokens": 3}'
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nConnection: close\r\n"
    return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(body), body) + trailers


def test_many_trailers(around: Surroundings) -> None:
    """Trailers are no place to store things: they have the bounds of a head."""

    async def test(port: int) -> None:
        refusal(await raw(port, chunked(trailers=b"X: y\r\n" * 20_000)), 431)
        assert not around.engine.submits

    serve(around, test)


def test_endless_trailer(around: Surroundings) -> None:
    """A connection that sends one trailer without end is closed."""

    async def test(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(chunked(trailers=b"X: "))
        with pytest.raises(ConnectionError):
            for _ in range(40):
                writer.write(b"y" * (MAX_OVERHEAD_BYTES // 2))
                await writer.drain()
            await reader.read()
            raise AssertionError("the server took all of it")
        writer.transport.abort()
        assert (await raw(port, request())).startswith(b"HTTP/1.1 200")

    serve(around, test)


def test_trailers_are_no_headers(around: Surroundings) -> None:
    """What stands behind the body cannot change what the head says."""

    async def test(port: int) -> None:
        answer = await raw(port, chunked(trailers=b"X-Request-Id: late\r\nContent-Type: text/plain\r\n\r\n"))
        assert answer.startswith(b"HTTP/1.1 200") and b"late" not in answer
        trailers = b"Content-Type: application/json\r\n\r\n"
        refusal(await raw(port, chunked("text/plain", trailers)), 415)

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
        refusal(await raw(port, b""), 503)
        second[1].close()
        await second[1].wait_closed()
        first[1].write(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200" in await first[0].readuntil(b"HTTP/1.1 200")

    serve(around, test)
