"""Thoughts before answers."""

from __future__ import annotations

import numpy as np
import pytest

from fourstroke.procs.ingest.reading import Speech
from fourstroke.procs.ingest.reasoning import is_opened
from fourstroke.procs.ingest.tools.hermes import HERMES

from .tools.spoken import read

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    "text, opened, reasoning, content",
    [
        ("<think>\nhm, hm\n</think>\n\nYes.", False, "hm, hm", "Yes."),
        (" \n<think>hm</think>Yes.", False, "hm", "Yes."),
        ("hm\n</think>\nYes.", True, "hm", "Yes."),
        ("<think>\n\n</think>\n\nYes.", False, "", "Yes."),
        ("</think>Yes.", True, "", "Yes."),
        ("Yes.", False, "", "Yes."),
        (" Yes <think>no</think>", False, "", " Yes <think>no</think>"),
        ("hm, <think> </thin", True, "hm, <think> </thin", ""),
        ("<think>hm\n", False, "hm\n", ""),
        ("<thin", False, "", "<thin"),
        ("a</think>b</think>c", True, "a", "b</think>c"),
    ],
)
def test_thoughts(text: str, opened: bool, reasoning: str, content: str) -> None:
    """A thought is at the beginning or nowhere, and ends with the first mark; without one all is thought."""
    for form in (None, HERMES):
        said = read(Speech(form, ("f",), thinks=True, opened=opened), text)
        assert (said.reasoning, said.content) == (reasoning, content)
        assert not read(Speech(form, ("f",)), text).reasoning


def test_calls_come_after() -> None:
    """A call inside a thought is thought; one behind it is a call."""
    said = read(Speech(HERMES, ("f",), thinks=True), f"<think>{CALL}</think>\n{CALL}")
    assert (said.reasoning, said.content, said.calls) == (CALL, "", [("f", "{}")])


@pytest.mark.parametrize(
    "prompt, opened", [("<|assistant|>\n<think>\n", True), ("<think>\n\n</think>\n\n", False), ("<think> x", False)]
)
def test_what_the_prompt_has_begun(prompt: str, opened: bool) -> None:
    """A prompt whose last word is the mark has begun a thought."""
    assert is_opened(prompt) is opened


@pytest.mark.parametrize("thought, tokens, count", [(True, [7, 1, 9, 2], 3), (True, [7, 1], 2), (False, [1, 9], 0)])
def test_tokens(thought: bool, tokens: list[int], count: int) -> None:
    """A thought's tokens are those up to the mark that ends it, if that is a token; else nothing is said of them."""
    generated = np.array(tokens, "<i4").tobytes()
    assert Speech(thinks=True, thought_end=9).reasoning_tokens(generated, thought) == count
    assert Speech(thinks=True).reasoning_tokens(generated, thought) is None
    assert Speech(HERMES, thought_end=9).reasoning_tokens(generated, thought) is None
