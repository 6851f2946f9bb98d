"""Messages stay well below the largest frame, whatever clients ask for."""

from __future__ import annotations

import numpy as np

from fourstroke.ipc import codec
from fourstroke.ipc.logprobs import unpack
from fourstroke.ipc.messages import Sampling
from fourstroke.procs.executor.fake import text_logprobs

from .driver import GREEDY, Driver
from .remote import prompt


def test_new_rows_of_a_step_have_room_in_its_message():
    """700 requests with 1,024 biases each are admitted in two steps."""
    driver = Driver(rows=1000, budget=1000, blocks=2000)
    biased = Sampling(0.0, 0, 1.0, 0.0, tuple(range(1024)), (0.5,) * 1024)
    for rid in range(700):
        driver.submit(rid, [20 + rid % 7], max_tokens=2, sampling=biased)
    first = driver.plan()
    assert 500 < first.plan.rows < 700
    assert len(codec.encode(first.plan)) < 16 << 20
    driver.settle()
    assert driver.plan().plan.rows == 700


def test_logprobs_of_a_long_prompt_come_in_portions(monkeypatch):
    """Ten tokens, three at a time, in order and each once; with those of another request behind."""
    monkeypatch.setattr("fourstroke.procs.scheduler.results.settling.MAX_SCORED_TOKENS", 3)
    driver = Driver()
    emissions = []
    take = driver.core.take_emissions
    driver.core.take_emissions = lambda: emissions.extend(taken := take()) or taken
    scored = Sampling(
        *[getattr(GREEDY, name) for name in ("temperature", "top_k", "top_p", "min_p")], prompt_logprobs=2
    )
    for rid in (1, 2):
        driver.submit(rid, prompt(rid, 10), max_tokens=1, sampling=scored)
    driver.run()
    for rid in (1, 2):
        parts = [unpack(one.prompt_logprobs).get(rid) for one in emissions]
        words = [part for part in parts if part is not None]
        assert max(map(len, words)) <= 3
        assert np.array_equal(np.concatenate(words), text_logprobs(prompt(rid, 10), 1, 2))
