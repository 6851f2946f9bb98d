"""Speculation changes no token: with drafts or without, right or wrong, from the executor or from the host."""

from collections import deque
from pathlib import Path

import numpy as np
import pytest

from fourstroke.ipc.messages import Sampling

from .driver import GREEDY, Driver, Entry, Request, executor_config
from .tiny import CONTEXT, VOCAB

PROMPTS = [[7], [1, 2, 3, 1, 2], list(range(10, 27)), [50] * 16, list(range(90, 60, -1)), [11, 12]]
RANDOM = Sampling(1.0, 20, 0.95, 0.0)
TOKENS = 20
SEED = 77


class Oracle:
    """In the place of prompt lookup: the true continuation of a row, but every `wrong`th draft is another token."""

    def __init__(self, driver: Driver, texts: list[list[int]], wrong: int) -> None:
        self.requests: list[Request] = []
        self._texts = texts
        self._most = driver.most_drafts
        self._wrong = wrong
        self._made = 0
        driver.runner._lookup = self

    def remember(self, slots: np.ndarray, tokens: np.ndarray) -> None:
        """It knows."""

    def propose(self, table: np.ndarray, length: int, last: int) -> np.ndarray:
        place = next(n for n, request in enumerate(self.requests) if request.blocks[0] == table[0])
        request = self.requests[place]
        text = request.tokens[: request.prompt_tokens] + self._texts[place]
        assert text[length] == last
        drafts = text[length + 1 : length + 1 + self._most]
        for index, draft in enumerate(drafts):
            self._made += 1
            if self._wrong and self._made % self._wrong == 0:
                drafts[index] = (draft + 1) % VOCAB
        return np.array(drafts, np.int32)


def speculating(model: Path, drafts: int, **changes: object) -> Driver:
    """A driver of the tiny model with so many drafts."""
    return Driver(executor_config(model, max_model_len=CONTEXT, num_speculative_tokens=drafts, **changes))


def finish(driver: Driver, requests: list[Request], tokens: int = TOKENS) -> int:
    """Let rows go on by themselves until each has so many tokens; the number of steps."""
    steps = 0
    while unfinished := [request for request in requests if len(request.generated) < tokens]:
        driver.decode(unfinished, 1, last=True)
        steps += 1
    return steps


def texts_of(requests: list[Request]) -> list[list[int]]:
    """The first tokens of each; the last step may have brought some more."""
    return [request.generated[:TOKENS] for request in requests]


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM])
@pytest.mark.parametrize("drafts", [1, 3, 8])
@pytest.mark.parametrize("block_size", [1, 16])
def test_prompt_lookup_changes_no_token(tiny_model: Path, sampling: Sampling, drafts: int, block_size: int) -> None:
    """Greedy and seeded texts are those without drafts, and come in fewer steps."""
    driver = speculating(tiny_model, drafts, block_size=block_size, num_blocks=1024)
    expected = driver.generate(PROMPTS, TOKENS, sampling, seed=SEED)
    driver.reset()
    requests = [driver.add(prompt, sampling, SEED) for prompt in PROMPTS]
    driver.prefill(requests, 7)
    steps = finish(driver, requests)
    assert texts_of(requests) == expected
    assert sampling is RANDOM or sum(len(request.generated) for request in requests) > len(PROMPTS) * (1 + steps / 2)


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM])
@pytest.mark.parametrize("wrong", [0, 1, 2, 3])
def test_right_and_wrong_drafts_change_no_token(tiny_model: Path, sampling: Sampling, wrong: int) -> None:
    """All right, all wrong and mixed; right ones save as many steps as there are."""
    driver = speculating(tiny_model, 3)
    expected = driver.generate(PROMPTS, TOKENS + 8, sampling, seed=SEED)
    oracle = Oracle(driver, expected, wrong)
    driver.reset()
    requests = [driver.add(prompt, sampling, SEED) for prompt in PROMPTS]
    oracle.requests = requests
    driver.prefill(requests)
    steps = finish(driver, requests)
    assert texts_of(requests) == [text[:TOKENS] for text in expected]
    if wrong == 0:
        assert steps == -(-(TOKENS - 1) // 4)
    if wrong == 1:
        assert steps == TOKENS - 1


@pytest.mark.parametrize("seed", range(4))
def test_any_arrangement_of_steps_gives_the_same_text(tiny_model: Path, seed: int) -> None:
    """Random grants, plan orders, subsets of rows, host tokens in between, and plans made before results are known."""
    driver = speculating(tiny_model, 4, pipeline_depth=2)
    expected = driver.generate(PROMPTS, TOKENS + 10, RANDOM, seed=SEED)
    Oracle(driver, expected, 3).requests = requests = []
    driver.reset()
    requests += [driver.add(prompt, RANDOM, SEED) for prompt in PROMPTS]
    driver.prefill(requests)
    random = np.random.default_rng(seed)
    pending: deque[tuple[list[Entry], object]] = deque()
    while unfinished := [request for request in requests if len(request.generated) < TOKENS]:
        chosen = random.permutation(len(unfinished))[: random.integers(1, len(unfinished) + 1)]
        busy = [entry.request for entries, _ in pending for entry in entries]
        entries = [
            Entry(request, 1)
            if request not in busy and random.random() < 0.2
            else Entry(request, 1 + int(random.integers(0, 5)), last=True)
            for request in (unfinished[index] for index in chosen)
        ]
        pending.append((entries, driver.plan(entries)))
        if len(pending) == 2 or random.random() < 0.5:
            entries, plan = pending.popleft()
            driver.settle(entries, driver.runner.run(plan))
    for entries, plan in pending:
        driver.settle(entries, driver.runner.run(plan))
    assert texts_of(requests) == [text[:TOKENS] for text in expected]


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_drafts_from_the_host_are_verified(tiny_model: Path, right: int) -> None:
    """A row whose first token and drafts come from another engine goes on as its own would. (BT-1)"""
    driver = speculating(tiny_model, 3)
    expected = driver.generate([PROMPTS[2]], TOKENS)[0]
    driver.reset()
    request = driver.add(PROMPTS[2])
    driver.step([Entry(request, request.prompt_tokens, samples=False)])
    request.tokens.append(expected[0])
    drafts = [token if index < right else (token + 1) % VOCAB for index, token in enumerate(expected[1:4])]
    driver.step([Entry(request, 4, drafts=tuple(drafts))])
    assert len(request.generated) == 1 + right + 1
    finish(driver, [request])
    assert texts_of([request]) == [expected]


def test_masks_hold_at_the_position_of_each_draft(tiny_model: Path) -> None:
    """A token that may not be sampled yet is not accepted as a draft either, and is from its position on."""
    driver = speculating(tiny_model, 4)
    free = driver.generate([PROMPTS[4]], TOKENS)[0]
    until = len(PROMPTS[4]) + 9

    def masked_run(last: bool) -> list[int]:
        driver.reset()
        request = driver.add(PROMPTS[4])
        request.masked_until, request.masked = until, tuple(set(free[2:6]))
        driver.prefill([request])
        while len(request.generated) < TOKENS:
            driver.decode([request], 1, last)
        return request.generated[:TOKENS]

    expected = masked_run(last=False)
    assert not set(expected[:9]) & set(free[2:6])
    Oracle(driver, [free + free], 0)
    driver.runner._lookup.propose = lambda *_: np.array(free[2:6], np.int32)
    assert masked_run(last=True) == expected
