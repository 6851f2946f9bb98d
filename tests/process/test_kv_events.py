"""KV events of a real server with two engines, whose readers come late, stall, die, and outlive the publisher."""

from __future__ import annotations

import itertools
import random
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

import fourstroke
from fourstroke import KvIndex, KvSubscriber
from fourstroke.ipc.follower import Item, Received, Restarted

from .server import Server, get, metrics, start_server, wait_metric

ENGINES = 2
BLOCK = 16
HEARTBEAT_S = 0.5
PATIENCE_S = 60.0
_NUMBERS = itertools.count()
DOCUMENT = Path(fourstroke.__file__).parent / "docs" / "subscriber.md"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Small caches, so that blocks are evicted, and a short ring, so that a late joiner needs a snapshot."""
    flags = ["--executor=fake", f"--data-parallel-size={ENGINES}", "--num-blocks=120", "--max-num-seqs=4"]
    events = ["--kv-events", "--kv-events-endpoint=tcp://127.0.0.1:0", "--kv-events-replay-endpoint=tcp://127.0.0.1:0"]
    more = [f"--kv-events-heartbeat={HEARTBEAT_S}", "--kv-events-buffer-steps=5", "--log-level=warning"]
    with start_server(*flags, *events, *more) as server:
        server.wait_ready()
        yield server


def sources(server: Server) -> list[dict]:
    return get(f"{server.url}/kv_event_sources")[1]["sources"]


def publisher_of(server: Server) -> int:
    """The process of one of the publishers."""
    return min((name, pid) for name, pid in server.children().items() if name.startswith("publisher"))[1]


class Reader:
    """Follows all engines and keeps an index of them."""

    def __init__(self, server: Server) -> None:
        self._streams = [
            KvSubscriber(one["endpoint"], one["replay_endpoint"], rank=one["dp_rank"], heartbeat_s=HEARTBEAT_S)
            for one in sources(server)
        ]
        self.index = KvIndex(BLOCK)
        self.items: list[Item] = []

    def read(self, timeout_s: float) -> None:
        """Take in what comes, until nothing has come for a while or an engine has nothing to say but that it lives."""
        for rank in range(ENGINES):
            while (item := self.read_one(rank, timeout_s)) is not None:
                if isinstance(item, Received) and not item.batch.events and not item.replayed:
                    break

    def read_one(self, rank: int, timeout_s: float = 0) -> Item | None:
        """The next item of an engine, if one comes in time."""
        item = self._streams[rank].poll(timeout_s)
        if item is not None:
            self.items.append(item)
        if isinstance(item, Restarted):
            self.index.forget(rank)
        elif isinstance(item, Received):
            self.index.apply(item.batch)
        return item

    def read_until(self, holds) -> None:
        """Read until something holds."""
        for _ in range(100):
            if holds():
                return
            self.read(2 * HEARTBEAT_S)
        raise AssertionError(f"it did not come to that; the last items: {self.items[-5:]}")

    def hashes(self) -> list[set[int]]:
        return [self.index.hashes(rank) for rank in range(ENGINES)]

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


@pytest.fixture
def reader(server: Server) -> Iterator[Reader]:
    made = Reader(server)
    yield made
    made.close()


def complete(server: Server, prompt: list[int], **fields: object) -> int:
    """Have a prompt continued; returns how many of its tokens were cached."""
    body = {"prompt": prompt, "max_tokens": 8, "ignore_eos": True, **fields}
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE_S)
    assert response.status_code == 200, response.text
    return response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def work(server: Server, requests: int, seed: int) -> list[list[int]]:
    """Requests with prefixes in common, more than the caches hold; returns the prompts."""
    dice = random.Random(seed)
    prompts = []
    for _ in range(requests):
        shared = [1000 + dice.randrange(4)] * dice.choice([0, 64])
        prompts.append(shared + [dice.randrange(100, 20_000) for _ in range(dice.randint(20, 150))])
        complete(server, prompts[-1], cache_salt=dice.choice([None, None, "s1"]))
    return prompts


def agree(server: Server, *readers: Reader) -> None:
    """All know the same, by hashes that fit their content, and it is what requests find."""
    late = Reader(server)
    try:
        prompt = [20_000 + next(_NUMBERS)] * 100
        complete(server, prompt)
        for one in (*readers, late):
            one.read_until(lambda one=one: one.index.match(prompt))
            one.read(2 * HEARTBEAT_S)  # what the other engine has said meanwhile
        for one in readers:  # whose heartbeats may have piled up in front of what is new
            one.read_until(lambda one=one: one.hashes() == late.hashes())
        assert late.index.verify() == []
        (found,) = late.index.match(prompt).values()
        assert complete(server, prompt) == found == 96
    finally:
        late.close()


def test_where_to_listen(server: Server):
    """Each engine has two ports of its own, and says in every batch which one it is."""
    found = sources(server)
    ends = [one[name] for one in found for name in ("endpoint", "replay_endpoint")]
    assert len(set(ends)) == 2 * ENGINES and not any(end.endswith(":0") for end in ends)
    assert [(one["dp_rank"], one["block_size"], one["encoding"]) for one in found] == [
        (0, BLOCK, "map"),
        (1, BLOCK, "map"),
    ]
    assert len({one["incarnation"] for one in found}) == ENGINES


def test_who_was_there_and_who_comes_late(server: Server, reader: Reader):
    """Both know exactly what is cached, though blocks were evicted and batches forgotten."""
    work(server, 25, seed=1)
    agree(server, reader)
    assert metrics(server.url)["kv_event_ring_oldest", "publisher0"] > 0


def test_a_reader_on_an_idle_server(server: Server):
    """Has everything within two heartbeats."""
    work(server, 3, seed=2)
    reader = Reader(server)
    try:
        reader.read(2 * HEARTBEAT_S)
        agree(server, reader)
    finally:
        reader.close()


def test_a_reader_who_sleeps_and_one_who_is_slow(server: Server, reader: Reader):
    """One reads nothing while requests run, one a batch at a time: in the end both are right."""
    slow = Reader(server)
    try:
        for seed in range(4):
            work(server, 6, seed=10 + seed)
            for rank in range(ENGINES):
                slow.read_one(rank)
        agree(server, reader, slow)
    finally:
        slow.close()


def test_a_reader_that_is_killed(server: Server):
    """`fourstroke kv-events tail` shows what comes; its death changes nothing for others."""
    (first, _) = sources(server)
    command = [sys.executable, "-P", "-m", "fourstroke", "kv-events", "tail", "--json"]
    ends = [f"--pub={first['endpoint']}", f"--replay={first['replay_endpoint']}"]
    with subprocess.Popen([*command, *ends], stdout=subprocess.PIPE, text=True) as tail:
        assert '"seq": 0' in tail.stdout.readline()
        tail.kill()
    work(server, 3, seed=3)
    other = Reader(server)
    agree(server, other)
    other.close()


def test_check_finds_nothing_wrong(server: Server):
    """The command holds the stream of each engine against the rules of the known readers."""
    for one in sources(server):
        command = [sys.executable, "-P", "-m", "fourstroke", "kv-events", "check", f"--rank={one['dp_rank']}"]
        ends = [f"--pub={one['endpoint']}", f"--replay={one['replay_endpoint']}", "--seconds=1"]
        done = subprocess.run([*command, *ends], capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, "nothing is wrong" in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_documents_subscriber(server: Server):
    """The program in docs/subscriber.md, with nothing but pyzmq and msgpack, comes to the number of cached blocks."""
    (first, _) = sources(server)
    (program,) = [
        code for code in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S) if "import zmq" in code
    ]
    for name, mine in (("5557", first["endpoint"]), ("5558", first["replay_endpoint"])):
        program = program.replace(f"tcp://127.0.0.1:{name}", mine)
    reader = Reader(server)
    reader.read_until(lambda: reader.index.hashes(0))
    reader.read(2 * HEARTBEAT_S)
    expected = f"{len(reader.index.hashes(0))} blocks are cached\n"
    reader.close()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as running:
        while (line := running.stdout.readline()) != expected:
            assert line and select.select([running.stdout], [], [], PATIENCE_S)[0], f"{expected} is not said"
        running.kill()


def test_a_publisher_that_is_stopped_for_a_while(server: Server, reader: Reader):
    """Requests notice nothing, and when it goes on everybody is right."""
    publisher = psutil.Process(publisher_of(server))
    publisher.suspend()
    try:
        work(server, 10, seed=4)
    finally:
        publisher.resume()
    agree(server, reader)


def test_a_publisher_that_is_killed(server: Server, reader: Reader):
    """It is started again and told everything; readers are told of it, and requests go on meanwhile."""
    work(server, 5, seed=5)
    reader.read(2 * HEARTBEAT_S)
    before = {one["incarnation"] for one in sources(server)}
    psutil.Process(publisher_of(server)).send_signal(signal.SIGKILL)
    work(server, 5, seed=6)
    server.wait_said("it is started again")
    wait_metric(server.url, "kv_event_batches_total", "publisher0", lambda counted: counted > 0)
    reader.read_until(lambda: any(isinstance(item, Restarted) for item in reader.items))
    agree(server, reader)
    now = {one["incarnation"] for one in sources(server)}
    assert len(now) == len(before) == ENGINES and len(now & before) == ENGINES - 1


def test_a_reset_reaches_everybody(server: Server, reader: Reader):
    """At once, from an idle server."""
    work(server, 2, seed=7)
    reader.read_until(lambda: len(reader.index) > 0)
    assert httpx.post(f"{server.url}/reset_prefix_cache", json={"force": True}, timeout=PATIENCE_S).status_code == 200
    reader.read_until(lambda: len(reader.index) == 0)
