"""Nobody waits for ever behind those who came later, whoever else comes."""

from __future__ import annotations

import pytest

from fourstroke.common.types import TransferOutcome

from .driver import Driver
from .remote import consumer, elsewhere, prompt


@pytest.mark.parametrize("setup", [{"rows": 2, "blocks": 400}, {"rows": 64, "blocks": 40}], ids=["rows", "blocks"])
def test_a_prompt_that_goes_whole_is_served_though_others_keep_coming(setup):
    """Chunking off: what fits beside it may pass eight times; then nobody is admitted before it."""
    driver = Driver(budget=64, chunked=False, max_model_len=1024, **setup)
    driver.submit(0, prompt(0, 4), max_tokens=1000)
    driver.turn()
    driver.submit(1, prompt(1, 64), max_tokens=3)
    for rid in range(2, 120):
        driver.submit(rid, prompt(rid, 4), max_tokens=3)
        driver.turn()
        if 1 in driver.ended:
            break
    assert 1 in driver.ended
    assert rid < 60


def test_what_comes_from_elsewhere_stops_no_running_stream(monkeypatch):
    """24 requests of 16 blocks arrive at once, and a step can tell the executor of 20: the stream goes on."""
    monkeypatch.setattr("fourstroke.procs.scheduler.planning.step.MAX_TOLD_BLOCKS", 20)
    driver = consumer(rows=32, blocks=1000, budget=2048, max_model_len=128)
    driver.submit(0, prompt(0, 4), max_tokens=100)
    driver.turn()
    for rid in range(1, 25):
        driver.submit(rid, prompt(rid, 64), max_tokens=8, remote=elsewhere(first_token=77))
    driver.turn()
    for rid in range(1, 25):
        driver.arrive(rid)
    for _ in range(24):
        assert 0 in driver.rids_of(driver.plan())
        driver.settle()
    driver.run()
    assert {len(driver.outputs[rid]) for rid in range(1, 25)} == {8}


def test_no_headroom_is_kept_for_those_who_only_wait_for_their_kv():
    """One request is parked and nothing runs: a prompt that fills what is left is admitted at once."""
    driver = consumer(blocks=8, headroom=64)
    driver.submit(1, prompt(1, 12), max_tokens=8, remote=elsewhere())
    assert driver.plan() is None
    driver.submit(2, prompt(2, 16), max_tokens=8)
    assert driver.rids_of(driver.plan()) == [2]
    driver.settle()
    driver.report(1, TransferOutcome.FAILED)
    driver.run()
    assert set(driver.ended) == {1, 2}
