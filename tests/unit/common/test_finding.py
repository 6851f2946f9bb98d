"""Findings as they travel from the program that makes them to the launcher."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.finding import Doing, Finding, Level, green, read_line, red, yellow

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
findings = st.one_of(
    st.builds(green, texts, texts), st.builds(yellow, texts, texts, texts), st.builds(red, texts, texts, texts)
)


@given(st.one_of(findings, st.builds(Doing, texts)))
def test_a_line_and_back(said: Finding | Doing) -> None:
    """What is written as a line is read as the same, and is one line whatever it says."""
    assert read_line(said.line) == said
    assert len(said.line.splitlines()) == 1


@pytest.mark.parametrize(
    "line",
    [
        "",
        "half a li",
        "[]",
        "7",
        "{}",
        '{"doing": 7}',
        '{"doing": "a", "found": "b"}',
        json.dumps({"subject": "a", "level": "purple", "found": "b", "advice": "c"}),
        json.dumps({"subject": "a", "level": "green", "found": "b"}),
        json.dumps({"subject": "a", "level": "red", "found": "b", "advice": None}),
        json.dumps({"subject": "a", "level": "red", "found": "b", "advice": ""}),
    ],
)
def test_other_lines_are_refused(line: str) -> None:
    """A library's chatter or half a line is a ValueError."""
    with pytest.raises(ValueError):
        read_line(line)


@pytest.mark.parametrize("level, advice", [(Level.GREEN, "do it"), (Level.YELLOW, ""), (Level.RED, "")])
def test_advice_is_for_flaws(level: Level, advice: str) -> None:
    """What is red or yellow says what to do; what is green has nothing to do."""
    with pytest.raises(ValueError, match="advice"):
        Finding("a", level, "b", advice)
