"""Tools in a request: what is read, and that what is wrong is refused by the name of its field."""

from __future__ import annotations

from typing import Any

import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest.body import Body
from fourstroke.procs.ingest.tools.request import MAX_DEPTH, MAX_TOOLS, MAX_TOOLS_CHARS, NO_TOOLS, NOTHING, read_tools


def tool(name: Any = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(*names: str, mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


BOTH = [tool("f"), tool("g")]


@pytest.mark.parametrize(
    "body", [{}, {"tools": None}, {"tools": []}, {"tool_choice": "none"}, {"tools": [], "tool_choice": None}]
)
def test_no_tools(body: dict[str, Any]) -> None:
    """Without tools nothing is looked for and nothing enforced, whatever is said of parallel calls."""
    assert read_tools(Body(body)) == read_tools(Body({**body, "parallel_tool_calls": False})) == NO_TOOLS
    assert not NO_TOOLS.constrained


@pytest.mark.parametrize(
    "choice, names, forced, parallel",
    [
        (None, "fg", False, True),
        ("auto", "fg", False, True),
        ("none", "", False, True),
        ("required", "fg", True, True),
        (named("g"), "g", True, False),
        (allowed("g"), "g", False, True),
        (allowed("g", "f", "g", mode="required"), "gf", True, True),
    ],
)
def test_choices(choice: Any, names: str, forced: bool, parallel: bool) -> None:
    """Which functions may be called, whether one must be, and whether there may be several. All are in the prompt."""
    found = read_tools(Body({"tools": BOTH, "tool_choice": choice}))
    assert (found.names, found.forced, found.parallel) == (tuple(names), forced, parallel)
    assert [function.name for function in found.functions] == ["f", "g"]
    assert found.constrained == forced
    alone = read_tools(Body({"tools": BOTH, "tool_choice": choice, "parallel_tool_calls": False}))
    assert not alone.parallel
    assert alone.constrained == bool(names)


def test_strict() -> None:
    """A strict function that may be called needs a grammar, one that may not be called does not."""
    tools = [tool("f", strict=True), tool("g", strict=False)]
    assert read_tools(Body({"tools": tools})).constrained
    assert not read_tools(Body({"tools": tools, "tool_choice": "none"})).constrained
    assert not read_tools(Body({"tools": tools, "tool_choice": allowed("g")})).constrained


def test_parameters() -> None:
    """A function without parameters takes none; a schema that does not say so is one of objects."""
    schemas = [None, {}, {"properties": {"a": True}}, {"type": "object", "x": 1}]
    tools = [tool(f"f{place}", parameters=schema) for place, schema in enumerate(schemas)]
    found = [function.parameters for function in read_tools(Body({"tools": tools})).functions]
    whole = {"type": "object"}
    assert found == [NOTHING, whole, {**whole, "properties": {"a": True}}, {**whole, "x": 1}]


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "tools",
    [
        5,
        {},
        "f",
        [5],
        [{}],
        [{"type": "custom", "custom": {"name": "f"}}],
        [{"type": "function"}],
        [{"type": "function", "function": 5}],
        [{"type": "function", "function": {}}],
        [{"function": {"name": "f"}}],
        *([tool(name)] for name in ("", " ", "a b", "é", "a\n", "x" * 65, 5, None, ["f"], "<|im_end|>")),
        [tool("f"), tool("f")],
        [tool(description=5)],
        [tool(strict="yes")],
        *([tool(parameters=schema)] for schema in (5, [], "{}", {"type": "nope"}, {"type": ["object"]})),
        *([tool(parameters={"properties": value})] for value in (5, [], {"a": 5})),
        *([tool(parameters={"required": value})] for value in (5, "a", [5])),
    ],
    ids=repr,
)
def test_bad_tools(tools: Any) -> None:
    """Whatever is no list of functions is refused, in a line, for its `tools`."""
    refused(tools)


@pytest.mark.parametrize(
    "tools",
    [
        [tool(f"f{number}") for number in range(MAX_TOOLS + 1)],
        [tool(description="x" * MAX_TOOLS_CHARS)],
        [tool(parameters=deep(MAX_DEPTH))],
        [tool(parameters=deep(5000))],
    ],
    ids=["many", "long", "deep", "very-deep"],
)
def test_too_much(tools: Any) -> None:
    """There are limits of number, size and depth, and most that clients send is far within them."""
    refused(tools)
    read_tools(Body({"tools": [tool(f"f{number}", parameters=deep(20)) for number in range(MAX_TOOLS)]}))


def refused(tools: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read_tools(Body({"tools": tools}))
    assert raised.value.param == "tools"
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "choice",
    [
        "nope",
        "",
        5,
        True,
        [],
        {},
        {"type": "function"},
        {"type": "function", "function": "f"},
        {"type": "function", "function": {}},
        named("nope"),
        named("x" * 10**6),
        {"type": "custom", "custom": {"name": "f"}},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        allowed("nope"),
        allowed("f", mode="none"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_bad_choices(choice: Any) -> None:
    """A choice that is none, or names a function that is not there, is refused, with tools and without."""
    for tools in (BOTH, None):
        with pytest.raises(InvalidRequest) as raised:
            read_tools(Body({"tools": tools, "tool_choice": choice}))
        assert raised.value.param == "tool_choice"
        assert len(str(raised.value)) < 400


@pytest.mark.parametrize("choice", ["auto", "required", named("f")])
def test_a_choice_without_tools(choice: Any) -> None:
    """As in the OpenAI API, a choice needs something to choose from."""
    with pytest.raises(InvalidRequest) as raised:
        read_tools(Body({"tool_choice": choice}))
    assert raised.value.param == "tool_choice"


@pytest.mark.parametrize("value", [1, "yes", {}])
def test_parallel_is_a_flag(value: Any) -> None:
    """It is true or false, with tools and without."""
    for tools in (BOTH, None):
        with pytest.raises(InvalidRequest) as raised:
            read_tools(Body({"tools": tools, "parallel_tool_calls": value}))
        assert raised.value.param == "parallel_tool_calls"
