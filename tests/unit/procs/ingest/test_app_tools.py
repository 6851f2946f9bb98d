"""Tools and reasoning as a client of the chat route has them, in front of an engine that the tests direct."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from fourstroke.common.types import Finish
from fourstroke.ipc.messages import Text
from fourstroke.procs.ingest.tools.hermes import HERMES

from .surroundings import CHAT, Surroundings, ending, error, events, text
from .test_app_logprobs import said, scores

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("f", "g")]
NAMED = {"type": "function", "function": {"name": "f"}}
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS}
CALLS = HERMES.written(['{"name": "f", "arguments": {"a": 1}}', '{"name": "g", "arguments": {}}'])
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
Says = Callable[[int], Text]


def roomy(folder: Path, **config: Any) -> Surroundings:
    """Surroundings with room for tools in a prompt: the tiny vocabulary has a token for each letter."""
    around = Surroundings(folder, **config)
    around.board.row("executor0")["max_model_len"] = 4000
    return around


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    return roomy(tmp_path / "model")


def says(delta: str, finish: Finish | None = None, **fields: Any) -> Says:
    """Text of one token, and maybe the end."""

    def of(rid: int) -> Text:
        return text((rid, delta, 1), endings=() if finish is None else (ending(rid, finish, 1, **fields),))

    return of


def letters(whole: str, finish: Finish = Finish.STOP, **fields: Any) -> list[Says]:
    return [*map(says, whole), says("", finish, **fields)]


def reply(around: Surroundings, answers: Sequence[Says], body: dict[str, Any]) -> httpx.Response:
    """The answer to a request, to each of whose choices the engine says one thing after the other."""
    around.engine.by_hand = True

    async def run() -> httpx.Response:
        asking = asyncio.create_task(around.post(CHAT, body))
        await around.engine.until(1, around.engine.submits)
        for rid in around.engine.rids:
            for answer in answers:
                around.service.table.deliver(answer(rid))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        return await asking

    response = asyncio.run(run())
    assert response.status_code == 200, response.text
    return response


def ask(around: Surroundings, answers: Sequence[Says], streamed: bool, **fields: Any) -> Any:
    """The choices of an answer, put together if it is a stream."""
    response = reply(around, answers, {**HI, "stream": streamed, **fields})
    if streamed:
        return [assembled(events(response), index) for index in range(len(around.engine.rids))]
    ChatCompletion.model_validate(response.json())
    return response.json()["choices"]


def assembled(chunks: list[Any], index: int) -> dict[str, Any]:
    """A choice of a stream as a whole answer has it; no chunk but the first and the last is empty."""
    message: dict[str, Any] = {"role": None, "content": "", "refusal": None, "tool_calls": []}
    entries: list[Any] = []
    mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"] and chunk["choices"][0]["index"] == index]
    for place, choice in enumerate(mine):
        delta = choice["delta"]
        assert delta or place == len(mine) - 1
        message["role"] = message["role"] or delta.get("role")
        for name in ("content", "reasoning", "reasoning_content"):
            if delta.get(name):
                message[name] = message.get(name, "") + delta[name]
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(message["tool_calls"])
                assert (call["type"], call["function"]["arguments"]) == ("function", "")
                message["tool_calls"].append({name: call[name] for name in ("id", "type", "function")})
            else:
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        entries += (choice["logprobs"] or {"content": []})["content"]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    if not message["tool_calls"]:
        del message["tool_calls"]
    if "tool_calls" in message or "reasoning" in message:
        message["content"] = message["content"] or None
    last = mine[-1]
    found = {"index": index, "message": message, "logprobs": {"content": entries} if entries else None}
    return {**found, "finish_reason": last["finish_reason"], "stop_reason": last["stop_reason"]}


def functions(choice: dict[str, Any]) -> list[dict[str, str]]:
    calls = choice["message"].get("tool_calls", [])
    assert len({call["id"] for call in calls}) == len(calls)
    assert {call["type"] for call in calls} <= {"function"}
    return [call["function"] for call in calls]


BOTH = [{"name": "f", "arguments": '{"a": 1}'}, {"name": "g", "arguments": "{}"}]


@STREAMED
def test_calls(around: Surroundings, streamed: bool) -> None:
    """Calls are calls, whole and streamed, without a content of their own."""
    (choice,) = ask(around, letters(CALLS), streamed)
    assert functions(choice) == BOTH
    assert choice["message"]["content"] is None
    assert (choice["finish_reason"], choice["stop_reason"]) == ("tool_calls", None)


@STREAMED
def test_content_and_calls(around: Surroundings, streamed: bool) -> None:
    """Text beside calls is content."""
    (choice,) = ask(around, letters(f"Well.\n{CALLS}"), streamed)
    assert (choice["message"]["content"], functions(choice)) == ("Well.", BOTH)


@STREAMED
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_text(around: Surroundings, streamed: bool, choice: str) -> None:
    """An answer without calls is what it is without tools; with tool_choice none calls are text as well."""
    content = "Hi <tool_call" + (CALLS if choice == "none" else "")
    (answer,) = ask(around, letters(content), streamed, tool_choice=choice)
    assert (answer["message"]["content"], answer["finish_reason"]) == (content, "stop")
    assert not functions(answer)


@STREAMED
@pytest.mark.parametrize("finish, reason", [(Finish.LENGTH, "length"), (Finish.STOP, "stop")])
def test_calls_that_are_cut_off(around: Surroundings, streamed: bool, finish: Finish, reason: str) -> None:
    """A call that ends too early has the arguments that came, and the reason is not that of calls."""
    (choice,) = ask(around, letters('<tool_call>{"name": "f", "arguments": {"a"', finish), streamed)
    assert (functions(choice), choice["finish_reason"]) == ([{"name": "f", "arguments": '{"a"'}], reason)


@STREAMED
def test_a_call_of_which_there_is_no_name(around: Surroundings, streamed: bool) -> None:
    """What is cut off before it is a call is text."""
    (choice,) = ask(around, letters('<tool_call>{"na', Finish.LENGTH), streamed)
    assert (choice["message"]["content"], choice["finish_reason"]) == ('<tool_call>{"na', "length")


@STREAMED
def test_stop_string_of_a_call(around: Surroundings, streamed: bool) -> None:
    """The mark that closes a call may be a stop string: the call is complete without it."""
    cut = CALLS[: CALLS.index("</tool_call>")]
    (choice,) = ask(around, letters(cut, stop_string="</tool_call>"), streamed, stop="</tool_call>")
    assert (functions(choice), choice["finish_reason"]) == (BOTH[:1], "tool_calls")
    assert choice["stop_reason"] == "</tool_call>"


@STREAMED
def test_choices(around: Surroundings, streamed: bool) -> None:
    """Each of several choices has its calls."""
    for choice in ask(around, letters(CALLS), streamed, n=2):
        assert functions(choice) == BOTH


@STREAMED
def test_logprobs(around: Surroundings, streamed: bool) -> None:
    """All tokens have their log-probabilities, in order, those of the marks too."""

    def of(place: int, delta: str) -> Says:
        return lambda rid: said(rid, delta, [30 + place % 5], place)

    answers = [of(place, delta) for place, delta in enumerate([*"Hi <tool_call>", *CALLS[11:]])]
    finished = [*answers, says("", Finish.STOP)]
    (choice,) = ask(around, finished, streamed, logprobs=True, top_logprobs=1)
    assert scores(choice)[: len(answers)] == [-1.0 - place for place in range(len(answers))]


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_forced_calls_are_a_grammar(around: Surroundings, choice: Any) -> None:
    """What is forced goes to the engine as a grammar; what is the model's choice does not, unless it is strict."""
    ask(around, letters(CALLS), False, tool_choice=choice)
    assert "arguments0" in around.engine.submits[-1].sampling.grammar
    assert ("arguments1" in around.engine.submits[-1].sampling.grammar) == (choice == "required")


@pytest.mark.parametrize("fields, constrained", [({}, False), ({"parallel_tool_calls": False}, True)])
def test_what_needs_a_grammar(around: Surroundings, fields: dict[str, Any], constrained: bool) -> None:
    """The model's own choice is free, but for the number of calls if that is asked for."""
    ask(around, letters("Hi"), False, **fields)
    assert bool(around.engine.submits[-1].sampling.grammar) is constrained


def test_strict_function(around: Surroundings) -> None:
    """A strict function has its schema obeyed without being forced."""
    strict = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}]
    ask(around, letters("Hi"), False, tools=strict)
    assert '"enum"' in around.engine.submits[-1].sampling.grammar


@pytest.mark.parametrize(
    "schema, word",
    [
        ({"type": "object", "properties": {"a": {"type": "nope"}}}, "nope"),
        ({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}, "uniqueItems"),
    ],
    ids=["nope", "unique"],
)
def test_schemas_that_cannot_be_obeyed(around: Surroundings, schema: Any, word: str) -> None:
    """They are refused where they are to be obeyed, before the engine hears of them."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    for fields in ({"tool_choice": "required"}, {"tool_choice": NAMED}):
        found = error(asyncio.run(around.post(CHAT, {**HI, "tools": tools, **fields})), 400)
        assert found["param"] == "tools"
        assert word in found["message"]
    assert not around.engine.submits
    assert not around.service.table.busy


def test_prompt_in_words(around: Surroundings) -> None:
    """A template that takes no tools has them in a system message; /tokenize counts the same prompt."""
    ask(around, letters("Hi"), False)
    tokenizer = around.service.prompts.tokenizer
    prompt = around.engine.prompts[-1]
    assert '"name": "f"' in tokenizer.decode(prompt)
    counted = asyncio.run(around.post("/tokenize", HI)).json()
    assert counted["tokens"] == prompt
    assert asyncio.run(around.post("/tokenize", {**HI, "tools": None})).json()["count"] < len(prompt)


def test_server_without_parser(tmp_path: Path) -> None:
    """A server that reads no calls says so, and takes tools that may not be called."""
    around = roomy(tmp_path / "model", tool_call_parser="none")
    assert "--tool-call-parser" in error(asyncio.run(around.post(CHAT, HI)), 400)["message"]
    (choice,) = ask(around, letters(CALLS), False, tool_choice="none")
    assert choice["message"]["content"] == CALLS


# Reasoning


@pytest.fixture
def thinking(tmp_path: Path) -> Surroundings:
    return roomy(tmp_path / "thinking", reasoning_parser="think")


@STREAMED
@pytest.mark.parametrize("answer, content, calls", [("Yes.", "Yes.", []), (CALLS, None, BOTH)])
def test_reasoning(thinking: Surroundings, streamed: bool, answer: str, content: str | None, calls: list[Any]) -> None:
    """A thought has fields of its own, under both names; content and calls come after it."""
    (choice,) = ask(thinking, letters(f"<think>\nhm, hm\n</think>\n\n{answer}"), streamed)
    message = choice["message"]
    assert message["reasoning"] == message["reasoning_content"] == "hm, hm"
    assert (message["content"], functions(choice)) == (content, calls)


@STREAMED
def test_reasoning_that_is_cut_off(thinking: Surroundings, streamed: bool) -> None:
    """An answer that is all thought has no content."""
    (choice,) = ask(thinking, letters("<think>hm", Finish.LENGTH), streamed)
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == ("hm", None)
    assert choice["finish_reason"] == "length"


def test_reasoning_tokens(thinking: Surroundings) -> None:
    """The tokens of a thought are counted where a token of its own ends it."""
    thinking.service.dialect = dataclasses.replace(thinking.service.dialect, thought_end=9)
    pieces = [("<think>hm", [7, 7]), ("</think>Yes.", [9, 8, 9])]
    answers = [lambda rid, piece=piece: said(rid, *piece) for piece in pieces]
    response = reply(thinking, [*answers, says("", Finish.STOP)], {**HI, "tools": None, "logprobs": True})
    assert response.json()["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}


@pytest.mark.parametrize("choice, markers", [("auto", (1,)), ("none", ())])
def test_markers(around: Surroundings, choice: str, markers: tuple[int, ...]) -> None:
    """Marks that are control tokens stay in the text for the reader, unless calls are not looked for."""
    around.service.dialect = dataclasses.replace(around.service.dialect, controls={"<tool_call>": 1})
    ask(around, letters("Hi"), False, tool_choice=choice)
    (ticket,) = around.engine.tickets
    assert (ticket.markers, ticket.skip_special) == (markers, True)


def test_structure_after_a_thought(thinking: Surroundings) -> None:
    """What the client asks of the answer is asked of what follows the thought."""
    ask(thinking, letters("{}"), False, tools=None, response_format={"type": "json_object"})
    assert "think" in thinking.engine.submits[-1].sampling.grammar
