"""Which added tokens are markers of a conversation although their model does not declare them control tokens.

Some models have "<|im_start|>" among their added tokens like any other word. What a person types would then become
the marker. A token counts as one if it has the look of a marker and the chat template spells it: converters to GGUF
go by the look alone, but tokens for filling in the middle look the same, and clients send those as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LOOK = re.compile(r"<\|.*\|>|<｜.*｜>|<(start|end)_of_turn>", re.DOTALL)


def markers(added: Iterable[str], template: str | None) -> set[str]:
    """Those of the added tokens' texts that are markers."""
    source = template or ""
    return {text for text in added if _LOOK.fullmatch(text) and text in source}
