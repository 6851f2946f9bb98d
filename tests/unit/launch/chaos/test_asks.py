"""The requests of the load."""

from __future__ import annotations

from fourstroke.launch.chaos.asks import all_asks


def test_they_are_distinct() -> None:
    """Each has a title of its own, comes streamed and whole, and has one right answer: greedy or with a seed."""
    asks = all_asks("m")
    assert len({ask.title for ask in asks}) == len(asks)
    assert sorted(ask.name for ask in asks if ask.streamed) == sorted(ask.name for ask in asks if not ask.streamed)
    assert all(ask.body["temperature"] == 0 or "seed" in ask.body for ask in asks)


def test_they_have_all_that_a_restart_could_upset() -> None:
    """Of each field there is a request that has it."""
    fields = {field for ask in all_asks("m") for field in ask.body}
    assert fields >= {"n", "stop", "logprobs", "echo", "seed", "min_tokens", "response_format", "messages"}
    assert fields >= {"presence_penalty", "frequency_penalty", "repetition_penalty", "include_stop_str_in_output"}
