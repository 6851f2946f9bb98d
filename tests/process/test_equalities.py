"""The same text whatever the arrangement, with the real model in float32 and real processes."""

from __future__ import annotations

import pytest

from fourstroke import LLM, SamplingParams

from .server import metrics

PROMPTS = ["The capital of France is", "def fibonacci(n):", "Once upon a time " * 12, "1, 2, 3, " * 20, "Hello"]
GROWING = ["The capital of France is", "Once upon a time"]
"""With 150 tokens each they fit into 192 together at the beginning, but not at the end."""


def generate(prompts: list[str], max_tokens: int, **options: object) -> tuple[list[str], float]:
    """The texts, and how often a request was preempted. Half of the requests are greedy."""
    params = [
        SamplingParams(max_tokens=max_tokens, temperature=0 if index % 2 else 1.0, seed=index, ignore_eos=True)
        for index in range(len(prompts))
    ]
    with LLM(dtype="float32", **options) as llm:
        texts = [completion.text for completion in llm.generate(prompts, params, progress=False)]
        return texts, metrics(llm.url)["preemptions_total", "scheduler0"]


def plain(prompts: list[str], max_tokens: int) -> tuple[list[str], float]:
    """One request at a time, prompts whole, no pipelining."""
    return generate(prompts, max_tokens, max_num_seqs=1, pipeline_depth=1)


@pytest.fixture(scope="module")
def alone() -> list[str]:
    texts, _ = plain(PROMPTS, 32)
    return texts


@pytest.mark.parametrize(
    "options",
    [{}, {"max_num_batched_tokens": 16}, {"pipeline_depth": 1}, {"block_size": 32, "max_num_seqs": 3}],
    ids=["batch", "chunks-of-16", "depth-1", "other-blocks"],
)
def test_text_does_not_depend_on_the_arrangement(alone: list[str], options: dict):
    """Batched, chunked, at depth 1 or 2: the text of each request is the one that it gives alone."""
    texts, _ = generate(PROMPTS, 32, **options)
    assert texts == alone


def test_text_does_not_depend_on_preemption():
    """A request that loses its blocks in the middle goes on as if nothing had been."""
    texts, preemptions = generate(GROWING, 150, num_blocks=12, max_model_len=192)
    assert preemptions > 0
    assert (texts, 0) == plain(GROWING, 150)
