"""The fake executor says what the plain definition says; what is wrong in a plan changes its text or is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fourstroke.ipc.messages import Hello, Image, RowError, Sampling
from fourstroke.procs.executor.fake import (
    EOS_TOKEN_ID,
    VOCAB_SIZE,
    FakeRunner,
    continuation,
    fake_hello,
    text_logprobs,
)

from .driver import Driver, Entry, Request, executor_config

PROMPTS = [[7], [1, 2, 3], list(range(10, 27)), [50] * 16, list(range(90, 60, -1))]
TOKENS = 20
BLOCK = 4


def faking(
    drafts: int = 0, accept: float = 0.7, state_slots: int = 0, poison: frozenset[int] = frozenset(), **changes: object
) -> Driver:
    """A driver of the fake executor, with blocks of 4."""
    config = executor_config(Path("none"), block_size=BLOCK, num_speculative_tokens=drafts, **changes)
    hello = Hello(256, BLOCK, 128, VOCAB_SIZE, (EOS_TOKEN_ID,), state_slots)
    return Driver(config, lambda slots: FakeRunner(slots, hello, 32, drafts=drafts, accept=accept, poison=poison))


def finish(driver: Driver, requests: list[Request], tokens: int = TOKENS) -> int:
    """Let rows go on by themselves until each has so many tokens; the number of steps."""
    steps = 0
    while unfinished := [request for request in requests if len(request.generated) < tokens]:
        driver.decode(unfinished, 1, last=True)
        steps += 1
    return steps


def expected_texts() -> list[list[int]]:
    return [continuation(prompt, TOKENS) for prompt in PROMPTS]


@pytest.mark.parametrize("chunk", [1, 5, 100])
@pytest.mark.parametrize("drafts", [0, 1, 4])
@pytest.mark.parametrize("accept", [0.0, 0.7, 1.0])
def test_texts_are_the_plain_continuations(chunk: int, drafts: int, accept: float) -> None:
    """In any chunks, with any drafts; more right drafts mean fewer steps, and wrong ones none saved."""
    driver = faking(drafts, accept)
    requests = [driver.add(prompt) for prompt in PROMPTS]
    driver.prefill(requests, chunk)
    steps = finish(driver, requests)
    assert [request.generated[:TOKENS] for request in requests] == expected_texts()
    assert (steps == TOKENS - 1) == (drafts == 0 or accept == 0.0)


def test_host_tokens_and_drafts_mix_with_own_ones() -> None:
    """Tokens may come from the host at any time, and drafts with them."""
    driver = faking(3)
    requests = [driver.add(prompt) for prompt in PROMPTS]
    driver.prefill(requests)
    for turn in range(5):
        entries = []
        for place, request in enumerate(requests):
            text = continuation(PROMPTS[place], len(request.generated) + 3)[len(request.generated) :]
            drafts = (text[0], text[1] + 1, text[2])
            entries.append(
                Entry(request, 4, drafts=drafts) if (place + turn) % 2 else Entry(request, 1 + turn % 4, last=True)
            )
        driver.step(entries)
    for prompt, request in zip(PROMPTS, requests, strict=True):
        assert request.generated == continuation(prompt, len(request.generated))
        assert len(request.generated) >= 6


@pytest.mark.parametrize("blocks", [(0, 1), (0, 2), (1, 0)])
def test_a_wrong_block_changes_the_text(blocks: tuple[int, int]) -> None:
    """A prefix hit reads what the blocks hold: only with the right ones of the owner's is the text right."""
    prompt = list(range(10, 22))
    driver = faking()
    owner = driver.add(prompt)
    driver.prefill([owner])
    guest = driver.add(prompt)
    guest.computed = 2 * BLOCK
    driver.free_blocks += [owner.blocks[block] for block in reversed(blocks)]
    driver.step([Entry(guest, BLOCK)])
    driver.decode([guest], 5, last=True)
    assert (guest.generated == continuation(prompt, 6)) == (blocks == (0, 1))


def test_wrong_plans_are_refused() -> None:
    """A position without a block, and an image without data."""
    driver = faking(2, accept=1.0)
    request = driver.add(PROMPTS[1])
    request.blocks = [0]
    with pytest.raises(AssertionError, match="without a block"):
        driver.step([Entry(request, 3)])
    request = driver.add(PROMPTS[1])
    with pytest.raises(AssertionError, match="without its data"):
        driver.step([Entry(request, 3, images=(Image("a", 1, 2, b""),))])


def test_a_poisoned_row_fails_alone() -> None:
    """The row whose host tokens hold such a token is told; its mates have their texts."""
    driver = faking(poison=frozenset({666}))
    requests = [driver.add(prompt) for prompt in PROMPTS]
    requests.insert(1, driver.add([1, 666, 2]))
    driver.prefill(requests)
    assert driver.errors == [RowError(1, "a poisoned token")]
    finish(driver, requests)
    del requests[1]
    assert [request.generated[:TOKENS] for request in requests] == expected_texts()


@pytest.mark.parametrize("chunk", [2, 100])
def test_logprobs_are_a_function_of_the_history(chunk: int) -> None:
    """Those of prompts and texts are the plain definition's, with drafts, in chunks, of as many as each row wants."""
    driver = faking(3)
    rules = [Sampling(0.0, 0, 1.0, 0.0, logprobs=n - 1, prompt_logprobs=3 - n) for n in range(len(PROMPTS))]
    requests = [driver.add(prompt, rule) for prompt, rule in zip(PROMPTS, rules, strict=True)]
    driver.prefill(requests, chunk)
    finish(driver, requests)
    for request, rule in zip(requests, rules, strict=True):
        first = request.prompt_tokens
        for words, top, wanted in (
            (request.words, rule.logprobs, (request.tokens, first)),
            (request.prompt_words, rule.prompt_logprobs, (request.tokens[:first], 1)),
        ):
            expected = text_logprobs(*wanted, top) if top >= 0 else []
            assert [word.tolist() for word in words] == [word.tolist() for word in expected]


def test_logprobs_are_plausible() -> None:
    """Best first, ids distinct, and a token among the best has the log-probability that it has there."""
    tokens = [5, 6, *continuation([5, 6], 3)]
    words = text_logprobs(tokens, 1, 5)
    chosen, ids, of_best = words[:, 0].view(np.float32), words[:, 1:6], words[:, 6:].view(np.float32)
    assert (np.diff(of_best, axis=1) < 0).all() and (of_best <= 0).all()
    assert all(len(set(row)) == 5 for row in ids.tolist())
    assert ids[1:, 0].tolist() == tokens[2:]
    assert chosen[1:].tolist() == of_best[1:, 0].tolist()
    assert chosen[0] < of_best[0, 0]


@pytest.mark.parametrize("drafts", [0, 3])
def test_a_state_slot_holds_what_its_row_has_computed(drafts: int) -> None:
    """A stateful row goes on from its slot; a copy of the slot is a checkpoint, good for the very position only."""
    prompt = list(range(10, 22))
    expected = continuation(prompt, 8)
    driver = faking(drafts, state_slots=5)
    owner, mate = driver.add(prompt, state_slot=2), driver.add(PROMPTS[1])
    driver.step([Entry(owner, 8, samples=False), Entry(mate, 3)])
    entries = [Entry(owner, 4), Entry(mate, 1 + drafts, last=True)]
    driver.settle(entries, driver.runner.run(driver.plan(entries, state_copies=[(2, 4)])))
    finish(driver, [owner, mate], 8)
    assert owner.generated[:8] == expected
    assert mate.generated[:8] == continuation(PROMPTS[1], 8)

    def resume(computed: int, copies: list[tuple[int, int]], state_slot: int) -> list[int]:
        guest = driver.add(prompt, state_slot=state_slot)
        guest.computed = computed
        driver.free_blocks += reversed(owner.blocks[: computed // BLOCK])
        entries = [Entry(guest, len(prompt) - computed)]
        driver.settle(entries, driver.runner.run(driver.plan(entries, state_copies=copies)))
        finish(driver, [guest], 8)
        return guest.generated[:8]

    assert resume(8, [(4, 1)], 1) == expected
    assert resume(8, [(4, 0), (0, 3)], 3) == expected
    assert resume(0, [], 3) == expected
    assert resume(4, [(4, 1)], 1) != expected
    assert resume(8, [(2, 1)], 1) != expected
    assert resume(8, [], 3) != expected
    assert resume(8, [], -1) == expected


IMAGES = (Image("cat", 2, 4, b"x"), Image("dog", 9, 2, b"y"))
PICTURED = list(range(30, 45))
MROPE = (np.arange(15) // 2 + np.array([[0], [1], [2]])).astype(np.int32)
DELTA = -6


def pictured(chunks: list[tuple[int, tuple[Image, ...]]], mrope: np.ndarray = MROPE, delta: int = DELTA) -> list[int]:
    """The text after PICTURED, in chunks that end at these positions and bring these images."""
    driver = faking(2)
    request = driver.add(PICTURED)
    start = 0
    for end, images in chunks:
        of_chunk = np.ascontiguousarray(mrope[:, start:end]).tobytes()
        driver.step([Entry(request, end - start, end == len(PICTURED), images=images, mrope=of_chunk)])
        start = end
    while len(request.generated) < TOKENS:
        driver.step([Entry(request, 3, last=True, delta=delta)])
    return request.generated[:TOKENS]


def test_images_and_positions_are_part_of_the_text() -> None:
    """In one chunk or cut inside an image, the second part of which needs no data again."""
    expected = continuation(PICTURED, TOKENS, IMAGES, MROPE.tobytes(), DELTA)
    seen = Image("cat", 2, 4, b"")
    assert pictured([(15, IMAGES)]) == expected
    assert pictured([(4, IMAGES[:1]), (8, (seen,)), (15, IMAGES[1:])]) == expected
    assert continuation(PICTURED, TOKENS) != expected


def test_a_wrong_image_or_position_changes_the_text() -> None:
    """Missing, doubled, moved, exchanged; positions of another place; a decode without its delta."""
    expected = continuation(PICTURED, TOKENS, IMAGES, MROPE.tobytes(), DELTA)
    wrong = [
        pictured([(15, IMAGES[:1])]),
        pictured([(15, (*IMAGES, IMAGES[0]))]),
        pictured([(4, IMAGES[:1]), (15, IMAGES[1:])]),
        pictured([(15, (Image("cat", 3, 4, b"x"), IMAGES[1]))]),
        pictured([(15, (Image("cow", 2, 4, b"x"), IMAGES[1]))]),
        pictured([(15, IMAGES)], MROPE[::-1]),
        pictured([(15, IMAGES)], delta=0),
    ]
    assert all(text != expected for text in wrong)


def test_hello_is_what_the_configuration_says() -> None:
    """Blocks for all rows at full length unless told otherwise."""
    assert fake_hello(executor_config(Path("none"))) == Hello(256, 16, 128, VOCAB_SIZE, (EOS_TOKEN_ID,))
    sized = fake_hello(executor_config(Path("none"), num_blocks=None, max_model_len=100, max_num_seqs=3))
    assert (sized.num_blocks, sized.max_model_len) == (21, 100)
