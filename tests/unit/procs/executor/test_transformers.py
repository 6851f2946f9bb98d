"""The default model against transformers' Llama with the same dequantized weights."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fourstroke.procs.gguf_file import GgufFile

from .driver import Driver, executor_config, record_logits
from .transformers_model import transformers_model

TOKENS = 32
TEXTS = [
    "The capital of France is",
    "Once upon a time there was a",
    "Water boils at",
    "To make bread you need flour and",
    "The largest planet in our solar system is",
    "In the year",
    "She opened the door and saw",
    "A list of colors : red ,",
    "The opposite of hot is",
    "My favorite season is",
    "What is the meaning of life ?",
    "import numpy as",
    "The quick brown fox",
    "Scientists have found that",
    "Dear Sir ,",
    "One plus one is",
    "The story begins in a small village near the sea where an old man",
    "Energy",
    "Why do birds sing in the morning ? Because",
    "It was",
]


@pytest.fixture(scope="module")
def prompts(model_path: Path) -> list[list[int]]:
    """Token ids of the texts: words that are one token each, the others left out; so lengths differ."""
    ids = {token: index for index, token in enumerate(GgufFile(model_path).metadata["tokenizer.ggml.tokens"])}
    return [[ids[f"Ġ{word}"] for word in text.split() if f"Ġ{word}" in ids] for text in TEXTS]


@pytest.fixture(scope="module")
def expected(model_path: Path, prompts: list[list[int]]) -> tuple[np.ndarray, torch.Tensor]:
    """Greedy tokens [prompts, TOKENS] and logits [TOKENS, prompts, vocabulary] of transformers, left-padded."""
    model = transformers_model(model_path)
    width = max(map(len, prompts))
    padded = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    attended = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        result = model.generate(
            padded,
            attention_mask=attended,
            max_new_tokens=TOKENS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    return result.sequences[:, width:].numpy(), torch.stack(result.logits)


def test_greedy_tokens_and_logits_are_those_of_transformers(
    model_path: Path, prompts: list[list[int]], expected: tuple[np.ndarray, torch.Tensor]
) -> None:
    """In float32 every token of every prompt is the same, and all logits are within a thousandth."""
    driver = Driver(executor_config(model_path, num_blocks=128))
    kept = record_logits(driver.runner)
    generated = driver.generate(prompts, TOKENS)
    tokens, logits = expected
    assert generated == tokens.tolist()
    assert len(kept) == TOKENS
    for ours, theirs in zip(kept, logits, strict=True):
        assert ((ours - theirs).norm(dim=-1) < 1e-3 * theirs.norm(dim=-1)).all()
