"""Reading JSON piece by piece is reading JSON."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.procs.ingest.patient_json import patient_loads

LONG = ["plain " * 40_000, 'quo"ted ' * 30_000, "ü\n\\" * 30_000, "😀" * 30_000, "\ud83d" * 9_000, "\udc00" * 9_000]
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ATOMS = st.none() | st.booleans() | NUMBERS | st.text() | st.sampled_from(LONG)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner) | st.lists(NUMBERS, max_size=20).map(lambda few: few * 500) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=10,
)
LAYOUTS = st.sampled_from([{}, {"indent": 1}, {"separators": (" ,\r\n", "\t: ")}, {"ensure_ascii": False}])


def outcome(load: Any, text: str) -> Any:
    """What comes of a text: a value with the types of its numbers, or that it was refused."""
    try:
        return repr(load(text, parse_constant=lambda name: f"constant {name}"))
    except (ValueError, RecursionError):
        return None


@given(VALUES, LAYOUTS)
def test_any_value(value: Any, layout: dict[str, Any]) -> None:
    """Whatever is written as JSON, in whatever layout, is read as json.loads reads it."""
    text = json.dumps(value, **layout)
    assert patient_loads(text, parse_constant=str) == json.loads(text)


@given(VALUES, LAYOUTS, st.data())
def test_damaged(value: Any, layout: dict[str, Any], data: st.DataObject) -> None:
    """With any character taken out, put in or the end cut off it is refused where json.loads refuses it."""
    text = json.dumps(value, **layout)
    place = data.draw(st.integers(0, len(text)))
    for damaged in (
        text[:place] + text[place + 1 :],
        text[:place] + data.draw(st.sampled_from([*'[]{},:"\\ 0-.eN\x01\u0663'])) + text[place:],
        text[:place],
    ):
        assert outcome(patient_loads, damaged) == outcome(json.loads, damaged)


LISTS = """
[1,]   [,1]   [ ,1]   [1,,2]   [01,2]   [-0,1]   [-,1]   [1 2,3]   [1.,2]   [1e,2]   [+1,2]   [1,2   [1,]x
[]   [ ]   [1.5,2]
"""
OTHERS = ["[1,NaN,2,-Infinity]", "NaN", f"[{'9' * 5000},1]", "[" * 100_000, "", "[1,\x0b2]", "[\u0661,2]", "[2,\u0661]"]
STRINGS = [r'["\u12"]', r'"\ud83d\u0041"', '["a]', '["a\x01"]', r'"\ud83d\ude00"', r'"\x"']


@pytest.mark.parametrize("text", [*re.split(r"   |\n", LISTS.strip()), *OTHERS, *STRINGS])
def test_corners(text: str) -> None:
    """What a short cut could get wrong."""
    assert outcome(patient_loads, text) == outcome(json.loads, text)
