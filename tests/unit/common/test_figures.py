"""Figures: what misses a target, and that they come out of a line as they went in."""

import pytest

from fourstroke.common.figures import Figure, summarise


def figure(p50: float, target: float | None, unit: str = "ms") -> Figure:
    return Figure("case", "what", unit, 9, p50, 99.0, 100.0, target, {"part": 0.5})


@pytest.mark.parametrize(
    "p50, target, slack, missed",
    [
        (2.0, 2.0, 1.0, False),
        (2.1, 2.0, 1.0, True),
        (2.1, 2.0, 1.5, False),
        (3.0, 2.0, 1.5, False),
        (3.1, 2.0, 1.5, True),
        (1e9, None, 1.0, False),
    ],
)
def test_missed(p50: float, target: float | None, slack: float, missed: bool) -> None:
    """The median is compared, whatever the other numbers are; what has no target misses none."""
    assert figure(p50, target).missed(slack) is missed


@pytest.mark.parametrize("unit", ["bytes", "calls"])
def test_slack_is_for_times(unit: str) -> None:
    """A machine that is slow makes no message longer."""
    assert figure(2.1, 2.0, unit).missed(1.5)
    assert not figure(2.0, 2.0, unit).missed(1.5)


@pytest.mark.parametrize("one", [figure(1.5, 2.0, "µs"), figure(1.5, None), Figure("a", "b", "ms", 1, 1, 1, 1)])
def test_a_line(one: Figure) -> None:
    """One line, without a line feed in it, and the same figure comes back."""
    assert "\n" not in one.line
    assert Figure.read(one.line) == one


@pytest.mark.parametrize("line", ["", "[]", "{}", "7", "measuring", '{"case": "a"}'])
def test_no_figure(line: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError):
        Figure.read(line)


def test_summary() -> None:
    """Median, 99th percentile and maximum of all values, in whatever order they come."""
    values = [float(value) for value in range(100, -1, -1)]
    one = summarise("case", "what", "ms", values, 3.0, {"part": 1.0})
    assert one == Figure("case", "what", "ms", 101, 50.0, 99.0, 100.0, 3.0, {"part": 1.0})
    assert summarise("case", "what", "ms", [4.0]) == Figure("case", "what", "ms", 1, 4.0, 4.0, 4.0)
