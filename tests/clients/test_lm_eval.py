"""lm-eval from its command line, as people run it, with tasks whose data lies beside this file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .around import MODEL, ROOT

TASKS = Path(__file__).with_name("tasks")

Samples = dict[str, list[dict[str, Any]]]
Pair = tuple[list[int], list[int]]


def evaluate(out: Path, model: str, tasks: list[str], model_args: str, *flags: str) -> Samples:
    """Run tasks. Returns what was asked and what was answered, by task."""
    command = [sys.executable, "-m", "lm_eval", "run", "--model", model, "--tasks", *tasks, "--include_path", "."]
    command += ["--model_args", f"model={MODEL},{model_args}", "--output_path", str(out), "--log_samples", *flags]
    environment = os.environ | {"HF_HOME": str(out / "cache")}
    done = subprocess.run(command, cwd=TASKS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {task: read_samples(out, task) for task in tasks}


def read_samples(out: Path, task: str) -> list[dict[str, Any]]:
    (path,) = out.rglob(f"samples_{task}_*.jsonl")
    return sorted(map(json.loads, path.read_text().splitlines()), key=lambda sample: sample["doc_id"])


@pytest.fixture(scope="module")
def runs(base_url: str, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Samples, Samples]:
    """All tasks on the completions route, several prompts in a request, and one on that of chat; both at a time, since
    lm-eval takes longer to start than to ask.
    """
    outs = [tmp_path_factory.mktemp(name) for name in ("completions", "chat")]
    args = f"base_url={base_url}/completions,tokenizer={tokenizer},num_concurrent=2"
    chat_args = f"base_url={base_url}/chat/completions,num_concurrent=4"
    tasks = ["capitals", "stories", "counting"]
    with ThreadPoolExecutor() as pool:
        completions = pool.submit(evaluate, outs[0], "local-completions", tasks, args, "--batch_size", "3")
        chat = pool.submit(evaluate, outs[1], "local-chat-completions", tasks[-1:], chat_args, "--apply_chat_template")
        return completions.result(), chat.result()


@pytest.fixture(scope="module")
def samples(runs: tuple[Samples, Samples]) -> Samples:
    """What came of the completions route."""
    return runs[0]


def scored(samples: Samples, encode: PreTrainedTokenizerBase) -> list[tuple[Pair, float, str | None]]:
    """What was scored: the ids, the log-likelihood, and of a choice whether greedy decoding says it."""
    found: list[tuple[Pair, float, str | None]] = []
    for sample in samples["capitals"]:
        for asked, ((likelihood, greedy),) in zip(sample["arguments"].values(), sample["resps"], strict=True):
            context = encode(asked["arg_0"])["input_ids"]
            whole = encode(asked["arg_0"] + asked["arg_1"])["input_ids"]
            found.append(((context, whole[len(context) :]), float(likelihood), greedy))
    for sample in samples["stories"]:
        ((likelihood,),) = sample["resps"]
        found.append((([encode.bos_token_id], encode(sample["doc"]["text"])["input_ids"]), float(likelihood), None))
    return found


def test_loglikelihoods_are_those_of_transformers(samples: Samples, tokenizer: Path, server_python: Path) -> None:
    """Choices and whole texts have the log-likelihoods that transformers computes with the same weights."""
    ours = scored(samples, AutoTokenizer.from_pretrained(tokenizer))
    done = subprocess.run(
        [server_python, "-m", "tests.clients.score"],
        input=json.dumps([pair for pair, _, _ in ours]),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    theirs = json.loads(done.stdout)
    assert [likelihood for _, likelihood, _ in ours] == pytest.approx([one for one, _ in theirs], rel=0, abs=1e-2)
    assert {greedy for _, _, greedy in ours} == {"True", "False", None}
    for (_, _, greedy), (_, expected) in zip(ours, theirs, strict=True):
        assert greedy in (None, str(expected))


def test_the_model_knows_capitals(samples: Samples) -> None:
    """The task's own metric comes out, and is far from chance."""
    assert sum(sample["acc"] for sample in samples["capitals"]) >= 3


def test_generated_texts_are_those_of_a_request(samples: Samples, client: openai.OpenAI) -> None:
    """A generate_until task gets the texts that a request with the same prompt gets."""
    for sample in samples["counting"]:
        asked = sample["arguments"]["gen_args_0"]
        answer = client.completions.create(
            model=MODEL, prompt=asked["arg_0"], max_tokens=12, temperature=0, stop=asked["arg_1"]["until"]
        )
        assert sample["resps"] == [[answer.choices[0].text]]
        assert sample["exact_match"] == 1


def test_chat(runs: tuple[Samples, Samples], client: openai.OpenAI) -> None:
    """The chat route, whose prompts lm-eval sends as messages, gives the texts of a request, too."""
    for sample in runs[1]["counting"]:
        messages = [{"role": "user", "content": sample["doc"]["begin"]}]
        answer = client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=12, temperature=0, stop=["\n", "."]
        )
        assert sample["resps"] == [[answer.choices[0].message.content]]
