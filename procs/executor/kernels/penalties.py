"""What is done to logits before a token is drawn: penalties of repetition, and masks of allowed tokens.

Elementwise and in place, one program a block of one row's tokens. Bits of a mask are packed as llguidance and XGrammar
pack them: token t is bit t % 32, counted from the lowest, of word t // 32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .architectures import architecture_of
from .tuning import tuning
from .variants import Variant


@triton.jit
def _bits(words, row, words_stride, tokens, inside):
    """Whether the tokens' bits are set in a row of words."""
    word = tl.load(words + row * words_stride + tokens // 32, mask=inside, other=0)
    return ((word >> (tokens % 32)) & 1) != 0


@triton.jit
def _penalties(
    logits, counts, prompt, repetition, presence, frequency,
    vocab, logits_stride, counts_stride, words_stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = tokens < vocab
    place = logits + row * logits_stride + tokens
    x = tl.load(place, mask=inside, other=0.0)
    count = tl.load(counts + row * counts_stride + tokens, mask=inside, other=0)
    factor = tl.load(repetition + row)
    repeated = tl.where(x > 0, tl.div_rn(x, factor), x * factor)
    x = tl.where((count > 0) | _bits(prompt, row, words_stride, tokens, inside), repeated, x)
    x -= tl.load(frequency + row) * count.to(tl.float32)
    x -= tl.where(count > 0, tl.load(presence + row), 0.0)
    tl.store(place, x, mask=inside)


@triton.jit
def _mask(logits, bits, vocab, logits_stride, words_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tokens = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = tokens < vocab
    refused = inside & ~_bits(bits, row, words_stride, tokens, inside)
    tl.store(logits + row * logits_stride + tokens, float("-inf"), mask=refused)


def apply_penalties(
    logits: torch.Tensor,
    counts: torch.Tensor,
    prompt_mask: torch.Tensor,
    repetition: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
) -> None:
    """Penalise what was said already, in place. `logits` are float32 [R, V].

    `counts` (int32 [R, V]) says how often a row has generated each token; the set bits of `prompt_mask`
    (int32 [R, ceil(V / 32)]), which were in its prompt. A token of either has its logit divided by `repetition` if
    positive, else multiplied by it (Keskar et al. 2019); then `frequency` times its count and, if it was generated,
    `presence` are subtracted (OpenAI's). Each of the three is float32 [R]; 1, 0 and 0 change no bit.
    """
    rows, vocab = logits.shape
    if not rows:
        return
    how = tuning("penalties", architecture_of(logits.device))
    strides = (logits.stride(0), counts.stride(0), prompt_mask.stride(0))
    tensors = (logits, counts, prompt_mask, repetition, presence, frequency)
    _penalties[_grid(rows, vocab, how.blocks["BLOCK"])](*tensors, vocab, *strides, **how.blocks, **how.options)


def apply_mask(logits: torch.Tensor, bitmask: torch.Tensor) -> None:
    """Make logits [R, V] (any float type) minus infinity in place, where the bit in int32 [R, ceil(V / 32)] is 0."""
    rows, vocab = logits.shape
    if not rows:
        return
    how = tuning("mask", architecture_of(logits.device))
    strides = (logits.stride(0), bitmask.stride(0))
    _mask[_grid(rows, vocab, how.blocks["BLOCK"])](logits, bitmask, vocab, *strides, **how.blocks, **how.options)


def _grid(rows: int, vocab: int, block: int) -> tuple[int, int]:
    return rows, triton.cdiv(vocab, block)


def variants(arch: str) -> list[Variant]:
    columns = dict.fromkeys(("repetition", "presence", "frequency"), "*fp32")
    strides = dict.fromkeys(("vocab", "logits_stride", "counts_stride", "words_stride"), "i32")
    how = tuning("penalties", arch)
    tables = {"logits": "*fp32", "counts": "*i32", "prompt": "*i32"}
    aligned = ("vocab", "logits_stride", "counts_stride", "words_stride")
    penalties = Variant(
        "fp32", _penalties, {**tables, **columns, **strides}, dict(how.blocks), how, multiples_of_16=aligned
    )
    return [penalties, *(_mask_variant(arch, dtype) for dtype in ("bf16", "fp16", "fp32"))]


def _mask_variant(arch: str, dtype: str) -> Variant:
    how = tuning("mask", arch)
    types = {"logits": f"*{dtype}", "bits": "*i32", "vocab": "i32", "logits_stride": "i32", "words_stride": "i32"}
    aligned = ("vocab", "logits_stride", "words_stride")
    return Variant(f"mask {dtype}", _mask, types, dict(how.blocks), how, multiples_of_16=aligned)
