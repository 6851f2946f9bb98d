"""The same text whatever the arrangement, with the real model in float32 and real processes."""

from __future__ import annotations

import pytest

from fourstroke import LLM, SamplingParams

from .server import metrics

PROMPTS = [
    "The capital of France is",
    "1, 2, 3, " * 20,
    "def fibonacci(n):",
    "Once upon a time " * 12,
    "Hello",
    "Hello",
]
LENGTHS = [150, 150, 150, 30, 30, 30]
"""In 20 blocks the first three begin together and cannot end together."""

PARAMS = [
    SamplingParams(max_tokens=length, temperature=0 if index % 2 else 1.0, seed=index, ignore_eos=True)
    for index, length in enumerate(LENGTHS)
]


def generate(**options: object) -> tuple[list[str], float]:
    """The texts, and how often a request was preempted."""
    with LLM(dtype="float32", **options) as llm:
        texts = [completion.text for completion in llm.generate(PROMPTS, PARAMS, progress=False)]
        return texts, metrics(llm.url)["preemptions_total", "scheduler0"]


@pytest.fixture(scope="module")
def plain() -> list[str]:
    """One request at a time, prompts whole, no pipelining."""
    texts, preemptions = generate(max_num_seqs=1, pipeline_depth=1)
    assert preemptions == 0
    return texts


@pytest.mark.parametrize(
    "options",
    [{}, {"max_num_batched_tokens": 16}, {"pipeline_depth": 1}, {"block_size": 32, "max_num_seqs": 3}],
    ids=["batch", "chunks-of-16", "depth-1", "other-blocks"],
)
def test_text_does_not_depend_on_the_arrangement(plain: list[str], options: dict):
    """Batched, chunked, at depth 1 or 2: the text of each request is the one that it gives alone."""
    assert generate(**options) == (plain, 0)


def test_text_does_not_depend_on_preemption(plain: list[str]):
    """A request that loses its blocks in the middle goes on as if nothing had been."""
    texts, preemptions = generate(num_blocks=20, max_model_len=320)
    assert preemptions > 0
    assert texts == plain
