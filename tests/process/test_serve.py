"""The real processes under the real launcher, with the fake executor: what an operator and a client see."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import httpx
import psutil
import pytest

from .server import get, leftovers, start_server, wait_gone

FAKE = ("--executor", "fake")
ROLES = {"ingest", "scheduler", "executor", "output", "publisher"}


def test_serves_and_stops() -> None:
    """A server that says it is ready is healthy, shows a process for each role, and stops leaving nothing."""
    with start_server(*FAKE) as server:
        url = server.wait_ready()
        assert get(f"{url}/health")[0] == 200
        children = server.children()
        assert children.keys() == ROLES
        assert server.stop() == 0
        assert wait_gone(list(children.values()), 0) == []
        assert leftovers(server.pid) == []


KEY, SECRET = "sesame-4711", "tell nobody"
FORGED = "\r\n99:99:99.999 I ingest0: forged \x1b[2J"
COMPLETION = {"prompt": SECRET, "max_tokens": 1}


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_key_is_wanted_and_hidden(way: str) -> None:
    """An API key is asked for, however it was given, and stands on no command line and in no line of the log."""
    flags = ("--api-key", KEY) if way == "flag" else ()
    environment = {} if way == "flag" else {"FOURSTROKE_API_KEY": KEY}
    with start_server(*FAKE, *flags, "--log-level=debug", environment=environment) as server:
        url = server.wait_ready()
        assert get(f"{url}/v1/models")[0] == 401
        assert get(f"{url}/v1/models", KEY)[0] == 200
        ask_nastily(url)
        for pid in (server.pid, *server.children().values()):
            assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            soft, hard = psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE)
            assert soft == hard, "as many files as the system allows"
        assert server.stop() == 0
    assert "refused with 404" in server.errors and "cmpl-" in server.errors
    assert KEY not in server.errors and SECRET not in server.errors
    assert "\x1b" not in server.errors and "\r" not in server.errors
    assert not [line for line in server.errors.splitlines() if line.startswith("99:99")]


def ask_nastily(url: str) -> None:
    """Requests whose every part that could be written down tries to begin a line of its own, or is a secret."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}) as client:
        statuses = [
            client.post("/v1/completions", json=COMPLETION).status_code,
            client.post("/v1/completions", json={**COMPLETION, "model": FORGED}).status_code,
            client.post("/v1/completions", json={**COMPLETION, "seed": FORGED}).status_code,
            client.post("/v1/completions", json={**COMPLETION, FORGED: FORGED, "n": 0}).status_code,
            client.post("/v1/completions", json={"prompt": SECRET * 100_000}).status_code,
            client.post("/v1/completions", content=SECRET.encode()).status_code,
            client.post("/v1/completions", json={"prompt": {SECRET: SECRET}}).status_code,
            client.post("/v1/completions", json={"prompt": [SECRET, 5]}).status_code,
            client.post("/v1/chat/completions", json={"messages": [{"role": 5, "content": SECRET}]}).status_code,
            client.post("/v1/chat/completions", json={"messages": SECRET}).status_code,
            client.post(f"/v1/requests/{quote(FORGED)}/abort").status_code,
            client.get(f"/v1/models/{quote(FORGED)}").status_code,
            client.get("/live", headers={"X-Request-Id": "a\x1b[2J", "User-Agent": "\x1b[2J"}).status_code,
            client.get("/v1/models", headers={"Authorization": f"Bearer {KEY}x"}).status_code,
        ]
    assert statuses == [200, 404, *[400] * 8, 404, 404, 400, 401]


def test_names() -> None:
    """The served names are those given, in their order and once each."""
    with start_server(*FAKE, "--served-model-name", "a", "b", "--served-model-name", "a", "c") as server:
        _, models = get(f"{server.wait_ready()}/v1/models")
        assert [model["id"] for model in models["data"]] == ["a", "b", "c"]
