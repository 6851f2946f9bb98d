"""Where another engine keeps what is ours to fetch."""

import itertools

import numpy as np
import pytest

from fourstroke.procs.scheduler.transfer.peers import local_blocks, port_offset


@pytest.mark.parametrize(
    "pages, ratio, blocks", [([0, 1], 16, range(32)), ([2], 4, range(8, 12)), ([3, 1], 2, [6, 7, 2, 3])]
)
def test_pages_of_a_larger_unit_are_runs_of_blocks(pages, ratio, blocks):
    """In the order of the pages. (AG-7)"""
    found = local_blocks(np.array(pages, np.int32), ratio)
    assert found.dtype == np.int32 and found.tolist() == list(blocks)


def test_no_pages_are_no_blocks():
    """A transfer of nothing."""
    assert local_blocks(np.zeros(0, np.int32), 4).tolist() == []


def test_every_worker_of_a_host_has_its_own_port():
    """(dp, tp of 8): (0, 0) is 0, (1, 0) is 8; (2, 3 of 4) is 11. (AG-7)"""
    assert [port_offset(0, 0, 8), port_offset(1, 0, 8), port_offset(2, 3, 4)] == [0, 8, 11]
    offsets = [port_offset(dp, tp, 4) for dp, tp in itertools.product(range(3), range(4))]
    assert sorted(offsets) == list(range(12))
