"""Messages stay well below the largest frame, whatever clients ask for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

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


def test_grammars_and_histories_have_room_in_a_message():
    """Requests with long grammars, and long prompts whose tokens are penalised, are admitted in several steps."""
    driver = Driver(rows=1000, budget=100_000, blocks=100_000, max_model_len=20_000)
    long_grammar = Sampling(0.0, 0, 1.0, 0.0, grammar="x" * (1 << 16))
    penalised = Sampling(0.0, 0, 1.0, 0.0, repetition_penalty=2.0)
    for rid in range(200):
        driver.submit(rid, [20 + rid % 7], max_tokens=2, sampling=long_grammar)
    driver.submit(200, list(range(20, 10_020)), max_tokens=2, sampling=penalised)
    sizes, rows = [], []
    while len(rows) < 201:
        step = driver.plan()
        sizes.append(len(codec.encode(step.plan)))
        rows += step.plan.new_rows
        driver.settle()
    assert len(sizes) > 1 and max(sizes) < 16 << 20
    assert rows[-1].seen == np.arange(20, 10_020, dtype=np.int32).tobytes()


@pytest.mark.parametrize("rule", [{}, {"presence_penalty": 1.0}, {"repetition_penalty": 2.0}, {"grammar": "x"}])
def test_a_row_brings_its_history(rule):
    """Who is preempted comes back with what it had generated, if its sampling asks for that, else without."""
    driver = Driver(blocks=100)
    said = [30, 22, 30, 22, 9]
    driver.submit(1, said, max_tokens=9, sampling=replace(GREEDY, **rule))
    (first,) = driver.plan().plan.new_rows
    driver.settle()
    driver.plan()
    driver.settle()
    generated = driver.core.table.tokens[first.row, 5:7].tolist()
    driver.core.preempt(1)
    (again,) = driver.plan().plan.new_rows
    seen = _column([9, 22, 30]) if "repetition_penalty" in rule else b""
    assert (first.seen, first.generated) == (seen, b"")
    assert (again.seen, again.generated) == (seen, _column(generated) if rule else b"")


def _column(tokens):
    return np.array(tokens, np.int32).tobytes()


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
