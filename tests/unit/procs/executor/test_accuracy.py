"""`fourstroke bench accuracy`: what it says of a model is what the model says."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from fourstroke.common.errors import ConfigError
from fourstroke.procs.executor.bench import accuracy
from fourstroke.procs.executor.bench.accuracy import Answers, compared, measure
from fourstroke.procs.executor.bench.driver import Driver as Bench

from .driver import Driver, executor_config
from .tiny import CONTEXT

PROMPT = np.arange(10, 27, dtype=np.int32)


def test_scores_and_texts(tiny_model: Path) -> None:
    """They are those of the runner under plans that others write, one text after another."""
    config = executor_config(tiny_model, max_model_len=CONTEXT)
    expected = Driver(config).generate([PROMPT.tolist()], 12)[0]
    driver = Bench(config, 1, CONTEXT)
    for _ in range(2):
        assert driver.generate(PROMPT, 12).tolist() == expected
        said = np.append(PROMPT, np.array(expected, np.int32))
        logprobs, likeliest = driver.score(said)
        assert likeliest[len(PROMPT) - 1 :].tolist() == expected
        assert len(logprobs) == len(said) - 1 and (logprobs < 0).all()


def test_a_text_longer_than_a_step(tiny_model: Path) -> None:
    """It is refused in words."""
    driver = Bench(executor_config(tiny_model, max_model_len=CONTEXT, max_num_batched_tokens=16), 1, CONTEXT)
    with pytest.raises(ConfigError, match="17 tokens"):
        driver.score(PROMPT)


def test_comparison() -> None:
    """Perplexity is over all tokens; texts are the same until they first part."""
    half = [np.full(3, math.log(0.5), np.float32), np.full(1, math.log(0.125), np.float32)]
    right = Answers(half, [np.array([1, 2, 3]), np.array([4])], [np.array([5, 6, 7, 8]), np.array([1, 1, 1, 1])])
    ours = Answers(half, [np.array([1, 9, 3]), np.array([4])], [np.array([5, 6, 9, 8]), np.array([1, 1, 1, 1])])
    figures = {figure.what: figure.p50 for figure in compared("ours", ours, right)}
    assert figures == {"perplexity": pytest.approx(2**1.5), "likeliest": 75, "greedy": 75, "texts": 1}


def test_each_precision_is_held_against_the_first(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four figures each; the first agrees with itself."""
    changes = {"dtype": "float32", "quantization": "none"}
    monkeypatch.setattr(accuracy, "PRECISIONS", {"a": changes, "b": changes})
    figures = list(measure(executor_config(tiny_model, max_model_len=CONTEXT), [PROMPT], [PROMPT[:3]], 5))
    assert [figure.case for figure in figures] == ["a"] * 4 + ["b"] * 4
    assert [figure.p50 for figure in figures[1:4]] == [100, 100, 1]
    assert [figure.p50 for figure in figures[:4]] == [figure.p50 for figure in figures[4:]]


def test_what_the_machine_cannot_do(tiny_model: Path) -> None:
    """Precisions of the kernels are refused in words for a model that these do not take."""
    config = executor_config(tiny_model, max_model_len=CONTEXT)
    with pytest.raises(ConfigError, match="--quantization int8"):
        list(measure(config, [PROMPT], [PROMPT[:3]], 2))


def test_the_order_is_json(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program takes a configuration's fields and says a figure a line."""
    monkeypatch.setattr(accuracy, "PRECISIONS", {"a": {"dtype": "float32"}})
    monkeypatch.setattr(accuracy, "tokens_of", lambda _model, _texts: [PROMPT])
    fields = dataclasses.asdict(executor_config(tiny_model, max_model_len=CONTEXT))
    accuracy.main(json.dumps({"config": fields, "tokens": 2}))
    said = [json.loads(line)["what"] for line in capsys.readouterr().out.splitlines()]
    assert said == ["perplexity", "likeliest", "greedy", "texts"]
