"""Calls as Llama 3.1 to 3.3 write them: the answer is a JSON object with `name` and `parameters`, and nothing else.

The control token <|python_tag|> may stand before it. Several calls have semicolons between them, as vLLM reads them.
"""

from __future__ import annotations

from .format import CallFormat

LLAMA3_JSON = CallFormat(
    name="llama3_json",
    opening="<|python_tag|>",
    closing="",
    bare=True,
    arguments=("parameters", "arguments"),
    head="",
    between="; ",
    tail="",
)
