"""Walking through values of clients: the answers of recursion, without its depth, and no further than is needed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.procs.ingest.values import is_flat, is_small, strings, to_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def chars(value: Any, item_chars: int) -> int:
    """The size of a value by recursion."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(item_chars + chars(item, item_chars) for item in value)
    if isinstance(value, dict):
        return sum(item_chars + len(name) + chars(item, item_chars) for name, item in value.items())
    return 0


def depth(value: Any) -> int:
    """The levels of a value by recursion."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0)


@given(VALUES, st.integers(0, 60), st.integers(0, 9))
def test_small(value, most, item_chars):
    """A value is small exactly if its size is."""
    assert is_small(value, most, item_chars) == (chars(value, item_chars) <= most)


@given(VALUES, st.integers(1, 6))
def test_flat(value, most):
    """A value is flat exactly if it has no more levels."""
    assert is_flat(value, most) == (depth(value) <= most)


@given(VALUES)
def test_strings(value):
    """Every string is found, as often as it is there."""
    assert sum(map(len, strings(value))) == chars(value, 0)
    assert json.loads(to_json(value)) == value


class Untouched(list):
    """A list that may be counted and not looked into."""

    def __iter__(self):
        raise AssertionError("it was looked into")


@pytest.mark.parametrize("many", [{"a": "x" * 9, "b": [Untouched(range(1000))]}, [Untouched(range(1000))]])
def test_what_is_large_is_not_walked_through(many):
    """The number of its members says enough."""
    assert not is_small(many, 100)


def test_any_depth():
    """A value may be deeper than Python's stack."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert not is_small(value, 1000)
    assert is_small(value, 1_000_000)
    assert not is_flat(value, 64)
    assert list(strings(value)) == []
