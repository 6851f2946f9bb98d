"""Arrays of unsigned integers are packed byte for byte as msgpack does it."""

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourstroke.ipc.packed import packed_uints

EDGES = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1]


@given(st.lists(st.sampled_from(EDGES) | st.integers(0, 2**32 - 1), max_size=200))
def test_as_msgpack_packs_a_list(values):
    """Whatever forms the values have, few or many of them, in 32 bits and in 64."""
    expected = msgpack.packb(values)
    assert packed_uints(np.array(values, np.uint32)) == expected
    assert packed_uints(np.array(values, np.uint64)) == expected


@pytest.mark.parametrize("low, high", [(0, 128), (128, 256), (256, 65536), (65536, 2**32), (2**32, 2**64), (0, 49152)])
def test_many_of_one_form_and_few_of_others(low, high):
    """Both ways to write many values, that for a few narrower ones and that for many, give the same bytes."""
    dice = np.random.default_rng(low % 97)
    values = dice.integers(low, high, 5000, np.uint64)
    for narrow in (0, 1, 50, 2500):
        values[:narrow] %= 300
        assert packed_uints(values) == msgpack.packb(values.tolist())
