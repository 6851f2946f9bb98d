"""Several engines in real processes behind one server, with the fake executor, in each way of keeping in step."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

import httpx
import psutil
import pytest

from fourstroke import LLM, SamplingParams
from fourstroke.common.types import role_of
from fourstroke.procs.executor.fake import continuation

from .server import Server, get, leftovers, metrics, start_server, wait_gone, wait_metric

TWO = ("--executor=fake", "--data-parallel-size=2", "--fake-step=0.002")
ALIGNMENTS = ["off", "delay", "coalesce"]
TOKENS = 24
LONG = 1000


def prompt_of(number: int) -> list[int]:
    return [20 + number] * (5 + 3 * number)


def ask(server: Server, prompt: list[int], tokens: int = TOKENS, timeout_s: float = 60) -> dict:
    """The answer to a request, as the client has it."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=timeout_s)
    assert response.status_code == 200, response.text
    return response.json()


def text_of(server: Server, tokens: list[int]) -> str:
    return httpx.post(f"{server.url}/detokenize", json={"tokens": tokens}).json()["prompt"]


def ask_32(server: Server) -> list[str]:
    """The texts of 32 requests that come at the same time."""
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda number: ask(server, prompt_of(number)), range(32)))
    return [answer["choices"][0]["text"] for answer in answers]


def pids_of(server: Server) -> dict[str, list[int]]:
    """The pids of a role's processes, in the order in which they were started."""
    found: dict[str, list[int]] = {}
    for child in psutil.Process(server.pid).children():
        found.setdefault(role_of(child.cmdline()[0].removeprefix("fourstroke: ")), []).append(child.pid)
    return {role: sorted(pids) for role, pids in found.items()}


@pytest.fixture(scope="module")
def expected() -> Iterator[list[str]]:
    """What one engine says."""
    with start_server("--executor=fake") as server:
        server.url = server.wait_ready()
        texts = ask_32(server)
        assert texts[3] == text_of(server, continuation(prompt_of(3), TOKENS))
        yield texts


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_two_engines_say_what_one_says(alignment: str, expected: list[str]) -> None:
    """32 requests at once: the texts of a single engine, both engines at work, agreed without an error; a clean end."""
    server = start_server(*TWO, f"--alignment={alignment}")
    server.wait_ready()
    pids = pids_of(server)
    assert {role: len(found) for role, found in pids.items()} == {
        "ingest": 1, "output": 1, "scheduler": 2, "executor": 2, "publisher": 2
    }  # fmt: skip
    assert get(f"{server.url}/health") == (200, {"status": "ok", "detail": ""})
    assert ask_32(server) == expected
    numbers = metrics(server.url)
    requests = [numbers["requests_total", f"scheduler{engine}"] for engine in range(2)]
    assert sum(requests) == 32 and min(requests) >= 8
    assert all(numbers["steps_run_total", f"executor{engine}"] > 0 for engine in range(2))
    assert [numbers["alignment_errors_total", f"scheduler{engine}"] for engine in range(2)] == [0, 0]
    assert (numbers["alignment_held_total", "scheduler0"] > 0) == (alignment != "off")
    assert server.stop() == 0
    assert wait_gone([pid for found in pids.values() for pid in found], 0) == []
    assert leftovers(server.pid) == []
    server.close()


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_drain(alignment: str) -> None:
    """On SIGTERM the requests in both engines come to their end, and the server exits with 0."""
    with start_server(*TWO, f"--alignment={alignment}") as server, ThreadPoolExecutor(4) as pool:
        server.wait_ready()
        asking = [pool.submit(ask, server, prompt_of(number), 200) for number in range(4)]
        for engine in range(2):
            wait_metric(server.url, "requests_total", f"scheduler{engine}", lambda submitted: submitted == 2)
        assert server.stop() == 0
        assert [one.result()["usage"]["completion_tokens"] for one in asking] == [200] * 4


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_a_scheduler_that_is_killed_may_end_the_server_with_its_cause(alignment: str) -> None:
    """As with one engine: the launcher says who died and of what, and nothing is left behind."""
    server = start_server(*TWO, f"--alignment={alignment}", "--max-restarts=0")
    server.wait_ready()
    pids = pids_of(server)
    psutil.Process(pids["scheduler"][1]).kill()
    assert server.wait() == 1
    assert re.search(r"scheduler[01] was killed by SIGKILL", server.errors)
    assert wait_gone([pid for found in pids.values() for pid in found], 0) == []
    assert leftovers(server.pid) == []
    server.close()


def check(asking: list[Future[dict]], tokens: int) -> None:
    assert [one.result()["usage"]["completion_tokens"] for one in asking] == [tokens] * len(asking)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_a_scheduler_that_stands_still_holds_up_nobody_else(alignment: str, expected: list[str]) -> None:
    """Its own requests wait, those of the other end, and so do new ones; when it goes on all of its own end."""
    flags = *TWO, f"--alignment={alignment}", "--hang-timeout=0"
    with start_server(*flags) as server, ThreadPoolExecutor(16) as pool:
        server.wait_ready()
        first = [pool.submit(ask, server, prompt_of(number), LONG) for number in range(4)]
        for engine in range(2):
            wait_metric(server.url, "requests_running", f"scheduler{engine}", lambda running: running == 2)
        stopped = psutil.Process(pids_of(server)["scheduler"][0])
        stopped.send_signal(signal.SIGSTOP)
        try:
            ended = list(itertools.islice(as_completed(first, 60), 2))
            for _ in range(4):
                ask(server, [7], 5)
            assert sum(one.done() for one in first) == len(ended) == 2
            errors = metrics(server.url)["alignment_errors_total", "scheduler1"]
            assert (errors > 0) == (alignment != "off")
        finally:
            stopped.send_signal(signal.SIGCONT)
        check(first, LONG)
        assert ask_32(server) == expected
        assert get(f"{server.url}/health")[0] == 200


def test_reset_of_the_prefix_cache() -> None:
    """All engines forget; while one has requests it is refused."""
    with start_server(*TWO) as server, ThreadPoolExecutor(1) as pool:
        server.wait_ready()
        prompt = [9] * 160

        def cached() -> int:
            return int(ask(server, prompt, 1)["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert (cached(), cached()) == (0, 144)
        assert httpx.post(f"{server.url}/reset_prefix_cache").status_code == 200
        assert (cached(), cached()) == (0, 144)
        asking = pool.submit(ask, server, [8], 300)
        wait_metric(server.url, "requests_live", "ingest0", lambda live: live == 1)
        refused = httpx.post(f"{server.url}/reset_prefix_cache")
        assert refused.status_code == 409
        assert "1 requests" in refused.text
        check([asking], 300)


def test_offline() -> None:
    """LLM takes the numbers of engines and of processes, too; then several ingests have one Unix socket."""
    prompts = [f"number {number}" for number in range(24)]
    params = SamplingParams(max_tokens=6, ignore_eos=True, temperature=0)
    several = {"data_parallel_size": 2, "alignment": "coalesce", "ingest_procs": 2, "output_procs": 2}
    with LLM(executor="fake") as one, LLM(executor="fake", **several) as two:
        texts = [completion.text for completion in one.generate(prompts, params, progress=False)]
        assert [completion.text for completion in two.generate(prompts, params, progress=False)] == texts
        numbers = metrics(two.url)
        assert min(numbers["requests_total", f"scheduler{engine}"] for engine in range(2)) > 0
