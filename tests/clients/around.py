"""What the tests of clients share: names, limits, and what to ask."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
KEY = "sesame-4711"
MODEL = "SmolLM2-135M-Instruct"
TIMEOUT_S = 120.0

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
TOO_LONG = "word " * 9000
"""Above the context of the model."""


class City(BaseModel):
    """A city."""

    name: str
    country: str
