"""The formats of calls, and which of them is a model's."""

from __future__ import annotations

from .format import CallFormat
from .hermes import HERMES
from .llama3_json import LLAMA3_JSON
from .mistral import MISTRAL

FORMATS = {form.name: form for form in (HERMES, LLAMA3_JSON, MISTRAL)}


def choose(name: str, template: str) -> CallFormat | None:
    """The format of that name. "none" is none; "auto" the one whose marker the chat template holds, or else Hermes'.

    A template that speaks of no calls takes no tools, and the model is told of this format in wording.py.
    """
    if name != "auto":
        return FORMATS.get(name)
    for form in FORMATS.values():
        if form.opening in template:
            return form
    return HERMES
