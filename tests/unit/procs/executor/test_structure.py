"""Structured output beside the sampler: what may follow, after drafts too, and rows that fail alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from llguidance import LLMatcher, LLParserLimits

from fourstroke.common.errors import ModelError
from fourstroke.procs import grammar
from fourstroke.procs.executor import structure
from fourstroke.procs.executor.structure import Grammars, Structure
from fourstroke.procs.vocabulary import Vocabulary

LETTERS = [bytes([byte]) for byte in range(32, 127)]
WORDS = [b"left", b"right", b"ri", b"ab", b'{"', b'":']
VOCABULARY = Vocabulary([b"</s>", b"<eot>", *LETTERS, *WORDS, b""], frozenset({0, 1}))
SIZE = len(VOCABULARY.token_bytes) + 3  # as models have it that pad their vocabulary
EOS = (0, 1)
BOMB = LLMatcher.grammar_from_regex(".*a.{40}")


def ids(*texts: str) -> list[int]:
    return [VOCABULARY.token_bytes.index(text.encode()) for text in texts]


def regex(pattern: str) -> str:
    return LLMatcher.grammar_from_regex(pattern)


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(lambda: VOCABULARY, SIZE, EOS)


def may_follow(row: Structure, *drafts: int) -> set[int]:
    return set(np.flatnonzero(row.allowed(list(drafts))).tolist())


def test_only_what_the_grammar_allows_and_then_eos(grammars: Grammars) -> None:
    """A word in any pieces; behind its end nothing but EOS, again and again. A padded id is no token."""
    row = Structure(grammars, regex("left|right"), [])
    assert may_follow(row) == set(ids("l", "left", "r", "ri", "right"))
    row.follow(ids("ri"))
    row.follow(ids("g", "h"))
    assert may_follow(row) == set(ids("t"))
    row.follow(ids("t"))
    for _ in range(3):
        assert may_follow(row) == set(EOS)
        row.follow([EOS[0]])
    assert row.failure == ""


def test_an_end_that_may_come_or_not(grammars: Grammars) -> None:
    """Where the text may end and may go on, EOS is one of several."""
    row = Structure(grammars, regex("a+"), ids("a"))
    assert may_follow(row) == {*EOS, *ids("a")}
    row.follow([EOS[1]])
    assert may_follow(row) == set(EOS)


def test_drafts_leave_nothing_behind(grammars: Grammars) -> None:
    """After drafts that the grammar allows follows what follows there; after others nothing, which rejects them."""
    row = Structure(grammars, regex("(ab)*c"), ids("a"))
    for _ in range(2):
        assert may_follow(row, *ids("b", "ab")) == set(ids("a", "ab", "c"))
        assert may_follow(row, *ids("b", "c")) == set(EOS)
        assert may_follow(row, *ids("b", "c"), EOS[0]) == set(EOS)
        assert may_follow(row, *ids("c")) == may_follow(row, *ids("b", "b")) == set()
        assert may_follow(row) == set(ids("b"))


@pytest.mark.parametrize("said", range(9))
def test_a_row_that_begins_in_the_middle(grammars: Grammars, said: int) -> None:
    """After preemption the same may follow as before, at any place."""
    schema = json.dumps({"type": "object", "properties": {"ab": {"type": "integer"}}, "required": ["ab"]})
    of_schema = LLMatcher.grammar_from_json_schema(schema)
    text = ids('{"', "ab", '":', " ", "-", "4", "2", "}")
    alone = Structure(grammars, of_schema, [])
    for token in text[:said]:
        assert token in may_follow(alone)
        alone.follow([token])
    assert may_follow(Structure(grammars, of_schema, text[:said])) == may_follow(alone)


def test_a_grammar_that_outgrows_its_limits(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row fails, with words; what one has done to the states that they share makes no other fail earlier."""
    monkeypatch.setattr(grammar, "_LIMITS", LLParserLimits(max_lexer_states=300, verbose_errors=False))
    text = np.random.default_rng(0).choice(ids(*"abcdefgh", "ab"), 1000).tolist()
    lengths = []
    for _ in range(3):
        row = Structure(grammars, BOMB, [])
        while may_follow(row):
            row.follow([text[len(row._said)]])
        assert "cannot be followed" in row.failure and "too many states" in row.failure
        lengths.append(len(row._said))
    assert 10 < lengths[0] <= min(lengths)
    assert may_follow(Structure(grammars, regex("a"), [])) == set(ids("a"))


def test_compiled_grammars_are_kept_but_not_all(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was used is compiled once, one that was pushed out again."""
    compiled = []
    make = structure.compile_grammar
    monkeypatch.setattr(structure, "compile_grammar", lambda *given: compiled.append(given[1]) or make(*given))
    few = [regex(f"x{number}") for number in range(structure._KEPT + 1)]
    for one in [few[0], few[0], *few[1:], few[0], few[-1]]:
        grammars.begin(one)
    assert compiled == [*few, few[0]]


def test_a_model_without_a_vocabulary() -> None:
    """Its rows fail, and say so."""

    def load() -> Vocabulary:
        raise ModelError("tokenizer.json is missing")

    for none in (Grammars(load, SIZE, EOS), Grammars(lambda: VOCABULARY, SIZE, ())):
        row = Structure(none, regex("a"), [])
        assert may_follow(row) == set()
        assert "not there for this model" in row.failure
