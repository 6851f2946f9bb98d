"""Rows whose past decides what may follow, in the scheduler's core with the real runner: penalties and grammars.

The executor sees neither cached tokens nor what a request said before it was preempted; drafts are verified with
penalties and masks that go along them. The texts are those of each request alone.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from llguidance import LLMatcher

from fourstroke.ipc.messages import Sampling
from fourstroke.procs.executor import structure
from fourstroke.procs.vocabulary import Vocabulary

from ..unit.procs.executor.tiny import EOS, VOCAB, save_folder, tiny_weights
from .test_tiny_model import PROMPTS, generate, half_sampled

WORDS = [b"", b"", b"", b"</s>", b"", b"<eot>", *(bytes([byte]) for byte in range(32, 32 + VOCAB - 8)), b"ab", b"ba"]
PATTERN = "(ab?)+c|[A-Z]{6,9}"
GRAMMAR = LLMatcher.grammar_from_regex(PATTERN)
PENALTIES = {"repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4}


def penalised(rid: int) -> Sampling:
    """Some have one penalty, some all."""
    names = [[name] for name in PENALTIES] + [list(PENALTIES)]
    chosen = {name: PENALTIES[name] for name in names[rid % 4]}
    return dataclasses.replace(half_sampled(rid), **chosen, logprobs=1)


def structured(rid: int) -> Sampling:
    """All obey a grammar, every third with penalties."""
    return dataclasses.replace(half_sampled(rid), **PENALTIES if rid % 3 == 0 else {}, grammar=GRAMMAR)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_folder(tmp_path_factory.mktemp("models") / "tiny", tiny_weights())


@pytest.fixture(autouse=True)
def vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's folder has none."""
    monkeypatch.setattr(structure, "load_vocabulary", lambda _: Vocabulary(WORDS, frozenset(EOS)))


def texts(model: Path, rule: object, **arrangement: object) -> list[list[int]]:
    return generate(model, PROMPTS, rule=rule, ignore_eos=rule is penalised, **arrangement)[0]


@pytest.fixture(scope="module")
def alone(model: Path) -> dict[object, list[list[int]]]:
    """One request at a time, prompts whole, depth 1, no drafts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "load_vocabulary", lambda _: Vocabulary(WORDS, frozenset(EOS)))
        return {rule: texts(model, rule, rows=1, depth=1) for rule in (penalised, structured)}


def test_they_are_steered(model: Path, alone: dict[object, list[list[int]]]) -> None:
    """Penalties change texts; what is whole obeys the grammar, what was cut begins like that."""
    plain = generate(model, PROMPTS)[0]
    assert sum(one != other for one, other in zip(alone[penalised], plain, strict=True)) > len(PROMPTS) // 2
    for tokens in alone[structured]:
        text = b"".join(WORDS[token] for token in tokens if token not in EOS).decode()
        assert re.fullmatch(PATTERN, text) or (tokens[-1] not in EOS and re.fullmatch("(ab?)+|[A-Z]{,9}", text))
        assert all(token not in EOS for token in tokens[:-1])
    assert any(tokens[-1] in EOS for tokens in alone[structured])


@pytest.mark.parametrize("rule", [penalised, structured])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("drafts", [0, 1, 3])
@pytest.mark.parametrize("blocks", [10, 256], ids=["preempting", "roomy"])
def test_arrangements(
    model: Path, alone: dict[object, list[list[int]]], rule: object, depth: int, drafts: int, blocks: int
) -> None:
    """In a batch, in chunks, preempted, at depth 2, with drafts and a prefix cache: the tokens of each alone."""
    found = texts(model, rule, depth=depth, drafts=drafts, blocks=blocks, budget=64, cache=True)
    assert found == alone[rule]
