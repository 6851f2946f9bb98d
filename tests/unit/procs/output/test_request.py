"""A request's text equals that of a naive model that decodes and searches everything again after each token."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.types import Finish
from fourstroke.ipc.messages import Opened, Ticket
from fourstroke.procs.detokenizer import TokenTable
from fourstroke.procs.output.request import End, Request
from fourstroke.procs.vocabulary import Vocabulary

TOKENS = [b"a", b"b", b"ab", b"ba b", b"\xe4\xb8", b"\x96", b"\xf0\x9f\x91", b"\x8b", b"\xff", b"", b"<end>"]
END = 10
TABLE = TokenTable.of(Vocabulary(TOKENS, frozenset({END})))
ENDS = [finish for finish in Finish if finish is not Finish.NONE]

tickets = st.builds(
    Ticket,
    reply_to=st.just("ingest0"),
    stop=st.lists(st.sampled_from(["a", "ab", "ba", "bab", "\ufffd", "世", "b世a", "<end>"]), max_size=3).map(tuple),
    include_stop=st.booleans(),
    skip_special=st.booleans(),
    min_tokens=st.integers(0, 4),
)
chunks = st.lists(st.lists(st.integers(0, len(TOKENS) - 1), max_size=4), min_size=1, max_size=5)


@dataclass
class Outcome:
    text: str
    finish: Finish
    stop_string: str | None
    tokens: int


def text_of(tokens: list[int], ticket: Ticket) -> str:
    """One whole decode; an incomplete tail is found by asking whether some continuation completes it."""
    data = b"".join([b"" if token == END and ticket.skip_special else TOKENS[token] for token in tokens])
    tails = [b"\xe4\xb8", b"\xf0\x9f\x91"]  # the only unfinished characters of this vocabulary
    tail = next((tail for tail in tails if data.endswith(tail)), b"")
    return data.removesuffix(tail).decode("utf-8", "replace")


def naive(tokens: list[int], ticket: Ticket, finish: Finish, stopped_by_id: bool) -> Outcome:
    for count in range(1, len(tokens) + 1 - stopped_by_id):
        before, text = text_of(tokens[: count - 1], ticket), text_of(tokens[:count], ticket)
        for end in range(len(before) + 1, len(text) + 1):
            found = [stop for stop in ticket.stop if text[:end].endswith(stop)]
            if found and count > ticket.min_tokens:
                stop = max(found, key=len)
                return Outcome(text[: end if ticket.include_stop else end - len(stop)], Finish.STOP, stop, count)
    shown = tokens[:-1] if stopped_by_id and not ticket.include_stop else tokens
    return Outcome(text_of(shown, ticket), finish, None, len(tokens))


@given(tickets, chunks, st.sampled_from(ENDS))
def test_equals_the_naive_model(ticket, chunks, finish):
    """Any tokens, in any pieces, with any end: text, finish, stop string and count are the naive model's."""
    request = Request(Opened(7, 3, b""), ticket, TABLE)
    text, counted, ending = "", 0, None
    for place, chunk in enumerate(chunks):
        last = place == len(chunks) - 1
        piece = request.push(chunk, End(finish, -1, "why") if last else None)
        text, counted, ending = text + piece.delta, counted + piece.tokens, piece.ending
        if ending is not None:
            break
    stopped_by_id = finish is Finish.STOP and bool(chunks[-1])
    expected = naive([token for chunk in chunks for token in chunk], ticket, finish, stopped_by_id)
    assert ending is not None
    assert Outcome(text, ending.finish, ending.stop_string, ending.tokens) == expected
    assert counted == ending.tokens
    assert (ending.rid, request.cached_tokens) == (7, 3)
    assert ending.detail == ("" if ending.stop_string else "why")


def push(tokens, finish=Finish.LENGTH, **ticket):
    values = {"reply_to": "ingest0", "stop": (), "include_stop": False, "skip_special": True, "min_tokens": 0}
    request = Request(Opened(1, 0, b""), Ticket(**{**values, **ticket}), TABLE)
    return request.push(tokens, End(finish, -1))


@pytest.mark.parametrize("include, text", [(False, ""), (True, "👋")], ids=["dropped", "included"])
def test_stop_id_that_completes_a_character(include, text):
    """A stop id leaves no half of a character behind, whether its own text is included or not."""
    piece = push([6, 7], Finish.STOP, include_stop=include)
    assert (piece.delta, piece.tokens) == (text, 2)


def test_stop_string_on_the_last_token_replaces_length():
    """Stop strings are tested before max_tokens."""
    ending = push([0, 1], Finish.LENGTH, stop=("b",)).ending
    assert (ending.finish, ending.stop_string) == (Finish.STOP, "b")


def test_marker() -> None:
    """A control token that is a marker is in the text that has no others, and a stop string sees it."""
    assert push([0, END, 1]).delta == "ab"
    assert push([0, END, 1], markers=(END,)).delta == "a<end>b"
    assert push([0, END, 1], markers=(END,), stop=("<",)).delta == "a"


def test_stop_id_is_tested_before_stop_strings():
    """A stop id whose text would complete a stop string is the reason, and its text stays if asked for."""
    piece = push([0, 1], Finish.STOP, stop=("ab",), include_stop=True)
    assert (piece.delta, piece.ending.stop_string) == ("ab", None)


def test_text_held_back_is_flushed_before_a_stop_id():
    """Text kept back for a stop string that never came is sent when a stop id ends the request."""
    assert push([0, END], Finish.STOP, stop=("ab",)).delta == "a"


@pytest.mark.parametrize("min_tokens, counted", [(0, 1), (1, 2), (2, 3), (3, 4), (9, 4)])
def test_min_tokens_defers_stop_strings(min_tokens, counted):
    """Like EOS, a stop string counts only behind the first min_tokens tokens."""
    assert push([0, 0, 0, 0], stop=("a",), min_tokens=min_tokens).tokens == counted


def test_state_does_not_grow():
    """After many tokens nothing is kept but what may still become a character or a stop string."""
    request = Request(Opened(1, 0, b""), Ticket("ingest0", ("abx",), False, True, 0), TABLE)
    deltas = [request.push([2]).delta for _ in range(10_000)]
    assert "".join(deltas) == "ab" * 9_999
    assert max(map(len, deltas)) == 2
