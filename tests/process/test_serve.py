"""The real processes under the real launcher, with the fake executor: what an operator and a client see."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_key_is_wanted_and_hidden(way: str) -> None:
    """An API key is asked for, however it was given, and stands on no command line."""
    key = "sesame-4711"
    flags = ("--api-key", key) if way == "flag" else ()
    environment = {} if way == "flag" else {"FOURSTROKE_API_KEY": key}
    with start_server(*FAKE, *flags, environment=environment) as server:
        url = server.wait_ready()
        assert get(f"{url}/v1/models")[0] == 401
        assert get(f"{url}/v1/models", key)[0] == 200
        for pid in (server.pid, *server.children().values()):
            assert key.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_names() -> None:
    """The served names are those given, in their order and once each."""
    with start_server(*FAKE, "--served-model-name", "a", "b", "--served-model-name", "a", "c") as server:
        _, models = get(f"{server.wait_ready()}/v1/models")
        assert [model["id"] for model in models["data"]] == ["a", "b", "c"]
