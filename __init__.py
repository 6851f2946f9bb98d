"""fourstroke: an LLM server for AMD GPUs, built as a pipeline of processes.

    from fourstroke import LLM, SamplingParams

    with LLM() as llm:
        print(llm.generate(["The capital of France is"], SamplingParams(max_tokens=8))[0].text)

`fourstroke serve` serves the same over HTTP.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .common.types import SamplingParams
    from .ipc.kv_index import KvIndex
    from .ipc.subscriber import AsyncKvSubscriber, KvSubscriber
    from .launch.llm import LLM

__all__ = ["LLM", "AsyncKvSubscriber", "KvIndex", "KvSubscriber", "SamplingParams", "__version__"]

__version__ = "0.1.0"


_PUBLIC = {
    "LLM": "launch.llm",
    "SamplingParams": "common.types",
    "KvIndex": "ipc.kv_index",
    "KvSubscriber": "ipc.subscriber",
    "AsyncKvSubscriber": "ipc.subscriber",
}
"""Where the public names are at home."""


def __getattr__(name: str) -> Any:
    """Load the public names when they are asked for: a server's processes need none of them."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
