"""What the attention kernels share: where tokens lie in a paged cache, and one step of the softmax over tiles of them.

The softmax is online (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022), in float32 and to base 2: scores
come multiplied by log2(e). A tile of which a row sees nothing leaves that row's state as it was, bit for bit. So
a result does not depend on which other rows make the tiles before its first and after its last be visited.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

LOG2_E = math.log2(math.e)


@triton.jit
def token_offsets(
    table, positions, wanted, kv_head, block_stride,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Offsets, int64, of a key head's vectors at `positions` [BLOCK_N] of the row whose blocks `table` points to.

    Where not `wanted`, the table is not read: its entries may be stale there.
    """
    blocks = tl.load(table + positions // BLOCK_SIZE, mask=wanted, other=0).to(tl.int64)
    return blocks * block_stride + ((positions % BLOCK_SIZE) * KV_HEADS + kv_head) * HEAD_DIM


@triton.jit
def weigh(scores, visible, highest, total, AXIS: tl.constexpr):
    """Weights of the keys of a tile, which lie along AXIS of `scores`, and the state of the rows after it.

    The state, without that axis: the highest score so far and the sum of the weights. What was weighed before must
    be multiplied by `decay`. Returns (weights, decay, highest, total).
    """
    scores = tl.where(visible, scores, float("-inf"))
    new_highest = tl.maximum(highest, tl.max(scores, AXIS))
    base = tl.where(new_highest == float("-inf"), 0.0, new_highest)  # nothing seen yet: not infinity minus infinity
    weights = tl.exp2(scores - tl.expand_dims(base, AXIS))
    decay = tl.exp2(highest - base)
    return weights, decay, new_highest, total * decay + tl.sum(weights, AXIS)
