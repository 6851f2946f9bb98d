"""fourstroke: an LLM server for AMD GPUs, built as a pipeline of processes.

    from fourstroke import LLM, SamplingParams

    with LLM() as llm:
        print(llm.generate(["The capital of France is"], SamplingParams(max_tokens=8))[0].text)

`fourstroke serve` serves the same over HTTP.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .common.types import SamplingParams
    from .launch.llm import LLM

__all__ = ["LLM", "SamplingParams", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the public names when they are asked for: a server's processes need none of them."""
    if name == "LLM":
        from .launch.llm import LLM

        return LLM
    if name == "SamplingParams":
        from .common.types import SamplingParams

        return SamplingParams
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
