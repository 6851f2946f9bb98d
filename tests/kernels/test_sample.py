"""The sampler's kernels against draw.py and noise.py, whose tokens and numbers they must give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from fourstroke.procs.executor.draw import GROUP, Filters, draw, noise_count, survivors
from fourstroke.procs.executor.kernels.sample import _cuts, _word, sample
from fourstroke.procs.executor.noise import gumbels, philox4x32

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero encountered in log:RuntimeWarning")

WIDE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """The rules of some rows, and the positions of their tokens."""

    temperature: list[float]
    top_k: list[int]
    top_p: list[float]
    min_p: list[float]
    seeds: list[int]
    positions: list[int]

    def sample(self, logits: torch.Tensor) -> tuple[list[int], list[bool]]:
        numbers = [torch.tensor(column) for column in (self.temperature, self.top_p, self.min_p)]
        seeds = torch.from_numpy(np.array(self.seeds, np.uint64).view(np.int64))
        top_k = torch.tensor(self.top_k, dtype=torch.int32)
        tokens, failed = sample(logits, numbers[0], top_k, *numbers[1:], seeds, torch.tensor(self.positions))
        return tokens.tolist(), failed.tolist()

    def filters(self, row: int) -> Filters:
        """As float32 holds them, which is what the kernel is given."""
        return Filters(self.top_k[row], float(np.float32(self.top_p[row])), float(np.float32(self.min_p[row])))

    def reference(self, logits: torch.Tensor) -> list[int]:
        """What draw.py draws."""
        return [self._draw(row, scores) for row, scores in enumerate(self.scores(logits))]

    def scores(self, logits: torch.Tensor) -> np.ndarray:
        wide = logits.float()
        return ((wide - wide.max(-1, keepdim=True)[0]) / torch.tensor(self.temperature)[:, None]).numpy()

    def _draw(self, row: int, scores: np.ndarray) -> int:
        seed, position = np.array([self.seeds[row]], np.uint64), np.array([self.positions[row]], np.uint64)
        noise = gumbels(seed, position, noise_count(len(scores)))[0]
        return draw(scores.copy(), self.filters(row), noise)


def _rows(count: int, **columns: list) -> Rows:
    """Rows that draw from the whole vocabulary at temperature 1, but for the columns given."""
    plain = {"temperature": [1.0], "top_k": [0], "top_p": [1.0], "min_p": [0.0]}
    whole = {name: value * count for name, value in plain.items()}
    return Rows(**{**whole, "seeds": list(range(count)), "positions": list(range(7, 7 + count)), **columns})


def _logits(rows: int, vocab: int, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


@triton.jit
def _words(seeds, positions, words, COUNT: tl.constexpr):
    row, index = tl.program_id(0), tl.arange(0, COUNT)
    tl.store(words + row * COUNT + index, _word(tl.load(seeds + row), tl.load(positions + row), index))


def test_the_words_are_those_of_noise_py() -> None:
    """Bit for bit: for keys and counters whose upper halves are used, and at the ends of their ranges."""
    seeds = np.array([0, 1, 1 << 32, WIDE, 0x0123456789ABCDEF], np.uint64)
    positions = np.array([0, 3, (1 << 31) + 5, (1 << 40) + 9, (1 << 63) - 1], np.uint64)
    words = torch.empty((5, 1024), dtype=torch.uint32)
    _words[(5,)](torch.from_numpy(seeds.view(np.int64)), torch.from_numpy(positions.view(np.int64)), words, 1024)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    position, seed = positions[:, None], seeds[:, None]
    index = np.arange(256, dtype=np.uint64)[None]
    counter = np.broadcast_arrays(position & low, position >> half, index, np.uint64(0))
    expected = np.stack(philox4x32(tuple(counter), (seed & low, seed >> half)), axis=-1).reshape(5, 1024)
    assert np.array_equal(words.numpy(), expected.astype(np.uint32))


FILTERS = [
    (0, 1.0, 0.0),
    (1, 1.0, 0.0),
    (40, 1.0, 0.0),
    (0, 0.9, 0.0),
    (0, 0.3, 0.0),
    (50, 0.8, 0.0),
    (0, 1.0, 0.05),
    (40, 1.0, 0.1),
    (0, 0.95, 0.02),
    (20, 0.5, 0.01),
    (5000, 0.99, 0.0),
    (0, 0.0, 0.0),
    (0, 1.0, 1.0),
]
"""top_k, top_p, min_p."""


@pytest.mark.parametrize(("top_k", "top_p", "min_p"), FILTERS)
def test_the_tokens_are_those_of_draw_py(top_k: int, top_p: float, min_p: float) -> None:
    """Over seeds, positions and temperatures, with each filter alone and together."""
    count = 8
    logits = _logits(count, 1500)
    rows = _rows(
        count,
        temperature=[0.2, 0.7, 1.0, 2.0] * 2,
        top_k=[top_k] * count,
        top_p=[top_p] * count,
        min_p=[min_p] * count,
        seeds=[WIDE - 5 * row * (1 << 40) for row in range(count)],
        positions=[row * 997 for row in range(count)],
    )
    assert rows.sample(logits) == (rows.reference(logits), [False] * count)


def test_over_many_seeds() -> None:
    """A hundred draws from one distribution: every token is draw.py's, and they are not few."""
    logits = _logits(1, 600, spread=1.0).expand(100, 600)
    rows = _rows(100)
    tokens, _ = rows.sample(logits)
    assert tokens == rows.reference(logits)
    assert len(set(tokens)) > 50


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_16_bits_tie_by_id(dtype: torch.dtype) -> None:
    """Rounded logits have many equals at the cut; who stays is decided by id, as in draw.py."""
    logits = _logits(8, 700, spread=1.0).to(dtype)
    rows = _rows(8, top_k=[3, 30, 300, 100, 0, 0, 0, 200], top_p=[1.0, 1.0, 1.0, 0.5, 0.2, 0.5, 0.9, 0.7])
    assert rows.sample(logits)[0] == rows.reference(logits)


CUTS = [(0, 0.5, 0.0), (7, 1.0, 0.0), (260, 0.5, 0.0), (1, 0.3, 0.0), (0, 0.1, 0.5), (599, 0.999, 0.0)]


def _kept(logits: torch.Tensor, rows: Rows) -> list[list[int]]:
    """The ids that the kernel's cut leaves, by what it hands on: the last key and the last id that has it."""
    count, vocab = logits.shape
    best, ids = logits.float().max(-1, keepdim=True)
    results = [
        torch.empty(count, dtype=dtype) for dtype in (torch.int64, torch.bool, torch.float32, *[torch.int32] * 2)
    ]
    columns = (rows.temperature, rows.top_k, rows.top_p, rows.min_p)
    columns = [torch.tensor(column, dtype=torch.int32 if column is rows.top_k else torch.float32) for column in columns]
    _cuts[(count,)](
        logits, *columns, best, ids.to(torch.int32), *results, vocab, logits.stride(0), 1, PARTS=1, BLOCK=256
    )
    scores = torch.from_numpy(rows.scores(logits))
    keys, place = scores.abs().view(torch.int32), torch.arange(vocab)
    cut, last = results[3][:, None], results[4][:, None]
    kept = (scores.exp() >= columns[3][:, None]) & ((keys < cut) | ((keys == cut) & (place <= last)))
    return [row.nonzero()[:, 0].tolist() for row in kept]


@pytest.mark.parametrize("levels", [1, 2, 5, 10_000])
def test_exactly_the_survivors_of_draw_py_are_left(levels: int) -> None:
    """The sets themselves: of logits that are all equal, of few values, and of all different ones."""
    count, vocab = len(CUTS), 600
    logits = (_logits(1, vocab).clamp(-6, 6) * levels / 12).round().expand(count, vocab) * (12 / levels)
    top_k, top_p, min_p = (list(column) for column in zip(*CUTS, strict=True))
    rows = _rows(count, top_k=top_k, top_p=top_p, min_p=min_p)
    scores = rows.scores(logits)
    expected = [survivors(row, rows.filters(index))[0].tolist() for index, row in enumerate(scores)]
    assert _kept(logits, rows) == expected


def test_masked_tokens_are_never_drawn() -> None:
    """Logits of minus infinity, as an allowed-token mask leaves them, with a top_k that reaches into them."""
    logits = torch.full((6, 300), float("-inf"))
    logits[:, [3, 290]] = torch.tensor([1.0, 0.5])
    rows = _rows(6, top_k=[0, 0, 5, 2, 1, 250], top_p=[1.0, 0.9, 1.0, 0.9, 1.0, 1.0])
    tokens, failed = rows.sample(logits)
    assert tokens == rows.reference(logits)
    assert set(tokens) <= {3, 290}
    assert not any(failed)


def test_greedy_takes_the_lowest_id_of_the_highest() -> None:
    """Below GREEDY_BELOW the highest logit wins, of equals the lowest id, wherever the parts of the row end."""
    logits = torch.zeros(4, 3000)
    logits[0, [1500, 2999]] = 2.0
    logits[1, 2999] = 1.0
    logits[3] = -1e30
    tokens, failed = _rows(4, temperature=[0.0, 9e-6, 0.0, 0.0], top_k=[5] * 4, top_p=[0.5] * 4).sample(logits)
    assert tokens == [1500, 2999, 0, 0]
    assert not any(failed)


def test_rows_without_a_highest_finite_logit_fail() -> None:
    """NaN anywhere, plus infinity, or nothing but minus infinity; greedy or not; neighbours do not."""
    logits = _logits(8, 300)
    logits[0:2, 250] = float("nan")
    logits[2:4, 7] = float("inf")
    logits[4:6] = float("-inf")
    rows = _rows(8, temperature=[0.0, 1.0] * 4, top_p=[0.9] * 8)
    tokens, failed = rows.sample(logits)
    assert failed == [True] * 6 + [False] * 2
    assert tokens[:6] == [0] * 6
    assert tokens[6] == int(logits[6].argmax())


def test_a_row_is_the_same_alone_and_in_a_batch() -> None:
    """No other row changes a row's token."""
    logits = _logits(6, 520)
    rows = _rows(6, top_k=[0, 5, 0, 0, 50, 0], top_p=[1.0, 1.0, 0.7, 1.0, 0.9, 1.0])
    together, _ = rows.sample(logits)
    columns = zip(rows.temperature, rows.top_k, rows.top_p, rows.min_p, rows.seeds, rows.positions, strict=True)
    alone = [Rows(*([value] for value in values)).sample(logits[i, None])[0][0] for i, values in enumerate(columns)]
    assert together == alone


@pytest.mark.parametrize("vocab", [1, 2, 255, 256, 257, 1024, 1025])
def test_vocabularies_of_any_size(vocab: int) -> None:
    """Around the edges of groups and parts."""
    logits = _logits(4, vocab)
    rows = _rows(4, top_k=[0, 3, 0, 300], top_p=[1.0, 1.0, 0.8, 0.8])
    assert rows.sample(logits)[0] == rows.reference(logits)


def test_a_vocabulary_of_49152() -> None:
    """The default model's size, in a row of a wider buffer."""
    logits = _logits(3, 49152 + GROUP)[:, :49152]
    rows = _rows(3, top_k=[0, 40, 0], top_p=[1.0, 0.95, 0.9], temperature=[1.0, 0.8, 1.2])
    assert rows.sample(logits)[0] == rows.reference(logits)


def test_no_rows_are_no_launch() -> None:
    """An empty batch has no tokens."""
    assert _rows(0).sample(torch.empty(0, 10)) == ([], [])
