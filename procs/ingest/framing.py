"""What stands around a prompt's text: fields that vLLM's server has for it, on every route that takes a prompt."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.errors import InvalidRequest
from .body import Body
from .parameters import flag


@dataclass(frozen=True, slots=True)
class Framing:
    """`bos`: a BOS token of the tokenizer's goes first, beside what a template writes.

    `opens_answer`: the template begins the assistant's next message. `continues`: the last message is left open, so
    that what is generated goes on with it.
    """

    bos: bool
    opens_answer: bool = True
    continues: bool = False


TEXT = Framing(bos=True)
CHAT = Framing(bos=False)


def read_framing(body: Body, chat: bool) -> Framing:
    """The framing that a request asks for. Raises InvalidRequest."""
    usual = CHAT if chat else TEXT
    bos = flag(body, "add_special_tokens", usual.bos)
    if not chat:
        return Framing(bos)
    continues = flag(body, "continue_final_message", usual.continues)
    opens = flag(body, "add_generation_prompt", usual.opens_answer and not continues)
    if opens and continues:
        raise InvalidRequest(
            "continue_final_message and add_generation_prompt cannot both be true", "continue_final_message"
        )
    return Framing(bos, opens, continues)
