"""Draws a token for each row of logits, with the filters, the noise and the two levels of draw.py and noise.py.

Four kernels, none of which the host waits for: `_maxima`, the highest logit of each part of a row; `_cuts`, a row's
highest logit, its greedy token, and what top_k and top_p leave, as the lowest score that survives and the last id
of those that have it; `_sums`, the weight of each group of 256 tokens; `_draw`, a group and then a token in it, by
Gumbel-max. All but the first do nothing for greedy rows.

Nothing is sorted. A score is (logit - highest) / temperature, so never above 0, and the bits of its absolute value,
its `key`, rise as it falls. The lowest key at which enough tokens or enough mass have been passed is found by
bisection on the bits; each pass moves the bounds to keys that occur, so it ends when one is left, after about fifteen
passes (31 at most). Masses are added as integers, in units of 2^-42 of the highest token's weight: exact, in whatever
order. Noise and the groups' weights are float64, as in draw.py: they are only V / 256 + 256 logarithms a row.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from ....common.types import GREEDY_BELOW as _GREEDY_BELOW
from ..draw import GROUP as _GROUP
from .architectures import architecture_of
from .tuning import Tuning, tuning
from .variants import Variant

GROUP = tl.constexpr(_GROUP)
GREEDY_BELOW = tl.constexpr(_GREEDY_BELOW)
UNIT = tl.constexpr(2.0**42)
"""The weight of the highest token as an integer. A vocabulary of 2^20 tokens cannot overflow 63 bits."""
ALL = tl.constexpr(0x7FFFFFFF)
"""Above all keys and all ids."""
TO_UNIT_INTERVAL = tl.constexpr(2.0**-32)


@triton.jit
def _scores(logits, tokens, vocab, highest, temperature):
    """The keys of tokens, and their probabilities relative to the highest one's."""
    x = tl.load(logits + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32)
    score = tl.div_rn(x - highest, temperature)
    return tl.abs(score).to(tl.int32, bitcast=True), tl.exp(score)


@triton.jit
def _kept(logits, tokens, vocab, highest, temperature, min_p, cut, last):
    """The weights of tokens in float64; 0 of those that the filters took away."""
    key, weight = _scores(logits, tokens, vocab, highest, temperature)
    kept = (weight >= min_p) & ((key < cut) | ((key == cut) & (tokens <= last)))
    return tl.where(kept, weight, 0.0).to(tl.float64)


@triton.jit
def _word(seed, position, index):
    """Word `index` of the rows' streams: that of noise.py, whose key and counter these are."""
    high, block, lane = (position >> 32).to(tl.uint32), (index // 4).to(tl.uint32), index % 4
    w0, w1, w2, w3 = tl.philox(seed, position.to(tl.uint32), high, block, 0)
    return tl.where(lane == 0, w0, tl.where(lane == 1, w1, tl.where(lane == 2, w2, w3)))


@triton.jit
def _gumbel(seed, position, index):
    """Variate `index` as noise.gumbels has it, float64."""
    return -tl.log(-tl.log((_word(seed, position, index).to(tl.float64) + 0.5) * TO_UNIT_INTERVAL))


@triton.jit
def _maxima(logits, best, best_ids, vocab, stride, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tokens = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32)
    x = tl.where(x == x, x, float("inf"))  # NaN makes the row fail, as infinity does
    highest = tl.max(x)
    tl.store(best + row * parts + part, highest)
    tl.store(best_ids + row * parts + part, tl.min(tl.where(x == highest, tokens, ALL)))


@triton.jit
def _tally(logits, vocab, highest, temperature, min_p, limit, BLOCK: tl.constexpr):
    """Of the tokens that min_p leaves: count and mass of those with keys up to `limit`, the highest key of them
    (-1: none), and the lowest key above."""
    count = tl.zeros((BLOCK,), tl.int32)
    mass = tl.zeros((BLOCK,), tl.int64)
    under = tl.full((BLOCK,), -1, tl.int32)
    over = tl.full((BLOCK,), ALL, tl.int32)
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        key, weight = _scores(logits, tokens, vocab, highest, temperature)
        passing = (tokens < vocab) & (weight >= min_p)
        low = passing & (key <= limit)
        count += low.to(tl.int32)
        mass += tl.where(low, (weight * UNIT).to(tl.int64), 0)
        under = tl.maximum(under, tl.where(low, key, -1))
        over = tl.minimum(over, tl.where(passing & (key > limit), key, ALL))
    return tl.sum(count), tl.sum(mass), tl.max(under), tl.min(over)


@triton.jit
def _search(
    logits, vocab, highest, temperature, min_p, target, cut, count, mass,
    BY_MASS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The lowest key up to which the count, or the mass, reaches `target`.

    `cut` is a key that does, with its `count` and `mass`. Returns the key, its count and mass, and those below it.
    """
    low = cut * 0 - 1
    count_below, mass_below = count * 0, mass * 0
    while cut - low > 1:
        passed, passed_mass, under, over = _tally(
            logits, vocab, highest, temperature, min_p, low + (cut - low) // 2, BLOCK
        )
        reached = (passed_mass if BY_MASS else passed) >= target
        cut, low = tl.where(reached, under, cut), tl.where(reached, low, over - 1)
        count, mass = tl.where(reached, passed, count), tl.where(reached, passed_mass, mass)
        count_below = tl.where(reached, count_below, passed)
        mass_below = tl.where(reached, mass_below, passed_mass)
    return cut, count, mass, count_below, mass_below


@triton.jit
def _last_tie(logits, vocab, highest, temperature, cut, ties, BLOCK: tl.constexpr):
    """The id of the ties-th token whose key is `cut`."""
    found = tl.full((BLOCK,), 0, tl.int32)
    before = ties * 0
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        key, _ = _scores(logits, tokens, vocab, highest, temperature)
        equal = ((key == cut) & (tokens < vocab)).to(tl.int32)
        found = tl.maximum(found, tl.where((equal > 0) & (before + tl.cumsum(equal) <= ties), tokens, 0))
        before += tl.sum(equal)
    return tl.max(found)


@triton.jit
def _cut(logits, vocab, highest, temperature, top_k, top_p, min_p, BLOCK: tl.constexpr):
    """The last key that top_k and top_p leave, and the last id of those that have it."""
    count, mass, cut, _ = _tally(logits, vocab, highest, temperature, min_p, ALL, BLOCK)
    ties = count
    if (top_k > 0) & (top_k < count):
        cut, count, mass, count_below, mass_below = _search(
            logits, vocab, highest, temperature, min_p, top_k, cut, count, mass, False, BLOCK
        )
        ties = top_k - count_below
        mass = mass_below + ties * ((mass - mass_below) // (count - count_below))
        count = top_k
    if top_p < 1:
        share = tl.ceil(top_p.to(tl.float64) * mass.to(tl.float64)).to(tl.int64)
        share = tl.minimum(tl.maximum(share, 1), mass)
        cut, count, mass, count_below, mass_below = _search(
            logits, vocab, highest, temperature, min_p, share, cut, count, mass, True, BLOCK
        )
        each = (mass - mass_below) // (count - count_below)
        ties = ((share - mass_below + each - 1) // each).to(tl.int32)
    return cut, _last_tie(logits, vocab, highest, temperature, cut, ties, BLOCK)


@triton.jit
def _cuts(
    logits, temperatures, top_ks, top_ps, min_ps, best, best_ids,
    tokens, failed, maxima, cuts, lasts,
    vocab, stride, parts,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    values = tl.load(best + row * parts + part, mask=part < parts, other=float("-inf"))
    ids = tl.load(best_ids + row * parts + part, mask=part < parts, other=ALL)
    highest = tl.max(values)
    finite = tl.abs(highest) < float("inf")
    tl.store(tokens + row, tl.where(finite, tl.min(tl.where(values == highest, ids, ALL)), 0).to(tl.int64))
    tl.store(failed + row, finite == 0)
    tl.store(maxima + row, highest)

    temperature, min_p = tl.load(temperatures + row), tl.load(min_ps + row)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    if finite & (temperature >= GREEDY_BELOW):
        cut, last = tl.full((), ALL, tl.int32), tl.full((), ALL, tl.int32)
        if (top_k > 0) | (top_p < 1):
            cut, last = _cut(logits + row * stride, vocab, highest, temperature, top_k, top_p, min_p, BLOCK)
        tl.store(cuts + row, cut)
        tl.store(lasts + row, last)


@triton.jit
def _sums(
    logits, temperatures, min_ps, maxima, cuts, lasts, sums, vocab, stride, groups, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    highest, temperature = tl.load(maxima + row), tl.load(temperatures + row)
    if (tl.abs(highest) < float("inf")) & (temperature >= GREEDY_BELOW):
        group = tl.program_id(1) * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
        tokens = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        cut, last, min_p = tl.load(cuts + row), tl.load(lasts + row), tl.load(min_ps + row)
        weights = _kept(logits + row * stride, tokens, vocab, highest, temperature, min_p, cut, last)
        tl.store(sums + row * groups + group, tl.sum(weights, axis=1), mask=group < groups)


@triton.jit
def _draw(
    logits, temperatures, min_ps, seeds, positions, maxima, cuts, lasts, sums, tokens,
    vocab, stride, groups,
    GROUPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    highest, temperature = tl.load(maxima + row), tl.load(temperatures + row)
    if (tl.abs(highest) < float("inf")) & (temperature >= GREEDY_BELOW):
        seed, position = tl.load(seeds + row), tl.load(positions + row)
        group = tl.arange(0, GROUPS)
        weights = tl.load(sums + row * groups + group, mask=group < groups, other=0.0)
        chosen = tl.argmax(tl.log(weights) + _gumbel(seed, position, group + GROUP), axis=0)
        place = tl.arange(0, GROUP)
        ids = chosen * GROUP + place
        cut, last, min_p = tl.load(cuts + row), tl.load(lasts + row), tl.load(min_ps + row)
        weights = _kept(logits + row * stride, ids, vocab, highest, temperature, min_p, cut, last)
        token = chosen * GROUP + tl.argmax(tl.log(weights) + _gumbel(seed, position, place), axis=0)
        tl.store(tokens + row, token.to(tl.int64))


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A token for each row of `logits` [R, V] of any float type, int64 [R], and which rows failed, bool [R].

    `temperature`, `top_p`, `min_p` are float32 [R], `top_k` int32 [R]; top_p is off at 1, the others at 0. `seeds` and
    `positions` (of the new tokens) are int64 [R]; a seed's bits count: those of 2^63 and above are the negative ones.
    A temperature below GREEDY_BELOW takes the highest logit, of equals the one with the lowest id. A row fails if
    it has NaN, or no highest finite logit; its token is 0.
    """
    rows, vocab = logits.shape
    place: dict[str, Any] = {"device": logits.device}
    tokens = torch.empty(rows, dtype=torch.int64, **place)
    failed = torch.empty(rows, dtype=torch.bool, **place)
    if not rows:
        return tokens, failed
    arch = architecture_of(logits.device)
    part, search = tuning("sample", arch), tuning("sample_cuts", arch)
    parts, groups = triton.cdiv(vocab, part.blocks["BLOCK"]), triton.cdiv(vocab, _GROUP)
    best = torch.empty((rows, parts), dtype=torch.float32, **place)
    best_ids = torch.empty((rows, parts), dtype=torch.int32, **place)
    maxima = torch.empty(rows, dtype=torch.float32, **place)
    cuts, lasts = torch.empty((2, rows), dtype=torch.int32, **place)
    sums = torch.empty((rows, groups), dtype=torch.float64, **place)
    width = (vocab, logits.stride(0))

    _maxima[(rows, parts)](logits, best, best_ids, *width, parts, **part.blocks, **part.options)
    results = (tokens, failed, maxima, cuts, lasts)
    filters = (temperature, top_k, top_p, min_p)
    constants = _cuts_constants(search, parts)
    _cuts[(rows,)](logits, *filters, best, best_ids, *results, *width, parts, **constants, **search.options)
    kept = (maxima, cuts, lasts, sums)
    _sums[(rows, parts)](logits, temperature, min_p, *kept, *width, groups, **part.blocks, **part.options)
    columns = (temperature, min_p, seeds, positions)
    constants = _draw_constants(groups)
    _draw[(rows,)](logits, *columns, *kept, tokens, *width, groups, **constants, **part.options)
    return tokens, failed


def _cuts_constants(how: Tuning, parts: int) -> dict[str, int]:
    return {"PARTS": triton.next_power_of_2(parts), **how.blocks}


def _draw_constants(groups: int) -> dict[str, int]:
    return {"GROUPS": triton.next_power_of_2(groups)}


def variants(arch: str) -> list[Variant]:
    """The four kernels over logits of 16 and of 32 bits, for a vocabulary of 128,256."""
    return [variant for dtype in ("bf16", "fp32") for variant in _variants(arch, dtype, 128256)]


_TYPES = {
    **dict.fromkeys(("temperatures", "top_ps", "min_ps", "best", "maxima"), "*fp32"),
    **dict.fromkeys(("top_ks", "best_ids", "cuts", "lasts"), "*i32"),
    **dict.fromkeys(("seeds", "positions", "tokens"), "*i64"),
    **dict.fromkeys(("vocab", "stride", "parts", "groups"), "i32"),
    "failed": "*i1",
    "sums": "*fp64",
}


def _variants(arch: str, dtype: str, vocab: int) -> list[Variant]:
    part, search = tuning("sample", arch), tuning("sample_cuts", arch)
    parts, groups = triton.cdiv(vocab, part.blocks["BLOCK"]), triton.cdiv(vocab, _GROUP)
    cases = (
        (_maxima, part, dict(part.blocks)),
        (_cuts, search, _cuts_constants(search, parts)),
        (_sums, part, dict(part.blocks)),
        (_draw, part, _draw_constants(groups)),
    )
    return [_variant(dtype, *case) for case in cases]


def _variant(dtype: str, kernel: JITFunction[Any], how: Tuning, constants: dict[str, int]) -> Variant:
    types = {"logits": f"*{dtype}", **_TYPES}
    signature = {name: types[name] for name in kernel.arg_names if name not in constants}
    name = f"{kernel.fn.__name__.lstrip('_')} {dtype}"
    return Variant(name, kernel, signature, constants, how, multiples_of_16=("vocab", "stride"))
