"""A step's logits as the sampler wants them: rows of float32, converted when somebody looks.

numpy does this work on one thread: a row of 49,152 logits takes some 10 us a pass, as much as it takes torch to wake
its team, and the team's other cores belong to processes that have something to do while tokens are drawn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float32]

_MINUS_INFINITY = np.uint16(0xFF80)
_INFINITY = np.int16(0x7F80)


class Logits:
    """Rows of logits [rows, vocabulary] in float32 or bfloat16. A row that was looked at may be changed in place."""

    def __init__(self, logits: torch.Tensor) -> None:
        """Other types are converted to float32. float32 logits on the CPU are changed with their rows."""
        logits = logits.cpu()
        self.vocab_size = logits.shape[1]
        self._bits: npt.NDArray[np.int16] | None = None
        self._floats: Floats | None = None
        if logits.dtype == torch.bfloat16:
            self._bits = logits.contiguous().view(torch.int16).numpy()
        else:
            self._floats = logits.float().numpy()
        self._seen: dict[int, Floats] = {}

    def row(self, index: int) -> Floats:
        """One row as float32, always the same array."""
        found = self._seen.get(index)
        if found is None:
            found = self._seen[index] = self.passing(index)
        return found

    def passing(self, index: int) -> Floats:
        """One row as float32, to be looked at once and not changed."""
        if self._floats is not None:
            row: Floats = self._floats[index]
            return row
        assert self._bits is not None
        wide = self._bits[index].view(np.uint16).astype(np.uint32)
        converted: Floats = np.left_shift(wide, np.uint32(16), out=wide).view(np.float32)
        return converted

    def best(self, index: int) -> tuple[int, np.float32]:
        """The first token of the highest logit of a row, and that logit; a NaN counts as the highest."""
        if self._bits is not None and index not in self._seen:
            bits = self._bits[index]
            token = int(bits.argmax())
            # As integers positive bfloat16 numbers are in order, and above negative ones: but for NaN with a sign.
            if 0 < bits[token] < _INFINITY and bits.view(np.uint16).max() <= _MINUS_INFINITY:
                return token, self._value(bits[token])
        row = self.row(index)
        token = int(row.argmax())
        return token, row[token]

    @staticmethod
    def _value(bits: np.int16) -> np.float32:
        return np.float32((np.uint32(bits) << np.uint32(16)).view(np.float32))
