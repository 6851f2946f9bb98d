"""One Emit, many requests: rows do not disturb each other, whatever some of them hold."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import Finish
from fourstroke.ipc import codec
from fourstroke.ipc.logprobs import pack, unpack
from fourstroke.ipc.messages import Detail, Drain, Emit, Ending, Endings, Opened, RemoteKv, Text, Ticket
from fourstroke.procs.detokenizer import TokenTable
from fourstroke.procs.output.core import OutputCore
from fourstroke.procs.vocabulary import Vocabulary

LETTERS = [bytes([code]) for code in range(ord("a"), ord("z") + 1)]
TABLE = TokenTable.of(Vocabulary(LETTERS, frozenset({25})))


ENDS = [finish for finish in Finish if finish is not Finish.NONE]


def opened(rid, reply_to="ingest0", stop=(), cached=0, include_stop=False, min_tokens=0, generated=""):
    before = column([ord(letter) - ord("a") for letter in generated], "<i4")
    ticket = Ticket(reply_to, tuple(stop), include_stop, True, min_tokens, generated=before)
    return Opened(rid, cached, codec.encode(ticket))


def column(values, kind):
    return np.array(values, kind).tobytes()


def emit(rows=(), opened=(), ended=(), logprobs=(), prompt_logprobs=()):
    """An Emit and its tokens, from (rid, text) rows, ends and (rid, words) of log-probabilities."""
    tokens = np.array([ord(letter) - ord("a") for _, text in rows for letter in text], np.int32)
    rids, counts = column([rid for rid, _ in rows], "<i8"), column([len(text) for _, text in rows], "<i4")
    values = pack(logprobs), pack(prompt_logprobs)
    return Emit(tuple(opened), rids, counts, 0, len(tokens), endings(ended), *values), tokens


def endings(ended):
    """The columns of some ends."""
    rids, finishes, stop_tokens, details = zip(*ended, strict=True) if ended else [()] * 4
    return Endings(
        column(rids, "<i8"),
        column(finishes, "i1"),
        column(stop_tokens, "<i4"),
        tuple(Detail(rid, detail) for rid, detail in zip(rids, details, strict=True) if detail),
    )


class Output:
    """A core, and what it rejected."""

    def __init__(self):
        self.rejected: list[BadMessage] = []
        self.core = OutputCore(TABLE, ("ingest0", "ingest1"), self.rejected.append)

    def __call__(self, *args, **parts):
        return self.core.handle(*emit(*args, **parts))


NOTHING = Text(b"", b"", (), b"", ())


def rows_of(text: Text) -> list[tuple[int, str, list[int]]]:
    """(rid, delta, token ids) of each row."""
    rids, counts = np.frombuffer(text.rids, "<i8").tolist(), np.frombuffer(text.counts, "<i4").tolist()
    ids, last = np.frombuffer(text.token_ids, "<i4").tolist(), np.cumsum(counts).tolist()
    assert len(ids) == sum(counts)
    spans = zip(rids, text.deltas, last, counts, strict=True)
    return [(rid, delta, ids[end - count : end]) for rid, delta, end, count in spans]


def end(rid, finish=Finish.LENGTH, stop_token=-1, detail=""):
    return rid, finish, stop_token, detail


def test_rows_reach_the_ingest_of_their_ticket():
    """Each ingest gets one Text with its own rows, in order."""
    output = Output()
    texts = output([(1, "ab"), (2, "c"), (3, "d")], [opened(1), opened(2, "ingest1"), opened(3)])
    assert {name: rows_of(text) for name, text in texts.items()} == {
        "ingest0": [(1, "ab", [0, 1]), (3, "d", [3])],
        "ingest1": [(2, "c", [2])],
    }
    assert output.core.detokenized_tokens == 4


def test_tokens_behind_a_stop_string_are_never_counted():
    """Text, ids and usage end with the token that completes the string, and later rows are dropped."""
    output = Output()
    texts = output([(1, "abcd")], [opened(1, stop=["bc"], cached=5)])
    assert rows_of(texts["ingest0"]) == [(1, "a", [0, 1, 2])]
    assert texts["ingest0"].endings == (Ending(1, Finish.STOP, "bc", -1, 3, ""),)
    assert (texts["ingest0"].opened, texts["ingest0"].cached_tokens) == (column([1], "<i8"), column([5], "<i4"))
    assert output([(1, "ef")]) == {}
    assert output(ended=[end(1)]) == {}
    assert (output.core.stop_strings, output.core.unknown_requests, len(output.core)) == (1, 2, 0)


@pytest.mark.parametrize("finish", [Finish.REJECTED, Finish.ABORT, Finish.ERROR, Finish.TIMEOUT])
def test_request_that_ends_before_its_first_token(finish):
    """Opened and an end in one Emit give an Ending and no row."""
    texts = Output()(opened=[opened(1)], ended=[end(1, finish, detail="too long")])
    assert rows_of(texts["ingest0"]) == []
    assert texts["ingest0"].endings == (Ending(1, finish, None, -1, 0, "too long"),)


def test_end_without_tokens_flushes_what_was_held_back():
    """The last delta may come with no token."""
    output = Output()
    assert rows_of(output([(1, "a")], [opened(1, stop=["ab"])])["ingest0"]) == [(1, "", [0])]
    assert rows_of(output(ended=[end(1, Finish.ABORT)])["ingest0"]) == [(1, "a", [])]


def test_stop_token_is_passed_on():
    """The stop id is named, its text is not shown, and it is counted."""
    texts = Output()([(1, "ab")], [opened(1)], [end(1, Finish.STOP, stop_token=1)])
    assert rows_of(texts["ingest0"]) == [(1, "a", [0, 1])]
    assert texts["ingest0"].endings == (Ending(1, Finish.STOP, None, 1, 2, ""),)


@pytest.mark.parametrize("cut", range(7))
def test_a_request_that_goes_on(cut):
    """What was said before is not said again, and a stop string is found across the place where it was handed over."""
    ids, limits = [ord(letter) - ord("a") for letter in "xababc"], {"stop": ["abc"], "min_tokens": 2}
    output = Output()
    before = rows_of(output([(1, "xababc"[:cut])], [opened(1, **limits)]).get("ingest0", NOTHING))
    if cut == 6:
        assert before == [(1, "xab", ids)]
        return
    again = Output()
    texts = again([(2, "xababc"[cut:])], [opened(2, generated="xababc"[:cut], cached=9, **limits)])
    (after,) = rows_of(texts["ingest0"])
    assert "".join(text for _, text, _ in before) + after[1] == "xab"
    assert after[2] == ids[cut:]
    assert texts["ingest0"].endings == (Ending(2, Finish.STOP, "abc", -1, 6, ""),)


def test_a_request_is_opened_once():
    """A request that is opened again goes on as it was, and that is counted."""
    output = Output()
    output([(1, "a")], [opened(1, stop=["ab"])])
    assert rows_of(output([(1, "b")], [opened(1)])["ingest0"]) == [(1, "", [1])]
    assert len(output.rejected) == 1


def test_what_a_dead_scheduler_had_is_forgotten():
    """Its requests are unknown from then on, and may be opened under new ids."""
    output = Output()
    output([(1, "a")], [opened(1)])
    output.core.forget()
    assert not len(output.core)
    assert output([(1, "b")]) == {}
    assert output.core.unknown_requests == 1


@pytest.mark.parametrize(
    "ticket",
    [b"", b"\xff" * 9, codec.encode(Drain())],
    ids=["empty", "garbage", "another-tag"],
)
def test_corrupt_ticket(ticket):
    """A corrupt ticket loses its own request, counted, and no other row."""
    output = Output()
    texts = output([(1, "a"), (2, "b")], [Opened(1, 0, ticket), opened(2)])
    assert rows_of(texts["ingest0"]) == [(2, "b", [1])]
    assert (len(output.rejected), output.core.unknown_requests) == (1, 1)


@pytest.mark.parametrize("bad", [opened(1, "nobody"), opened(1, stop=["a", ""])], ids=["reply-to", "empty-stop"])
def test_ticket_that_cannot_be_served(bad):
    """A ticket of the right shape with a wrong content loses only its own request."""
    output = Output()
    assert rows_of(output([(1, "a"), (2, "b")], [bad, opened(2)])["ingest0"]) == [(2, "b", [1])]
    assert len(output.rejected) == 1


@pytest.mark.parametrize(
    "rids, counts",
    [
        (column([1, 2], "<i8"), column([2], "<i4")),
        (column([1], "<i8"), column([1, 1], "<i4")),
        (column([1], "<i8")[:-1], column([2], "<i4")),
        (column([1, 2], "<i8"), column([3, -1], "<i4")),
        (column([1], "<i8"), column([1], "<i4")),
        (column([1], "<i8"), column([3], "<i4")),
        (column([1, 2, 3], "<i8"), column([2**31 - 1, 2**31 - 1, 4], "<i4")),
        (b"", b""),
    ],
    ids=["few-counts", "many-counts", "odd-bytes", "negative", "too-few", "too-many", "overflow", "none"],
)
def test_columns_that_do_not_agree(rids, counts):
    """Such an Emit is dropped as a whole, counted, and the next one is served."""
    output = Output()
    output(opened=[opened(1)])
    assert output.core.handle(Emit((), rids, counts, 0, 2), np.zeros(2, np.int32)) == {}
    assert len(output.rejected) == 1
    assert rows_of(output([(1, "a")])["ingest0"]) == [(1, "a", [0])]


def test_ids_outside_the_vocabulary():
    """They have no text, stay in the ids, and are rejected once for each Emit."""
    output = Output()
    output(opened=[opened(1)])
    message = Emit((), column([1], "<i8"), column([4], "<i4"), 0, 4)
    texts = output.core.handle(message, np.array([-1, 0, 26, 2**31 - 1], np.int32))
    assert rows_of(texts["ingest0"]) == [(1, "a", [-1, 0, 26, 2**31 - 1])]
    assert len(output.rejected) == 1


@pytest.mark.parametrize("finish", [Finish.NONE, 7, -1])
def test_end_without_a_reason(finish):
    """An end for no reason that there is is rejected and ends nothing; one beside it ends its request."""
    output = Output()
    texts = output([(1, "a"), (2, "b")], [opened(1), opened(2)], [end(1, finish), end(2)])
    assert [ending.rid for ending in texts["ingest0"].endings] == [2]
    assert (len(output.rejected), len(output.core)) == (1, 1)


GOOD = endings([end(1), end(2)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rids": GOOD.rids[:8]},
        {"rids": GOOD.rids[:-1]},
        {"rids": b""},
        {"finishes": b""},
        {"finishes": GOOD.finishes * 2},
        {"stop_tokens": GOOD.stop_tokens[:4]},
        {"stop_tokens": GOOD.stop_tokens[:-1]},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_ends_that_do_not_agree(wrong):
    """Columns of ends that do not fit each other lose the Emit, counted, and the next one is served."""
    output = Output()
    output(opened=[opened(1), opened(2)])
    message, tokens = emit([(1, "a")])
    bad = dataclasses.replace(message, ended=dataclasses.replace(GOOD, **wrong))
    assert output.core.handle(bad, tokens) == {}
    assert (len(output.rejected), len(output.core)) == (1, 2)
    assert len(output(ended=[end(1), end(2)])["ingest0"].endings) == 2


def test_details():
    """Words about an end reach it; what is for other engines, and words about nobody's end, are passed by."""
    details = (Detail(2, "why", RemoteKv(True, False)), Detail(77, "nobody"))
    message, tokens = emit([(1, "a")], [opened(1), opened(2)], [end(1), end(2)])
    message = dataclasses.replace(message, ended=dataclasses.replace(message.ended, details=details))
    output = Output()
    found = output.core.handle(message, tokens)["ingest0"].endings
    assert {ending.rid: ending.detail for ending in found} == {1: "", 2: "why"}
    assert output.rejected == []


# Log-probabilities


def words(count, top=1, first=0):
    """Words of so many tokens, which are all different."""
    return np.arange(first, first + count * (1 + 2 * top), dtype=np.int32).reshape(count, 1 + 2 * top)


def logprobs_of(values):
    """The words of each request as lists."""
    return {rid: found.tolist() for rid, found in unpack(values).items()}


def test_logprobs_travel_with_their_tokens():
    """Each ingest gets those of its own requests; a request that wants none has none."""
    rows, two, three = [(1, "ab"), (2, "c"), (3, "d")], words(2), words(1, 20, 50)
    texts = Output()(rows, [opened(1), opened(2), opened(3, "ingest1")], logprobs=[(3, three), (1, two)])
    assert logprobs_of(texts["ingest0"].logprobs) == {1: two.tolist()}
    assert logprobs_of(texts["ingest1"].logprobs) == {3: three.tolist()}
    assert len(rows_of(texts["ingest0"])) == 2


def test_logprobs_end_with_a_stop_string():
    """Behind the token that completes the string there are none."""
    texts = Output()([(1, "abcd")], [opened(1, stop=["bc"])], logprobs=[(1, words(4))])
    assert logprobs_of(texts["ingest0"].logprobs) == {1: words(4)[:3].tolist()}


def test_logprobs_of_a_prompt():
    """They are passed on as they come: before any token, with the first, or with an end that has no tokens."""
    output = Output()
    (text,) = output(opened=[opened(1)], prompt_logprobs=[(1, words(3))]).values()
    assert (rows_of(text), logprobs_of(text.prompt_logprobs)) == ([], {1: words(3).tolist()})
    (text,) = output([(1, "a")], logprobs=[(1, words(1))], prompt_logprobs=[(1, words(2, 1, 9))]).values()
    assert (logprobs_of(text.logprobs), logprobs_of(text.prompt_logprobs)) == (
        {1: words(1).tolist()},
        {1: words(2, 1, 9).tolist()},
    )
    (text,) = output(opened=[opened(2)], ended=[end(2)], prompt_logprobs=[(2, words(5))]).values()
    assert (len(text.endings), logprobs_of(text.prompt_logprobs)) == (1, {2: words(5).tolist()})
    assert output(prompt_logprobs=[(2, words(5))]) == {}
    assert output.core.unknown_requests == 1


@pytest.mark.parametrize(
    "parts",
    [
        {"logprobs": [(1, words(1))]},
        {"logprobs": [(1, words(3))]},
        {"logprobs": [(2, words(2))]},
        {"logprobs": [(1, words(2)), (2, words(0))]},
        {"logprobs": [(1, words(2)), (1, words(2))]},
        {"prompt_logprobs": [(1, words(2)), (1, words(2))]},
    ],
    ids=["fewer", "more", "nobody's", "nobody's-none", "twice", "twice-prompt"],
)
def test_logprobs_of_other_tokens(parts):
    """Log-probabilities that are not those of the rows lose the Emit, counted, and the next one is served."""
    output = Output()
    assert output([(1, "ab")], [opened(1)], **parts) == {}
    assert len(output.rejected) == 1
    texts = output([(1, "ab")], [opened(1)], logprobs=[(1, words(2))])
    assert logprobs_of(texts["ingest0"].logprobs) == {1: words(2).tolist()}


@given(st.text("abc", max_size=12), st.lists(st.integers(0, 4), max_size=6), st.integers(0, 4), st.sampled_from(ENDS))
def test_logprobs_of_exactly_the_tokens_that_count(tokens, cuts, min_tokens, finish):
    """However the tokens are cut into Emits: ids, entries and the usage are the same number of the same tokens."""

    def run(sizes):
        ids, entries, ending, start = [], [], None, 0
        output = Output()
        output(opened=[opened(1, stop=["bc", "aa"], min_tokens=min_tokens)])
        for size in [*sizes, len(tokens)]:
            part, ended = tokens[start : start + size], [end(1, finish)] if start + size >= len(tokens) else []
            for text in output([(1, part)], ended=ended, logprobs=[(1, words(len(part), 2, start * 5))]).values():
                ids += [token for _, _, row in rows_of(text) for token in row]
                entries += [entry for found in logprobs_of(text.logprobs).values() for entry in found]
                ending = [*text.endings, ending][0]
            start += size
            if ended or ending is not None:
                break
        return ids, entries, ending

    ids, entries, ending = run(cuts)
    assert (ids, entries, ending) == run([1] * len(tokens)) == run([])
    assert ids == [ord(letter) - ord("a") for letter in tokens[: ending.tokens]]
    assert entries == words(ending.tokens, 2).tolist()


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.text("abc", max_size=3)), max_size=6), max_size=6))
def test_neighbours_do_not_matter(emits):
    """A request's text, ids and end are the same alone and beside others."""
    stops = {0: ["ab"], 1: [], 2: ["c", "cb"], 3: ["aaa"]}

    def run(kept):
        output, answers = Output(), {rid: ("", [], None) for rid in kept}
        output(opened=[opened(rid, f"ingest{rid % 2}", stops[rid]) for rid in kept])
        last = ([], [], [end(rid) for rid in kept])
        for parts in [([row for row in rows if row[0] in kept], [], []) for rows in emits] + [last]:
            for text in output(*parts).values():
                for rid, delta, ids in rows_of(text):
                    said, so_far, ending = answers[rid]
                    answers[rid] = (said + delta, so_far + ids, ending)
                for ending in text.endings:
                    answers[ending.rid] = (*answers[ending.rid][:2], ending)
        return answers

    together = run([0, 1, 2, 3])
    assert together == run([0]) | run([1]) | run([2]) | run([3])
    assert all(ending is not None and ending.tokens == len(ids) for _, ids, ending in together.values())
