"""Calls as Hermes, Qwen 2.5, Qwen 3, SmolLM 2 and many others write them: JSON between <tool_call> and </tool_call>.

Each call has tags of its own; SmolLM 2 writes a list between one pair of them.
"""

from __future__ import annotations

from .format import CallFormat

HERMES = CallFormat(
    name="hermes",
    opening="<tool_call>",
    closing="</tool_call>",
    bare=False,
    arguments=("arguments", "parameters"),
    head="<tool_call>\n",
    between="\n</tool_call>\n<tool_call>\n",
    tail="\n</tool_call>",
)
