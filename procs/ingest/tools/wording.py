"""Tools for a chat template that takes none: the system message describes them, and calls and results become text.

The wording is that of the templates of Hermes and Qwen, which most models that were trained with tools have seen. What
the template would drop in silence, the assistant's calls and what came of them, is written as the model would write it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..messages import Message
from .format import CallFormat
from .request import Function

_DESCRIPTION = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> tags:
<tools>
{functions}
</tools>

To call a function, answer with its name and its arguments as JSON, like this:
{example}"""

_BEFORE_RESULT, _AFTER_RESULT = "<tool_response>\n", "\n</tool_response>"


def in_words(messages: Sequence[Message], functions: Sequence[Function], form: CallFormat) -> list[Message]:
    """The messages for a template that knows neither tools nor calls. Without any they are as they were."""
    if not functions and not any(message.get("tool_calls") for message in messages):
        return list(messages)
    said: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            _add_result(said, message)
        elif message.get("tool_calls"):
            said.append(_with_calls(message, form))
        else:
            said.append(message)
    return _with_description(said, functions, form) if functions else said


def _with_description(messages: list[Message], functions: Sequence[Function], form: CallFormat) -> list[Message]:
    """The description after the system's own words, or as the first message if it has none."""
    listed = "\n".join(_json(function.for_template()) for function in functions)
    arguments = form.arguments[0]
    example = form.written([f'{{"name": <function-name>, "{arguments}": <args-json-object>}}'])
    description = _DESCRIPTION.format(functions=listed, example=example)
    if messages and messages[0]["role"] in ("system", "developer"):
        first, *rest = messages
        return [{**first, "content": f"{first['content']}\n\n{description}".lstrip()}, *rest]
    return [{"role": "system", "content": description}, *messages]


def _with_calls(message: Message, form: CallFormat) -> Message:
    calls = [call["function"] for call in message["tool_calls"]]
    objects = [_json({"name": call["name"], form.arguments[0]: call["arguments"]}) for call in calls]
    said = [message["content"], form.written(objects)]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "content": "\n".join(filter(None, said))}


def _add_result(said: list[Message], message: Message) -> None:
    """A result as the user's words; those of several calls are one message, for many templates want turns."""
    result = _BEFORE_RESULT + message["content"] + _AFTER_RESULT
    if said and said[-1]["role"] == "user" and said[-1]["content"].endswith(_AFTER_RESULT):
        said[-1] = {"role": "user", "content": f"{said[-1]['content']}\n{result}"}
    else:
        said.append({"role": "user", "content": result})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
