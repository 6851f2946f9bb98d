"""The same text whatever the arrangement, with the real model in float32 and real processes."""

from __future__ import annotations

import pytest

from fourstroke import LLM, SamplingParams

from .server import metrics

PROMPTS = ["The capital of France is", "def fibonacci(n):", "Once upon a time " * 12, "1, 2, 3, " * 20, "Hello"]
GROWING = ["The capital of France is", "Once upon a time"]
"""With 100 tokens each they fit into 160 together at the beginning, but not at the end."""


SHARING = [" ".join(map(str, range(count))) for count in (3, 60, 61, 40, 7)]
"""Each begins like the next longer one."""


def params_of(index: int, max_tokens: int, n: int = 1) -> SamplingParams:
    """Half of the requests are greedy."""
    return SamplingParams(max_tokens=max_tokens, temperature=0 if index % 2 else 1.0, seed=index, ignore_eos=True, n=n)


def generate(prompts: list[str], max_tokens: int, **options: object) -> tuple[list[str], float]:
    """The texts, and how often a request was preempted."""
    params = [params_of(index, max_tokens) for index in range(len(prompts))]
    with LLM(dtype="float32", **options) as llm:
        texts = [completion.text for completion in llm.generate(prompts, params, progress=False)]
        return texts, metrics(llm.url)["preemptions_total", "scheduler0"]


def plain(prompts: list[str], max_tokens: int) -> tuple[list[str], float]:
    """One request at a time, prompts whole, no pipelining, no cache, no drafts."""
    return generate(prompts, max_tokens, max_num_seqs=1, pipeline_depth=1, prefix_cache=False)


@pytest.fixture(scope="module")
def alone() -> list[str]:
    texts, _ = plain(PROMPTS, 32)
    return texts


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_num_batched_tokens": 16},
        {"pipeline_depth": 1},
        {"block_size": 32, "max_num_seqs": 3},
        {"policy": "prefill-first", "max_num_batched_tokens": 48},
        {"num_speculative_tokens": 3},
        {"num_speculative_tokens": 2, "pipeline_depth": 1, "max_num_batched_tokens": 16},
    ],
    ids=["batch", "chunks-of-16", "depth-1", "other-blocks", "prefill-first", "drafts", "drafts-depth-1-chunks"],
)
def test_text_does_not_depend_on_the_arrangement(alone: list[str], options: dict):
    """Batched, chunked, at depth 1 or 2: the text of each request is the one that it gives alone."""
    texts, _ = generate(PROMPTS, 32, **options)
    assert texts == alone


@pytest.fixture(scope="module")
def grown() -> list[str]:
    texts, _ = plain(GROWING, 100)
    return texts


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cache", [False, True], ids=["no-cache", "cache"])
def test_text_does_not_depend_on_preemption(grown: list[str], cache: bool, depth: int):
    """A request that loses its blocks in the middle goes on as if nothing had been, in chunks of 16 tokens."""
    texts, preemptions = generate(
        GROWING,
        100,
        num_blocks=10,
        max_model_len=160,
        max_num_batched_tokens=16,
        pipeline_depth=depth,
        prefix_cache=cache,
    )
    assert preemptions > 0
    assert texts == grown


@pytest.fixture(scope="module")
def shared_alone() -> list[str]:
    texts, _ = plain(SHARING, 12)
    return texts


@pytest.mark.parametrize("cache", [False, True], ids=["no-cache", "cache"])
def test_text_does_not_depend_on_what_is_shared(shared_alone: list[str], cache: bool):
    """Choices of one prompt that share its prefill, and prompts of mixed lengths that another request had computed:
    the texts of each alone. A prompt is computed once for all of its choices.
    """
    with LLM(dtype="float32", prefix_cache=cache, max_num_batched_tokens=16, num_blocks=48, max_model_len=400) as llm:
        params = [params_of(index, 12, n=4) for index in range(len(SHARING))]
        answers, again = (llm.generate(SHARING, params, progress=False) for _ in range(2))
        numbers = metrics(llm.url)
    assert [answer.text for answer in answers] == shared_alone
    assert [one.choices for one in again] == [one.choices for one in answers]
    prompt_tokens = sum(answer.prompt_tokens for answer in (*answers, *again))
    computed = numbers["prompt_tokens_total", "scheduler0"] - numbers["recomputed_tokens_total", "scheduler0"]
    last_blocks = 16 * 3 * 2 * len(SHARING)
    assert computed <= prompt_tokens + last_blocks
