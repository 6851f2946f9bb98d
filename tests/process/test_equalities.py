"""The same answers whatever the arrangement, with the real model and real processes, in every precision.

Every variant is tried in the arrangements that change most. All others are tried on the default alone: it is the
quickest, and since its kernels promise the same bits, log-probabilities must be equal to the last digit as well.
"""

from __future__ import annotations

import pytest

from fourstroke import LLM, SamplingParams
from fourstroke.common.errors import ServerError
from fourstroke.launch.completions import Completion

from .server import metrics

VARIANTS: dict[str, dict[str, object]] = {
    "default": {"batch_invariant": True},
    "bfloat16": {"dtype": "bfloat16", "quantization": "none", "batch_invariant": True},
    "int8": {"quantization": "int8", "batch_invariant": True},
    "float32": {"dtype": "float32"},
}
"""The C kernels with weights of 4 bits, as the file has them, of 16 and of 8; and torch, which promises no bits:
its sums depend on the batch, in float32 by too little to change a text.
"""

Row = tuple[str, dict[str, object]]
EOS = 2
CAT = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}

SHORT: list[Row] = [
    ("The capital of France is", {"temperature": 0}),
    ("Once upon a time " * 12, {"seed": 1}),
    ("def fibonacci(n):", {"temperature": 0, "logprobs": 5}),
    ("1, 2, 3, " * 20, {"temperature": 0, "presence_penalty": 0.5, "repetition_penalty": 1.1}),
    ("A cat, as JSON:", {"temperature": 0, "structured_outputs": {"json": CAT}}),
    ("1, 2, 3, 4, 5, ", {"seed": 2, "top_p": 0.9, "logprobs": 2, "n": 2}),
    ("Once upon a time", {"seed": 3, "min_tokens": 12, "logit_bias": {EOS: 100.0}, "ignore_eos": False}),
    ("Hello", {"seed": 4, "min_p": 0.05, "frequency_penalty": 1.0, "logit_bias": {260: 4.0, 28: -100.0}}),
]
"""Plain rows, greedy and seeded, among rows that ask for all that is done to logits."""

NUMBER = {"regex": "[0-9]{3}(-[0-9]{2}){40}"}
GROWING: list[Row] = [
    (prompt, {"structured_outputs": NUMBER, "frequency_penalty": 2.0, "logprobs": 1, "max_tokens": 90, "seed": seed})
    for seed, prompt in enumerate(("Her number is", "The code of the day:"))
]
"""They fit into ten blocks together at the beginning, not at the end. Whichever goes has a grammar and penalties."""

SHARING: list[Row] = [
    (" ".join(map(str, range(count))), {"temperature": seed % 2, "seed": seed, "max_tokens": 12})
    for seed, count in enumerate((3, 60, 61, 40, 7))
]
"""Each begins like the next longer one."""

DRAFTS = {"num_speculative_tokens": 2, "pipeline_depth": 1, "max_num_batched_tokens": 16}
TIGHT = {"num_blocks": 10, "max_model_len": 160, "max_num_batched_tokens": 16}

Seen = list[tuple[object, ...]]


def ask(llm: LLM, rows: list[Row], **more: object) -> list[Completion]:
    """The answers to rows, all of which are asked at once."""
    params = [SamplingParams(**{"max_tokens": 20, "ignore_eos": True, **changes, **more}) for _, changes in rows]  # type: ignore[arg-type]
    return llm.generate([prompt for prompt, _ in rows], params, progress=False)


class Alone:
    """What a server answers that computes one request at a time, without pipelining, cache or drafts."""

    def __init__(self, variant: str) -> None:
        self.options = VARIANTS[variant]
        self._exact = "batch_invariant" in self.options
        with LLM(**self.options, max_num_seqs=1, pipeline_depth=1, prefix_cache=False) as llm:
            self.short, self.growing = self.seen(ask(llm, SHORT)), self.seen(ask(llm, GROWING))
            self.sharing = self.seen(ask(llm, SHARING)) if variant == "default" else []

    def seen(self, answers: list[Completion]) -> Seen:
        """What must be equal of answers: log-probabilities, too, where the bits are the same."""
        return [
            (choice.text, choice.finish_reason, choice.logprobs if self._exact else None)
            for answer in answers
            for choice in answer.choices
        ]


@pytest.fixture(scope="module", params=VARIANTS)
def alone(request: pytest.FixtureRequest) -> Alone:
    return Alone(request.param)


only_default = pytest.mark.parametrize("alone", ["default"], indirect=True)


def check_text(alone: Alone, options: dict[str, object]) -> None:
    """All at once, and once more, when the prefix cache has the prompts, if there is one."""
    with LLM(**alone.options, **options) as llm:
        first, again = (ask(llm, SHORT) for _ in range(2))
    assert alone.seen(first) == alone.short
    assert alone.seen(again) == alone.short
    found = sum(answer.cached_tokens for answer in again)
    assert (found > 0) == options.get("prefix_cache", True)


@pytest.mark.parametrize("options", [{}, DRAFTS], ids=["batch", "drafts-depth-1-chunks"])
def test_answers_do_not_depend_on_the_arrangement(alone: Alone, options: dict[str, object]) -> None:
    """Batched, chunked, speculated, out of the prefix cache: each request gets the answer that it gets alone."""
    check_text(alone, options)


@only_default
@pytest.mark.parametrize(
    "options",
    [
        {"pipeline_depth": 1},
        {"max_num_batched_tokens": 16, "prefix_cache": False},
        {"block_size": 32, "max_num_seqs": 3},
        {"policy": "prefill-first", "max_num_batched_tokens": 48},
        {"num_speculative_tokens": 3},
    ],
    ids=["depth-1", "chunks-of-16", "other-blocks", "prefill-first", "drafts"],
)
def test_answers_do_not_depend_on_other_arrangements(alone: Alone, options: dict[str, object]) -> None:
    """The same for more of them."""
    check_text(alone, options)


def check_preempted(alone: Alone, options: dict[str, object]) -> None:
    with LLM(**alone.options, **TIGHT, **options) as llm:
        answers = ask(llm, GROWING)
        assert metrics(llm.url)["preemptions_total", "scheduler0"] > 0
    assert alone.seen(answers) == alone.growing


def test_answers_do_not_depend_on_preemption(alone: Alone) -> None:
    """A request that loses its blocks in the middle goes on as if nothing had been, in chunks of 16 tokens."""
    check_preempted(alone, {})


@only_default
@pytest.mark.parametrize(
    "options",
    [{"pipeline_depth": 1}, {"prefix_cache": False, "num_speculative_tokens": 2}],
    ids=["depth-1", "no-cache-drafts"],
)
def test_answers_do_not_depend_on_preemption_elsewhere(alone: Alone, options: dict[str, object]) -> None:
    """The same at depth 1; and with drafts, where no cache helps to compute again what was lost."""
    check_preempted(alone, options)


@only_default
@pytest.mark.parametrize("cache", [False, True], ids=["no-cache", "cache"])
def test_answers_do_not_depend_on_what_is_shared(alone: Alone, cache: bool) -> None:
    """Choices of one prompt that share its prefill, and prompts of mixed lengths that another request had computed:
    the answers to each alone. A prompt is computed once for all of its choices.
    """
    options = {"prefix_cache": cache, "max_num_batched_tokens": 16, "num_blocks": 48, "max_model_len": 400}
    with LLM(**alone.options, **options) as llm:
        answers, again = (ask(llm, SHARING, n=4) for _ in range(2))
        numbers = metrics(llm.url)
    assert alone.seen(answers)[::4] == alone.sharing
    assert alone.seen(again) == alone.seen(answers)
    prompt_tokens = sum(answer.prompt_tokens for answer in (*answers, *again))
    computed = numbers["prompt_tokens_total", "scheduler0"] - numbers["recomputed_tokens_total", "scheduler0"]
    last_blocks = 16 * 3 * 2 * len(SHARING)
    assert computed <= prompt_tokens + last_blocks


def test_torch_does_not_promise_the_same_bits() -> None:
    """So it is refused, and told why, where somebody asks for them."""
    with pytest.raises(ServerError, match=r"--batch-invariant needs the C kernels, .* bfloat16 only"):
        LLM(dtype="float32", batch_invariant=True)
