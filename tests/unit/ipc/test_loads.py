"""The loads of engines: every ingest sees what all have given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fourstroke.ipc.loads import Loads, loads_bytes

GIVEN = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-1000, 1000)), max_size=20)


@given(GIVEN)
def test_totals(given: list[tuple[int, int, int]]) -> None:
    """Whoever gives work to whichever engine, all ingests see the same sums."""
    memory = bytearray(loads_bytes(3, 4))
    views = [Loads(memory, 3, 4, own) for own in range(3)]
    for ingest, engine, tokens in given:
        views[ingest].add(engine, tokens)
    expected = [sum(tokens for _, one, tokens in given if one == engine) for engine in range(4)]
    assert [view.totals for view in views] == [expected] * 3


def test_successor() -> None:
    """An ingest that takes the place of one that died begins with nothing; the others keep theirs."""
    memory = bytearray(loads_bytes(2, 1))
    first, second = Loads(memory, 2, 1, 0), Loads(memory, 2, 1, 1)
    first.add(0, 5)
    second.add(0, 7)
    Loads(memory, 2, 1, 0)
    assert second.totals == [7]
