"""The same text whatever the arrangement, with the real model in float32 and real processes."""

from __future__ import annotations

import pytest

from fourstroke import LLM, SamplingParams

PROMPTS = ["The capital of France is", "def fibonacci(n):", "Once upon a time " * 12, "1, 2, 3, " * 20, "Hello"] * 2
PARAMS = [
    SamplingParams(max_tokens=40, temperature=0 if index % 2 else 1.0, seed=index, ignore_eos=True)
    for index in range(len(PROMPTS))
]


def texts(**options: object) -> list[str]:
    with LLM(dtype="float32", **options) as llm:
        return [completion.text for completion in llm.generate(PROMPTS, PARAMS, progress=False)]


@pytest.fixture(scope="module")
def plain() -> list[str]:
    """One request at a time, prompts whole, no pipelining."""
    return texts(max_num_seqs=1, pipeline_depth=1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_num_batched_tokens": 16},
        {"pipeline_depth": 1},
        {"num_blocks": 20, "max_model_len": 160},
        {"block_size": 32, "max_num_seqs": 3},
    ],
    ids=["batch", "chunks-of-16", "depth-1", "preempting", "other-blocks"],
)
def test_text_does_not_depend_on_the_arrangement(plain: list[str], options: dict):
    """Batched, chunked, preempted, at depth 1 or 2: the text of each request is the one that it gives alone."""
    assert texts(**options) == plain
