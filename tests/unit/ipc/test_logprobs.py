"""Packed log-probabilities: what comes out is what went in, and a message that does not add up is a bad one."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.common.errors import BadMessage
from fourstroke.common.types import MAX_LOGPROBS
from fourstroke.ipc.logprobs import LOWEST, entries, pack, unpack
from fourstroke.ipc.messages import NO_VALUES, Logprobs

shapes = st.tuples(st.integers(0, 4), st.integers(0, MAX_LOGPROBS))
requests = st.dictionaries(st.integers(-(2**63), 2**63 - 1), shapes, max_size=5)


def numbered(count, top, first=0):
    """Words that are all different."""
    return np.arange(first, first + count * (1 + 2 * top), dtype=np.int32).reshape(count, 1 + 2 * top)


@given(requests)
def test_round_trip(shapes):
    """Any requests with any counts and widths come back as they were, in order."""
    rows = [(rid, numbered(*shape, first=1000 * place)) for place, (rid, shape) in enumerate(shapes.items())]
    found = unpack(pack(rows))
    assert list(found) == [rid for rid, _ in rows]
    assert all(np.array_equal(found[rid], words) and found[rid].shape == words.shape for rid, words in rows)


def test_view_of_a_slot():
    """Words may lie apart in memory, as those of a row in a step slot do."""
    slot = numbered(12, MAX_LOGPROBS).reshape(4, 3, -1)
    view = slot[2, :2, :5]
    assert np.array_equal(unpack(pack([(7, view)]))[7], view)


def test_nothing():
    """No request with logprobs is the message's default, and costs no array."""
    assert pack([]) is NO_VALUES
    assert unpack(Logprobs(b"", b"", b"", b"")) == {}


GOOD = pack([(1, numbered(2, 1)), (2, numbered(1, 0))])


def column(*values):
    return np.array(values, "<i4").tobytes()


@pytest.mark.parametrize(
    "wrong",
    [
        {"rids": GOOD.rids[:-1]},
        {"rids": GOOD.rids[:8]},
        {"rids": b""},
        {"rids": GOOD.rids[:8] * 2},
        {"counts": GOOD.counts[:4]},
        {"counts": column(2, -1)},
        {"counts": column(1, 1)},
        {"counts": column(2**31 - 1, 2**31 - 1)},
        {"tops": GOOD.tops * 2},
        {"tops": column(-1, 0)},
        {"tops": column(1, 1)},
        {"tops": column(2**31 - 1, 0)},
        {"values": b""},
        {"values": GOOD.values[:-1]},
        {"values": GOOD.values + bytes(4)},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_columns_that_do_not_agree(wrong):
    """Columns of lengths or contents that do not fit each other are a bad message."""
    assert len(unpack(GOOD)) == 2
    with pytest.raises(BadMessage):
        unpack(dataclasses.replace(GOOD, **wrong))


@given(st.binary(max_size=24), st.binary(max_size=12), st.binary(max_size=12), st.binary(max_size=40))
def test_any_bytes(rids, counts, tops, values):
    """Whatever the columns hold, it is read or is a bad message."""
    try:
        found = unpack(Logprobs(rids, counts, tops, values))
    except BadMessage:
        return
    assert sum(words.size for words in found.values()) * 4 == len(values)
    assert all(len(list(entries(words))) == len(words) for words in found.values())


def words(logprob, *best):
    """The words of one token; `best` are (id, logprob)."""
    ids, scores = [token for token, _ in best], [score for _, score in best]
    parts = [np.float32([logprob]).view(np.int32), np.int32(ids), np.float32(scores).view(np.int32)]
    return np.concatenate(parts)


def test_entries():
    """Each token has its own log-probability and the best tokens with theirs, best first."""
    rows = np.stack([words(-0.5, (7, -0.25), (2**31 - 1, -1)), words(-3, (0, 0), (1, -8))])
    assert [tuple(entry) for entry in entries(rows)] == [
        (-0.5, [7, 2**31 - 1], [-0.25, -1.0]),
        (-3.0, [0, 1], [0.0, -8.0]),
    ]


@pytest.mark.parametrize("value", [-math.inf, math.nan, -1e30])
def test_numbers_that_json_does_not_have(value):
    """A token without a chance has the API's number for that."""
    (entry,) = entries(words(value, (3, value)).reshape(1, 3))
    assert tuple(entry) == (LOWEST, [3], [LOWEST])


def test_rounding_above_zero():
    """No log-probability is above 0, whatever rounding did."""
    (entry,) = entries(words(1e-7).reshape(1, 1))
    assert entry.logprob == 0
