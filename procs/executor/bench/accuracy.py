"""What precision costs: a model in float32 and in less, on the same text. `fourstroke bench accuracy` starts it.

Writes figures to standard output, one a line. What to measure comes as JSON in the only argument: {"config": the fields
of a Config, "tokens": how many each beginning is gone on with}. Texts are cut into the longest tokens from
left to right, which is nearly what the model's tokenizer does, and the same for all.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....common.config import Config
from ....common.errors import ConfigError, ModelError, ResourceError
from ....common.figures import Figure, summarise
from ....common.types import EXIT_REFUSED
from ...grammar import grammar_tokenizer
from ...vocabulary import load_vocabulary
from ..weights.checkpoint import open_checkpoint
from .driver import Driver, Tokens
from .text import BEGINNINGS, PASSAGES

PRECISIONS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32", "quantization": "none"},
    "bfloat16": {"dtype": "bfloat16", "quantization": "none"},
    "auto": {"dtype": "bfloat16", "quantization": "auto"},
    "int8": {"dtype": "bfloat16", "quantization": "int8"},
    "int4": {"dtype": "bfloat16", "quantization": "int4"},
}
"""Changes of a configuration. The first is what the others are held against."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a model says: of each passage's tokens from the second on their log-probabilities and what it holds for the
    likeliest, and how it goes on from each beginning.
    """

    logprobs: Sequence[npt.NDArray[np.float32]]
    likeliest: Sequence[Tokens]
    continued: Sequence[Tokens]

    @property
    def perplexity(self) -> float:
        return math.exp(-float(np.concatenate(self.logprobs).mean(dtype=np.float64)))


def main(argument: str) -> None:
    order = json.loads(argument)
    config = dataclasses.replace(Config.of_fields(order["config"]), num_speculative_tokens=0)
    passages, beginnings = tokens_of(config.model, PASSAGES), tokens_of(config.model, BEGINNINGS)
    for figure in measure(config, passages, beginnings, order["tokens"]):
        sys.stdout.write(figure.line + "\n")
        sys.stdout.flush()


def tokens_of(model: str, texts: Sequence[str]) -> list[Tokens]:
    """Raises ModelError if the model's vocabulary cannot be read."""
    of_model = open_checkpoint(Path(model)).config
    tokenizer = grammar_tokenizer(load_vocabulary(model), of_model.vocab_size, of_model.eos_token_ids)
    return [np.array(tokenizer.greedy_tokenize(text), np.int32) for text in texts]


def measure(config: Config, passages: Sequence[Tokens], beginnings: Sequence[Tokens], tokens: int) -> Iterator[Figure]:
    """The figures of each precision. Raises ConfigError for one that the machine cannot compute in."""
    right: Answers | None = None
    for name, changes in PRECISIONS.items():
        answers = _answers(dataclasses.replace(config, **changes), passages, beginnings, tokens)
        right = right or answers
        yield from compared(name, answers, right)


def compared(name: str, answers: Answers, right: Answers) -> Iterator[Figure]:
    """Perplexity, and in per cent how often the likeliest token is the same, and how much of the greedy texts is until
    they part for the first time.
    """
    yield summarise(name, "perplexity", "", [answers.perplexity])
    same = np.concatenate(answers.likeliest) == np.concatenate(right.likeliest)
    yield summarise(name, "likeliest", "%", [100 * float(same.mean())])
    shares = [100 * _common(*pair) / len(pair[0]) for pair in zip(answers.continued, right.continued, strict=True)]
    yield summarise(name, "greedy", "%", [sum(shares) / len(shares)])
    yield summarise(name, "texts", "", [shares.count(100)])


def _common(ours: Tokens, theirs: Tokens) -> int:
    """How many tokens are the same before the first that is not."""
    return int(np.append(ours != theirs, True).argmax())


def _answers(config: Config, passages: Sequence[Tokens], beginnings: Sequence[Tokens], tokens: int) -> Answers:
    driver = Driver(config, 1, max(*map(len, passages), *(len(beginning) + tokens for beginning in beginnings)))
    scored = [driver.score(passage) for passage in passages]
    continued = [driver.generate(beginning, tokens) for beginning in beginnings]
    return Answers([logprobs for logprobs, _ in scored], [likeliest for _, likeliest in scored], continued)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (ConfigError, ModelError, ResourceError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_REFUSED)
