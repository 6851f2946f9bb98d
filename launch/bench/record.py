"""One request as the client that sent it saw it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """Times in seconds of the monotonic clock, which all processes of a machine share.

    `chunks_s`: when each piece of the answer came that holds at least a token. `input_tokens` and `output_tokens` as
    the server counts them; if it does not, 0 and the number of chunks. `error` says why there is no whole answer;
    it is also there if the request was `refused`: the server had no room, and said when to come back.
    """

    begun_s: float
    ended_s: float
    chunks_s: tuple[float, ...]
    input_tokens: int
    output_tokens: int
    error: str | None = None
    refused: bool = False

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.begun_s

    @property
    def ttft_s(self) -> float:
        """The time to the first token."""
        return self.chunks_s[0] - self.begun_s

    @property
    def gaps_s(self) -> list[float]:
        """The times between a chunk and the next."""
        return [later - earlier for earlier, later in zip(self.chunks_s, self.chunks_s[1:], strict=False)]

    @property
    def mean_gap_s(self) -> float:
        """The mean time between tokens, however many of them come in a chunk."""
        return (self.chunks_s[-1] - self.chunks_s[0]) / max(1, self.output_tokens - 1)

    @property
    def line(self) -> str:
        """The record as JSON, in one line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, line: str) -> Record:
        fields = json.loads(line)
        return cls(**{**fields, "chunks_s": tuple(fields["chunks_s"])})
