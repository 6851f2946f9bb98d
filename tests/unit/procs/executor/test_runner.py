"""The runner's equalities: chunked or whole, alone or in a batch, fed by the host or from the last step."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fourstroke.ipc.messages import Hello, Image, RowError, Sampling

from .driver import GREEDY, Driver, Entry, executor_config, record_logits
from .tiny import CONTEXT, EOS, VOCAB, save_folder, tiny_weights

PROMPTS = [[7], [1, 2, 3], list(range(10, 27)), [50] * 16, list(range(90, 60, -1)), [11, 12]]
RANDOM = Sampling(1.0, 20, 0.95, 0.0)
SEED = 1234


def test_hello_tells_the_facts(tiny: Driver) -> None:
    """The first message is what the model and the configuration say."""
    assert tiny.runner.hello == Hello(256, 16, CONTEXT, VOCAB, EOS)


def test_chunked_prefill_computes_what_whole_prefill_does(tiny: Driver) -> None:
    """Logits after a prompt do not depend on how it was cut."""
    logits = record_logits(tiny.runner)
    prompt = list(range(10, 47))
    for chunk in (100, 1, 5, 16, 36):
        tiny.reset()
        tiny.prefill([tiny.add(prompt)], chunk)
    for other in logits[1:]:
        torch.testing.assert_close(other, logits[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM])
@pytest.mark.parametrize("block_size", [1, 16, 32])
def test_batch_and_chunks_change_no_token(tiny_model: Path, sampling: Sampling, block_size: int) -> None:
    """A prompt's continuation is the same alone, among others, and with its prompt in chunks."""
    driver = Driver(executor_config(tiny_model, max_model_len=CONTEXT, block_size=block_size, num_blocks=1024))
    together = driver.generate(PROMPTS, 20, sampling, seed=SEED)
    assert driver.generate(PROMPTS, 20, sampling, chunk=7, seed=SEED) == together
    assert [driver.generate([prompt], 20, sampling, seed=SEED)[0] for prompt in PROMPTS] == together
    assert len({tuple(tokens) for tokens in together}) == len(PROMPTS)


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM])
def test_last_tokens_are_those_the_host_would_feed(tiny: Driver, sampling: Sampling) -> None:
    """Rows with LAST, planned before the results of the step before were read, go on as the host would."""
    expected = tiny.generate(PROMPTS, 20, sampling, seed=SEED)
    tiny.reset()
    requests = [tiny.add(prompt, sampling, SEED) for prompt in PROMPTS]
    steps = [[Entry(request, request.prompt_tokens) for request in requests]]
    steps += [[Entry(request, 1, last=True) for request in requests]] * 19
    plans = [tiny.plan(steps[0])]
    for number, entries in enumerate(steps):
        if number + 1 < len(steps):
            plans.append(tiny.plan(steps[number + 1]))
        tiny.settle(entries, tiny.runner.run(plans[number]))
    assert [request.generated for request in requests] == expected


def test_decodes_and_chunks_share_a_step(tiny: Driver) -> None:
    """Running rows decode beside another's prefill, in any plan order, and nobody's tokens change."""
    expected = tiny.generate(PROMPTS, 6)
    tiny.reset()
    first, second, late = (tiny.add(PROMPTS[index]) for index in (2, 4, 3))
    tiny.prefill([first, second])
    tiny.step([Entry(second, 1), Entry(late, 5, samples=False), Entry(first, 1, last=True)])
    tiny.step([Entry(late, 11), Entry(first, 1), Entry(second, 1, last=True)])
    tiny.step([Entry(first, 1), Entry(late, 1, last=True), Entry(second, 1)])
    for request, index in ((first, 2), (second, 4), (late, 3)):
        assert request.generated == expected[index][: len(request.generated)]
    assert [len(request.generated) for request in (first, second, late)] == [4, 4, 2]


def test_shared_blocks_are_read_as_a_prefix(tiny: Driver) -> None:
    """A row whose first blocks are another's, as after a prefix cache hit, continues as if it had computed them."""
    prompt = list(range(20, 60))
    expected = tiny.generate([prompt], 5)[0]
    tiny.reset()
    owner = tiny.add(prompt)
    tiny.prefill([owner])
    owner_blocks = [int(block) for block in tiny.slots[0].block_id[:3]]
    guest = tiny.add(prompt)
    tiny.free_blocks += reversed(owner_blocks[:2])
    entry = Entry(guest, 8)
    guest.computed = 32
    tiny.step([entry])
    tiny.decode([guest], 4)
    assert guest.generated == expected


def test_rows_are_used_again(tiny: Driver) -> None:
    """A new request in a used row, over used blocks, takes nothing over from the old one."""
    expected = tiny.generate([PROMPTS[2]], 8, RANDOM)[0]
    tiny.generate([PROMPTS[4]], 8)
    assert tiny.generate([PROMPTS[2]], 8, RANDOM)[0] == expected


def test_random_rows_do_not_depend_on_the_batch(tiny: Driver) -> None:
    """Rows with seeds of their own draw the same tokens in the middle of others as alone."""
    tiny.reset()
    rules = [(replace(RANDOM, top_k=top_k), seed) for seed, top_k in ((1, 0), (2, 5), (-3, 0), (1, 0))]
    requests = [tiny.add(PROMPTS[1], *rule) for rule in rules]
    tiny.prefill(requests)
    tiny.decode(requests, 9)
    together = [request.generated for request in requests]
    assert together[0] == together[3]
    assert together[0] != together[2]
    assert [tiny.generate([PROMPTS[1]], 10, sampling, seed=seed)[0] for sampling, seed in rules] == together


def test_a_row_with_nan_fails_and_the_others_go_on(tmp_path: Path) -> None:
    """NaN ends in an error of its row; batch mates, and later owners of its blocks, get their own tokens."""
    weights = tiny_weights()
    weights["model.embed_tokens.weight"][VOCAB - 1] = float("nan")
    driver = Driver(executor_config(save_folder(tmp_path / "nan", weights), max_model_len=CONTEXT, num_blocks=16))
    expected = driver.generate(PROMPTS[:3], 12)
    driver.reset()
    mates = [driver.add(prompt) for prompt in PROMPTS[:3]]
    sick = driver.add([1, VOCAB - 1, 2])
    driver.prefill([mates[0], sick, *mates[1:]])
    assert driver.errors == [RowError(1, "the logits are not finite")]
    driver.decode([sick, *mates], 11, last=True)
    assert [mate.generated for mate in mates] == expected
    driver.free_blocks += list(range(16))
    heirs = [driver.add(prompt) for prompt in PROMPTS[:3]]
    driver.prefill(heirs)
    driver.decode(heirs, 11)
    assert [heir.generated for heir in heirs] == expected


def test_token_ids_outside_the_vocabulary_fail_their_row(tiny: Driver) -> None:
    """An id that no embedding belongs to is the row's error, not the process's."""
    expected = tiny.generate([PROMPTS[1]], 1)
    tiny.reset()
    good, high, low = tiny.add(PROMPTS[1]), tiny.add([1, VOCAB, 2]), tiny.add([-1])
    done = tiny.step([Entry(high, 3), Entry(good, 3), Entry(low, 1)])
    assert [error.index for error in done.errors] == [0, 2]
    assert f"token {VOCAB} is outside" in done.errors[0].cause
    assert good.generated == expected[0]


def test_images_fail_their_row(tiny: Driver) -> None:
    """A model of text does not ignore an image in silence, and its mates go on."""
    expected = tiny.generate([PROMPTS[1]], 1)
    tiny.reset()
    good, pictured = tiny.add(PROMPTS[1]), tiny.add(PROMPTS[1])
    done = tiny.step([Entry(pictured, 3, images=(Image("a", 0, 2, b"x"),)), Entry(good, 3)])
    assert done.errors == (RowError(0, "the model takes text only"),)
    assert good.generated == expected[0]


def test_bfloat16_runs_and_stays_near_float32(tiny_model: Path, tiny: Driver) -> None:
    """Logits in bfloat16 are those of float32 to its precision."""
    half = Driver(executor_config(tiny_model, max_model_len=CONTEXT, dtype="bfloat16"))
    logits = [record_logits(driver.runner) for driver in (tiny, half)]
    for driver in (tiny, half):
        driver.prefill([driver.add(prompt) for prompt in PROMPTS])
    exact, rounded = logits[0][0], logits[1][0].float()
    assert (exact - rounded).norm() < 0.03 * exact.norm()
