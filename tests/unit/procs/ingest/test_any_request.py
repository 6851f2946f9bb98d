"""Whatever a client sends is answered or refused; it never reaches the engine in a shape that it does not know."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourstroke.procs.ingest import fields as table

from .surroundings import CHAT, COMPLETIONS, MAX_MODEL_LEN, VOCAB, Surroundings

NUMBERS = st.sampled_from([0, 1, 2, -1, 1.5, 2**31, 2**63, -(2**63), 10**400, 1e308, float("nan"), float("inf"), True])
STRINGS = (
    st.sampled_from(["", "a", "<s>", "<|end|>", "\0", "\ud800", "👋", "\ufdd0", "tiny", "user", "text"]) | st.text()
)
FUNCTIONS = st.fixed_dictionaries(
    {"name": st.sampled_from(["f", "g", ""])},
    optional={"description": STRINGS, "strict": st.booleans() | STRINGS},
)
TOOLS = st.lists(st.fixed_dictionaries({"type": st.just("function"), "function": FUNCTIONS}), max_size=2)
CHOICES = st.sampled_from(["none", "auto", "required", {"type": "function", "function": {"name": "f"}}])
VALUES = st.recursive(
    st.none() | NUMBERS | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=6,
)
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text") | VALUES, "text": STRINGS | VALUES}), max_size=2)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "system", "assistant", "tool"]) | VALUES,
            "content": STRINGS | PARTS | VALUES,
        },
        optional={"tool_calls": VALUES, "name": VALUES},
    ),
    max_size=3,
)
IDS = st.lists(st.integers(0, VOCAB) | NUMBERS, max_size=4)
NAMES = sorted({field.name for field in table.FIELDS} - {"prompt", "messages"}) + ["logprobs", "force", "user"]
FIELDS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)
PROMPTS = STRINGS | IDS | st.lists(STRINGS | IDS, max_size=3) | VALUES
PATHS = st.sampled_from([COMPLETIONS, CHAT, "/tokenize", "/detokenize"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Surroundings:
    return Surroundings(tmp_path_factory.mktemp("any") / "model")


TOOLED = st.fixed_dictionaries({}, optional={"tools": TOOLS, "tool_choice": CHOICES})


@settings(deadline=None, max_examples=300)
@given(PATHS, PROMPTS, MESSAGES | VALUES, IDS | VALUES, FIELDS, TOOLED)
def test_any_request(
    shared: Surroundings, path: str, prompt: Any, messages: Any, tokens: Any, fields: Any, tooled: Any
) -> None:
    """Any mixture of values is answered with 200, 400 or 404, in JSON, and leaves nothing behind."""
    given = {COMPLETIONS: {"prompt": prompt}, CHAT: {"messages": messages, **tooled}}
    body = json.dumps({**given.get(path, {**given[CHAT], **given[COMPLETIONS], "tokens": tokens}), **fields}).encode()
    response = asyncio.run(shared.post(path, body))
    assert response.status_code in (200, 400, 404), response.text
    if response.headers["content-type"] == "application/json":
        assert ("error" in response.json()) == (response.status_code != 200)
    assert not shared.service.table.busy
    assert not shared.engine.aborts
    for submit, tokens in zip(shared.engine.submits, shared.engine.prompts, strict=True):
        assert 0 < len(tokens) < MAX_MODEL_LEN
        assert all(0 <= token < VOCAB for token in tokens)
        assert 0 <= submit.limits.max_tokens <= MAX_MODEL_LEN - len(tokens)
        assert 0 <= submit.limits.min_tokens <= submit.limits.max_tokens
    shared.engine.submits.clear()
    shared.engine.rids.clear()
    shared.engine.prompts.clear()
    shared.engine.tickets.clear()
