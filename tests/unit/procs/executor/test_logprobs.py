"""Log-probabilities: those of the model, whatever the batch, the chunks, the slices, the rules of a row."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from transformers import LlamaConfig, LlamaForCausalLM

from fourstroke.common.types import MAX_LOGPROBS
from fourstroke.ipc.messages import Sampling
from fourstroke.procs.executor import head
from fourstroke.procs.executor.logprobs import Scores, best

from .driver import GREEDY, Driver, Entry, executor_config, record_logits
from .tiny import CONTEXT, HEAD_DIM, HEADS, HIDDEN, INNER, KV_HEADS, LAYERS, VOCAB, save_folder, tiny_weights

PROMPTS = [[7], [1, 2, 3], list(range(10, 27)), [50] * 16, list(range(90, 60, -1))]
BOTH = replace(GREEDY, logprobs=4, prompt_logprobs=3)


def unpack(words: Sequence[np.ndarray], top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities [tokens], best ids and their log-probabilities [tokens, top]."""
    table = np.stack(words)
    assert table.shape[1] == 1 + 2 * top
    return table[:, 0].view(np.float32), table[:, 1 : 1 + top], table[:, 1 + top :].view(np.float32)


def check(words: Sequence[np.ndarray], logprobs: torch.Tensor, tokens: Sequence[int], top: int) -> None:
    """The words are those of tokens after logits whose log-softmax [tokens, vocabulary] is given."""
    chosen, ids, of_best = unpack(words, top)
    expected = logprobs.topk(top)
    torch.testing.assert_close(torch.from_numpy(chosen), logprobs[range(len(tokens)), tokens], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(of_best), expected.values, rtol=1e-5, atol=1e-5)
    assert ids.tolist() == expected.indices.tolist()


@given(
    st.lists(st.integers(-4, 4), min_size=20, max_size=20)
    | st.lists(st.integers(-500, 500), min_size=700, max_size=700),
    st.integers(0, MAX_LOGPROBS),
)
@settings(deadline=None)
def test_the_best_are_those_of_a_full_ranking(row: list[int], count: int) -> None:
    """Of equal ones the lower id is the better, at every cut."""
    expected = sorted(range(len(row)), key=lambda token: (-row[token], token))[:count]
    assert best(np.array(row, np.float32), count).tolist() == expected


def test_words_hold_floats_between_integers() -> None:
    """A row's words: its token's log-probability, ids, their log-probabilities; what is behind them stays."""
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)) * 3
    words = np.full((3, 1 + 2 * MAX_LOGPROBS), -9, np.int32)
    for row, (token, top) in enumerate(((1, 0), (2, 2), (3, 20))):
        Scores(logits[row].numpy()).write(token, top, words[row])
        check([words[row, : 1 + 2 * top]], logits[row : row + 1].log_softmax(-1), [token], top)
        assert (words[row, 1 + 2 * top :] == -9).all()


@pytest.mark.parametrize("values", [[0.0, float("nan")], [1.0, float("inf")], [float("-inf")] * 2])
def test_logits_that_give_no_probabilities(values: list[float]) -> None:
    """They are known for it, and warn nobody."""
    scores = Scores(np.array(values, np.float32))
    assert scores.failed
    assert np.isnan(scores.of(0))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> LlamaForCausalLM:
    """The tiny model in transformers, in float32."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(tiny_weights())
    return model.eval()


@pytest.mark.parametrize("drafts", [0, 3])
def test_all_logprobs_are_those_of_transformers(tiny_model: Path, reference: LlamaForCausalLM, drafts: int) -> None:
    """Of each token of prompts and of what is generated, in one batch, with drafts and without."""
    driver = Driver(executor_config(tiny_model, max_model_len=CONTEXT, num_speculative_tokens=drafts))
    requests = [driver.add(prompt, BOTH) for prompt in PROMPTS]
    driver.prefill(requests)
    driver.decode(requests, 12, last=True)
    for request in requests:
        with torch.inference_mode():
            logprobs = reference(torch.tensor([request.tokens])).logits[0].log_softmax(-1)
        first = request.prompt_tokens
        check(request.words, logprobs[first - 1 : -1], request.generated, 4)
        if first > 1:
            check(request.prompt_words, logprobs[: first - 1], request.tokens[1:first], 3)
        assert len(request.prompt_words) == first - 1


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_chunked_prompts_have_the_logprobs_of_whole_ones(tiny: Driver, chunk: int) -> None:
    """However a prompt is cut, and whoever shares the steps, each of its tokens has its log-probabilities once."""
    tiny.reset()
    alone = tiny.add(PROMPTS[4], BOTH)
    tiny.prefill([alone])
    tiny.reset()
    requests = [tiny.add(prompt, replace(BOTH, prompt_logprobs=number - 1)) for number, prompt in enumerate(PROMPTS)]
    tiny.prefill(requests, chunk)
    assert [len(request.prompt_words) for request in requests] == [0, *(len(prompt) - 1 for prompt in PROMPTS[1:])]
    for ours, theirs in zip(unpack(requests[4].prompt_words, 3), unpack(alone.prompt_words, 3), strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), torch.from_numpy(theirs), rtol=1e-4, atol=1e-4)


def test_slices_of_logits_change_nothing(tiny: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows of logits at a time give the tokens and log-probabilities of all at once."""
    expected = [tiny.add(prompt, BOTH) for prompt in PROMPTS]
    tiny.prefill(expected)
    monkeypatch.setattr(head, "_PART_LOGITS", 3 * VOCAB + 1)
    tiny.reset()
    requests = [tiny.add(prompt, BOTH) for prompt in PROMPTS]
    tiny.prefill(requests)
    for request, other in zip(requests, expected, strict=True):
        assert request.generated == other.generated
        for ours, theirs in zip(request.words + request.prompt_words, other.words + other.prompt_words, strict=True):
            torch.testing.assert_close(
                torch.from_numpy(ours.view(np.float32)), torch.from_numpy(theirs.view(np.float32))
            )


def test_rules_of_a_row_do_not_touch_its_logprobs(tiny: Driver) -> None:
    """A biased, masked, hot row reports what the model says of the token that it drew all the same."""
    kept = record_logits(tiny.runner)
    rule = Sampling(3.0, 5, 0.9, 0.1, (9, 4), (100.0, 90.0), 5, repetition_penalty=1.5, frequency_penalty=1.0)
    request = tiny.add(PROMPTS[2], rule)
    request.masked_until, request.masked = CONTEXT, (4,)
    tiny.prefill([request])
    assert request.generated == [9]
    check(request.words, kept[0].log_softmax(-1), [9], 5)


def test_no_logits_are_computed_that_nobody_wants(tiny: Driver) -> None:
    """Middle chunks compute none; a prompt that wants log-probabilities one for each token with a follower. (EX-4)"""
    rows: list[int] = []
    logits = tiny.runner._head._model.logits

    def count(hidden: torch.Tensor) -> torch.Tensor:
        rows.append(len(hidden))
        return logits(hidden)

    tiny.runner._head._model.logits = count
    plain, scored = tiny.add(PROMPTS[4]), tiny.add(PROMPTS[4], replace(GREEDY, prompt_logprobs=0))
    tiny.step([Entry(plain, 10, samples=False)])
    assert rows == []
    tiny.step([Entry(plain, 20), Entry(scored, 12, samples=False)])
    tiny.step([Entry(scored, 18)])
    assert rows == [1, 12, 1, 17]


def test_nan_in_a_prompt_is_the_error_of_its_row(tmp_path: Path) -> None:
    """A row that samples nothing yet says so too, instead of reporting NaN."""
    weights = tiny_weights()
    weights["model.embed_tokens.weight"][VOCAB - 1] = float("nan")
    driver = Driver(executor_config(save_folder(tmp_path / "nan", weights), max_model_len=CONTEXT))
    good, sick = driver.add(PROMPTS[2], BOTH), driver.add([1, VOCAB - 1, 2, 3], BOTH)
    done = driver.step([Entry(good, 17), Entry(sick, 3, samples=False)])
    assert [error.index for error in done.errors] == [1]
    assert np.isfinite(unpack(good.prompt_words, 3)[0]).all()


def test_a_following_token_outside_the_vocabulary_is_not_scored(tiny: Driver) -> None:
    """It fails its row when it comes, not the process before."""
    request = tiny.add([1, 2, VOCAB + 5, 3], BOTH)
    assert tiny.step([Entry(request, 2, samples=False)]).errors == ()
    assert len(tiny.step([Entry(request, 2)]).errors) == 1
