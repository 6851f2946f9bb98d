"""One real server with the real model in float32, shared by the tests that only talk to it."""

from collections.abc import Iterator

import pytest

from .server import Server, start_server


@pytest.fixture(scope="session")
def exact_server() -> Iterator[Server]:
    """A server whose logits do not depend on the batch beyond rounding: float32."""
    with start_server("--dtype=float32") as server:
        server.url = server.wait_ready()
        yield server
