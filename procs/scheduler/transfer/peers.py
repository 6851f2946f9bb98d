"""Where another engine keeps what is ours to fetch: blocks of another size, and the ports of its workers.

Pure arithmetic that both sides of a transfer must agree on.
"""

from __future__ import annotations

import numpy as np

from ....ipc.plan import Column


def local_blocks(pages: Column, ratio: int) -> Column:
    """The local blocks that pages of a larger unit stand for: page p is blocks p*ratio..p*ratio+ratio-1.

    `pages` is int32 [n], the result int32 [n * ratio], in the order of the pages.
    """
    blocks = pages[:, None] * ratio + np.arange(ratio, dtype=np.int32)
    return blocks.reshape(-1).astype(np.int32)


def port_offset(dp_rank: int, tp_rank: int, tp_size: int) -> int:
    """How far above the first port of a host a worker listens."""
    return dp_rank * tp_size + tp_rank
