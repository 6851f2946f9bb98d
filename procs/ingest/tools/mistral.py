"""Calls as Mistral's models with the tokenizers v2 to v7 write them: a JSON list after the token [TOOL_CALLS]."""

from __future__ import annotations

import secrets
import string

from .format import CallFormat

_LETTERS = string.ascii_letters + string.digits


def _short_id() -> str:
    """Mistral's templates take no other ids than such of nine letters and digits."""
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


MISTRAL = CallFormat(
    name="mistral",
    opening="[TOOL_CALLS]",
    closing="",
    bare=False,
    arguments=("arguments", "parameters"),
    head="[TOOL_CALLS] [",
    between=", ",
    tail="]",
    new_id=_short_id,
)
