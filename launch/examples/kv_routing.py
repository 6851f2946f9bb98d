#!/usr/bin/env python3
"""Two servers behind vllm-router, which sends each prompt to where its beginning is cached, by our KV events.

    python launch/examples/kv_routing.py --router PATH/TO/bin/vllm-router [-- flags of fourstroke serve]

Some beginnings of prompts are computed on one node, some on the other. Shows that further prompts find theirs cached,
through the router, and that the prompts of a node that dies go to the other one. Ends with 1 if any of that is not so.
The router is `pip install vllm-router==0.1.17`, best in an environment of its own. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

BLOCK_SIZE = 16
SHARED_BLOCKS = 8
"""So many blocks of its beginning a prompt has in common with others."""

HEARSAY_S = 2.0
"""So long the router has to hear of what was computed: nothing tells when it has."""

START_S = 300
PATIENCE_S = 90


class Failed(Exception):
    """What should be seen is not."""


def http(url: str, body: Any = None, timeout_s: float = 60) -> Any:
    """The JSON, or else the text, that a GET is answered with, or a POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        content = response.read().decode()
    return json.loads(content) if content[:1] in ("{", "[") else content


class Node:
    """A server of ours, on free ports."""

    def __init__(self, flags: Sequence[str]) -> None:
        command = [sys.executable, "-P", "-m", "fourstroke", "serve", "--port=0", "--log-level=warning", "--kv-events"]
        events = ["--kv-events-endpoint=tcp://127.0.0.1:0", "--kv-events-replay-endpoint=tcp://127.0.0.1:0"]
        self._process = subprocess.Popen([*command, *events, *flags], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if readable else ""
        if " on http" not in line:
            raise Failed("a server did not get ready")
        self.url = line.split(" on ")[1].split()[0]
        (self.source,) = http(self.url + "/kv_event_sources")["sources"]

    def hit_tokens(self) -> int:
        """Prompt tokens that its prefix cache had, so far."""
        found = re.search(r"^fourstroke_cache_hit_tokens_total\{.*\} (\S+)", http(self.url + "/metrics"), re.M)
        return int(float(found[1])) if found else 0

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(60)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def router_before(nodes: Sequence[Node], program: str) -> Iterator[str]:
    """The URL of a vllm-router in front of nodes."""
    port, metrics_port = free_port(), free_port()
    command = [program, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics_port)]
    command += ["--policy", "kv_aware", "--kv-event-block-size", str(BLOCK_SIZE)]
    command += ["--kv-event-model", nodes[0].source["model"], "--worker-urls", *(node.url for node in nodes)]
    for node in nodes:
        command += ["--kv-event-source", f"{node.url}={node.source['endpoint']}"]
        command += ["--kv-event-replay-source", f"{node.url}={node.source['replay_endpoint']}"]
    command += ["--health-check-interval-secs", "1", "--health-failure-threshold", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for("the router answers", lambda: answers(url + "/health"))
        yield url
    finally:
        process.terminate()
        process.wait(30)


def answers(url: str) -> bool:
    try:
        http(url, timeout_s=5)
    except OSError:
        return False
    return True


def wait_for(what: str, holds: Any) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until_s:
            raise Failed(f"not seen within {PATIENCE_S} s: {what}")
        time.sleep(0.2)


class Prompts:
    """Prompts that begin alike and end differently."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._beginning = self._draw(SHARED_BLOCKS * BLOCK_SIZE)

    def draw(self) -> list[int]:
        return self._beginning + self._draw(BLOCK_SIZE // 2)

    def _draw(self, tokens: int) -> list[int]:
        return [self._dice.randrange(100, 20_000) for _ in range(tokens)]


def ask(url: str, model: str, prompt: list[int]) -> int:
    """Have a prompt continued by a token; returns how many of its tokens were cached."""
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    usage = http(url + "/v1/completions", body)["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def show(url: str, nodes: Sequence[Node]) -> None:
    """Both things; raises Failed for the first that is not seen."""
    model, shared = nodes[0].source["model"], SHARED_BLOCKS * BLOCK_SIZE
    families = [Prompts(seed) for seed in range(4)]
    homes = [number % len(nodes) for number in range(len(families))]
    for family, home in zip(families, homes, strict=True):
        ask(nodes[home].url, model, family.draw())
    time.sleep(HEARSAY_S)
    for number, (family, home) in enumerate(zip(families, homes, strict=True)):
        before = [node.hit_tokens() for node in nodes]
        cached = [ask(url, model, family.draw()) for _ in range(6)]
        hits = [node.hit_tokens() - earlier for node, earlier in zip(nodes, before, strict=True)]
        say(f"beginning {number}, computed on node {home}: cached tokens of 6 prompts {cached}, by node {hits}")
        if cached != [shared] * 6 or hits[home] != 6 * shared:
            raise Failed("prompts did not go to where their beginning is cached")
    dead = homes[0]
    nodes[dead].stop(signal.SIGKILL)
    say(f"node {dead} was killed")

    def moved() -> bool:
        try:
            return ask(url, model, families[0].draw()) == shared
        except OSError:
            return False

    wait_for("the dead node's prompts are served and cached elsewhere", moved)
    say(f"its prompts find {shared} cached tokens on node {1 - dead} now")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--router", default="vllm-router", help="the program (default: the one on the PATH)")
    parser.add_argument("flags", nargs="*", help="flags of fourstroke serve, after --")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        try:
            nodes = []
            for _ in range(2):
                nodes.append(Node(arguments.flags))
                stack.callback(nodes[-1].stop)
            url = stack.enter_context(router_before(nodes, arguments.router))
            show(url, nodes)
        except (Failed, OSError) as error:
            say(f"FAILED: {error}")
            return 1
    say("as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
