"""Which format of calls is a model's."""

from __future__ import annotations

import pytest

from fourstroke.common.config import TOOL_CALL_PARSERS
from fourstroke.procs.ingest.tools.hermes import HERMES
from fourstroke.procs.ingest.tools.llama3_json import LLAMA3_JSON
from fourstroke.procs.ingest.tools.mistral import MISTRAL
from fourstroke.procs.ingest.tools.registry import FORMATS, choose


def test_names() -> None:
    """The flag takes the names of all formats."""
    assert set(TOOL_CALL_PARSERS) == {"auto", "none", *FORMATS}
    for name, form in FORMATS.items():
        assert choose(name, "<tool_call> [TOOL_CALLS]") is form
    assert choose("none", "<tool_call>") is None


@pytest.mark.parametrize(
    "template, form",
    [
        ("{{ '\\n<tool_call>\\n' }}", HERMES),
        ("{{ '[TOOL_CALLS] [' }}", MISTRAL),
        ("{%- if x %}{{ '<|python_tag|>' }}{% endif %}", LLAMA3_JSON),
        ("{{ messages }}", HERMES),
        ("", HERMES),
    ],
)
def test_auto(template: str, form: object) -> None:
    """The marker in the template tells; a template that speaks of no calls is taught Hermes'."""
    assert choose("auto", template) is form
