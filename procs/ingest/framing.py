"""What stands around a prompt's text: fields that vLLM's server has for it, on every route that takes a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...common.errors import InvalidRequest
from .body import Body
from .parameters import flag


@dataclass(frozen=True, slots=True)
class Framing:
    """`bos`: a BOS token of the tokenizer's goes first, beside what a template writes.

    `opens_answer`: the template begins the assistant's next message. `continues`: the last message is left open, so
    that what is generated goes on with it. `template`: the request's own, in place of the model's; `variables`: what it
    gives to either.
    """

    bos: bool
    opens_answer: bool = True
    continues: bool = False
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


TEXT = Framing(bos=True)
CHAT = Framing(bos=False)


MAX_TEMPLATE_CHARS = 1 << 16
"""Of a request's own template: the largest of known models have 15,000."""


def read_framing(body: Body, chat: bool, trusts_templates: bool = False) -> Framing:
    """The framing that a request asks for. Raises InvalidRequest."""
    usual = CHAT if chat else TEXT
    bos = flag(body, "add_special_tokens", usual.bos)
    template, variables = _template(body, trusts_templates)
    if not chat:
        return Framing(bos)
    continues = flag(body, "continue_final_message", usual.continues)
    opens = flag(body, "add_generation_prompt", usual.opens_answer and not continues)
    if opens and continues:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt cannot both be true", "continue_final_message"
        )
    return Framing(bos, opens, continues, template, variables)


def _template(body: Body, trusted: bool) -> tuple[str | None, dict[str, Any]]:
    """A request's own template, and its variables."""
    template, variables = body.get("chat_template"), body.get("chat_template_kwargs")
    for name, value in (("chat_template", template), ("chat_template_kwargs", variables)):
        if value is not None and not trusted:
            raise InvalidRequest(
                f"{name} is not accepted from a request on this server; --trust-request-chat-template changes that",
                name,
            )
    if not isinstance(template, str | None):
        raise InvalidRequest("chat_template must be a string", "chat_template")
    if template is not None and len(template) > MAX_TEMPLATE_CHARS:
        raise InvalidRequest(f"chat_template has more than {MAX_TEMPLATE_CHARS:,} characters", "chat_template")
    if not isinstance(variables, dict | None):
        raise InvalidRequest("chat_template_kwargs must be an object", "chat_template_kwargs")
    return template, variables or {}
