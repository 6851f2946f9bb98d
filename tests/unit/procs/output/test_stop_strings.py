"""The stop matcher equals a search of the whole text after each piece."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.procs.output import stop_strings
from fourstroke.procs.output.stop_strings import StopMatcher

few_letters = st.text("ab", max_size=6)
stops = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)
pieces = st.lists(st.tuples(few_letters, st.booleans()), max_size=10)


def first_match(stops: list[str], before: str, text: str) -> tuple[int, str] | None:
    """(end, stop string) of the match in `text` that ends first behind `before`; of equal ends, the longest."""
    for end in range(len(before) + 1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return end, max(found, key=len)
    return None


def held(stops: list[str], text: str) -> int:
    """How long the longest end of a text is that is the beginning, and not the whole, of a stop string."""
    lengths = range(min(len(text), max(map(len, stops)) - 1), 0, -1)
    return next((n for n in lengths if any(len(s) > n and s.startswith(text[-n:]) for s in stops)), 0)


@given(stops, pieces, st.booleans())
def test_equals_a_search_of_the_whole_text(stops, pieces, include):
    """The same match, the same text before it, and never more held back than may become a stop string."""
    matcher, text, sent = StopMatcher(stops, include), "", ""
    for piece, may_stop in pieces:
        before, text = text, text + piece
        delta, found = matcher.push(piece, may_stop)
        sent += delta
        match = first_match(stops, before, text) if may_stop else None
        if match is not None:
            end, stop = match
            assert found == stop
            assert sent == text[: end if include else end - len(stop)]
            assert matcher.flush() == ""
            return
        assert found is None
        assert sent == text[: len(text) - held(stops, text)]
    assert sent + matcher.flush() == text


def test_every_transition():
    """Wherever a string breaks off, just as much is held back as may begin it anew: all strings of up to 7 letters."""
    for length in range(1, 8):
        for stop in map("".join, product("ab", repeat=length)):
            for text in (stop[:matched] + letter for matched in range(length) for letter in "ab"):
                delta, found = StopMatcher([stop], False).push(text, True)
                expected = (text[: len(text) - held([stop], text)], None) if text != stop else ("", stop)
                assert (delta, found) == expected, (stop, text)


@given(stops, st.permutations(range(4)), few_letters)
def test_order_of_the_strings_does_not_matter(stops, order, text):
    """The same strings in another order give the same answer."""
    shuffled = [stops[place] for place in order if place < len(stops)]
    assert StopMatcher(stops, False).push(text, True) == StopMatcher(shuffled, False).push(text, True)


@pytest.mark.parametrize("letters", ["a", "ab", "aab", "aaab"])
def test_cost_of_a_letter_stays_flat(letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 100,000 letters the automaton of a string falls back at most once a letter, however much has matched."""
    steps = 0

    class Counting(tuple[int, ...]):
        def __getitem__(self, place):
            nonlocal steps
            steps += 1
            return super().__getitem__(place)

    real = stop_strings._borders
    monkeypatch.setattr(stop_strings, "_borders", lambda stop: Counting(real(stop)))
    stops = [letters * 200 + "x", "a" * 1000 + "x", "b" + letters * 99 + "x"]
    matcher = StopMatcher(stops, False)
    for _ in range(100_000 // len(letters)):
        matcher.push(letters, True)
    assert steps <= 100_000 * len(stops)


def test_longest_of_equal_ends():
    """Of two strings that are complete at the same character the longer one counts: no part of it is sent."""
    assert StopMatcher(["b", "ab"], False).push("xab", True) == ("x", "ab")


def test_passed_over_string_may_begin_a_later_one():
    """A string that is passed over may share its end with one that counts."""
    matcher = StopMatcher(["aa"], False)
    assert matcher.push("aa", False) == ("a", None)
    assert matcher.push("a", True) == ("", "aa")
