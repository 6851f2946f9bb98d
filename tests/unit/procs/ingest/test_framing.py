"""What stands around a prompt's text, as requests ask for it."""

from typing import Any

import pytest

from fourstroke.common.errors import InvalidRequest
from fourstroke.procs.ingest.body import Body
from fourstroke.procs.ingest.framing import MAX_TEMPLATE_CHARS, Framing, read_framing


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("name, value", [("chat_template", "{{ x }}"), ("chat_template_kwargs", {"x": 1})])
def test_templates_of_strangers(chat: bool, name: str, value: Any) -> None:
    """A request can bring a template, or variables, only where the server trusts requests with that."""
    with pytest.raises(InvalidRequest, match="--trust-request-chat-template") as refused:
        read_framing(Body({name: value}), chat)
    assert refused.value.param == name
    assert read_framing(Body({name: None}), chat) == read_framing(Body(), chat)


def test_templates_that_are_trusted() -> None:
    """They are taken as they are."""
    body = Body({"chat_template": "{{ x }}", "chat_template_kwargs": {"x": 1}})
    assert read_framing(body, chat=True, trusts_templates=True) == Framing(
        False, template="{{ x }}", variables={"x": 1}
    )


@pytest.mark.parametrize(
    "name, value",
    [
        ("chat_template", 5),
        ("chat_template", ["x"]),
        ("chat_template", "x" * (MAX_TEMPLATE_CHARS + 1)),
        ("chat_template_kwargs", "x"),
        ("chat_template_kwargs", [["x", 1]]),
    ],
    ids=["number", "list", "long", "string", "pairs"],
)
def test_templates_that_are_none(name: str, value: Any) -> None:
    """Trusted or not, a template is a string of some size, and variables have names."""
    with pytest.raises(InvalidRequest) as refused:
        read_framing(Body({name: value}), chat=True, trusts_templates=True)
    assert refused.value.param == name
