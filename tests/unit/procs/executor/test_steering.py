"""What a row does to its logits: the order of penalties, biases and masks, and what stays out of the vocabulary."""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher

from fourstroke.ipc.messages import NewRow, Sampling
from fourstroke.procs.executor.rows import Rows
from fourstroke.procs.executor.steering import NOT_FINITE, Steering
from fourstroke.procs.executor.structure import Grammars
from fourstroke.procs.vocabulary import Vocabulary

VOCABULARY = Vocabulary([b"</s>", b"a", b"b", b"c"], frozenset({0}))
GRAMMARS = Grammars(lambda: VOCABULARY, 5, (0,))
PLAIN = (0.0, 0, 1.0, 0.0)


def steered(new: NewRow, position: int = 9, drafts: tuple[int, ...] = ()) -> list[float]:
    """What becomes of logits of 1."""
    logits = np.ones(5, np.float32)
    Steering(new, GRAMMARS).apply(logits, position, drafts)
    return logits.tolist()


def column(*tokens: int) -> bytes:
    return np.array(tokens, np.int32).tobytes()


def test_penalties_come_before_biases() -> None:
    """A bias of 100 is a bias of 100, whatever is penalised."""
    sampling = Sampling(*PLAIN, (1, 4), (100.0, -1.5), repetition_penalty=2.0, frequency_penalty=1.0)
    new = NewRow(0, 0, sampling, seen=column(1, 2), generated=column(3, 3))
    assert steered(new) == [1, 100.5, 0.5, -1.5, -0.5]
    assert steered(new, drafts=(3,)) == [1, 100.5, 0.5, -2.5, -0.5]


def test_masks_come_last() -> None:
    """Below min_tokens a stop token has no chance, whatever its bias; from there on it has."""
    new = NewRow(0, 0, Sampling(*PLAIN, (2,), (100.0,)), 10, (2, 0))
    assert steered(new, 9) == [-np.inf, 1, -np.inf, 1, 1]
    assert steered(new, 10) == [1, 1, 101, 1, 1]


def test_tokens_that_do_not_exist() -> None:
    """What a bad frame may say of tokens outside the vocabulary is ignored."""
    sampling = Sampling(*PLAIN, (-1, 5, 1), (1.0, 1.0, 1.0), repetition_penalty=2.0, presence_penalty=1.0)
    new = NewRow(0, 0, sampling, 10, (-1, 77, 2), seen=column(-5, 9, 4), generated=column(99, -1))
    assert steered(new) == [1, 2, -np.inf, 1, 0.5]


def test_min_tokens_and_a_grammar() -> None:
    """min_tokens keeps a text from its end where it can go on; where it cannot, EOS follows it."""
    for pattern, expected in (("ab*", {2}), ("a", {0})):
        sampling = Sampling(*PLAIN, grammar=LLMatcher.grammar_from_regex(pattern))
        logits = steered(NewRow(0, 0, sampling, 10, (0,), generated=column(1)))
        assert set(np.flatnonzero(np.isfinite(logits)).tolist()) == expected


def test_why_a_row_has_no_token() -> None:
    """A row with a grammar is told of it, others of their logits; the next owner of a row has nothing of the last."""
    rows = Rows(3, 1, GRAMMARS)
    rows.admit(NewRow(1, 0, Sampling(*PLAIN, grammar=LLMatcher.grammar_from_regex("a"))))
    rows.admit(NewRow(2, 0, Sampling(*PLAIN, (1,), (1.0,))))
    assert "grammar" in rows.why_failed(1)
    assert rows.why_failed(0) == rows.why_failed(2) == NOT_FINITE
    rows.admit(NewRow(1, 0, Sampling(*PLAIN)))
    assert set(rows.steering) == {2}
