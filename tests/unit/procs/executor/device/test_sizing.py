"""The size of the cache on a device: no byte is promised twice."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fourstroke.common.config import Config
from fourstroke.common.errors import ConfigError, ResourceError
from fourstroke.procs.executor.device.card import MemoryUse
from fourstroke.procs.executor.device.sizing import Measured, size_device_cache
from fourstroke.procs.executor.sizing import Sizes

from ..test_sizing import MODEL

GIB = 1 << 30
BLOCK = 1 << 20


def config(**changes: object) -> Config:
    return Config(model="m", served_model_names=("m",), **changes)  # type: ignore[arg-type]


def measured(total: int, others: int, peak: int, graphs: int = 0, held: int = 0) -> Measured:
    return Measured(MemoryUse(total, total - others - held, held, peak), graphs)


sizes = st.integers(0, 30 * GIB)


@given(sizes, sizes, sizes, sizes)
def test_all_fits_beside_each_other(others: int, peak: int, graphs: int, held: int) -> None:
    """The cache, torch's peak, the graphs' scratch and what others have are within the card; what torch holds at the
    moment is part of its peak and does not count twice.
    """
    total = 64 * GIB
    held = min(held, peak, total - others)
    facts = measured(total, others, peak, graphs, held)
    try:
        blocks = size_device_cache(config(max_num_seqs=60000), MODEL, BLOCK, facts).num_blocks
    except ResourceError:
        assert total - others - peak - graphs < 2 * BLOCK
    else:
        assert others + peak + graphs + blocks * BLOCK <= total


def test_the_share() -> None:
    """Nine tenths of what is left, or what the flag says."""
    facts = measured(total=20 * BLOCK * 100, others=0, peak=10 * BLOCK * 100)
    assert size_device_cache(config(), MODEL, BLOCK, facts).num_blocks == 900
    assert size_device_cache(config(memory_fraction=0.5), MODEL, BLOCK, facts).num_blocks == 500


def test_no_more_than_can_be_used() -> None:
    """A large card holds the longest requests of all rows and no more."""
    assert size_device_cache(config(max_num_seqs=2), MODEL, BLOCK, measured(64 * GIB, 0, 0)) == Sizes(2 * 63, 1000)


@pytest.mark.parametrize("changes", [{}, {"num_blocks": 100}], ids=str)
def test_too_little(changes: dict[str, object]) -> None:
    """Needed and left, in one line."""
    with pytest.raises(ResourceError, match=r"needs [\d.]+ GiB .* but .* [\d.]+ GiB of 1.00 GiB are left"):
        size_device_cache(config(**changes), MODEL, BLOCK, measured(GIB, 0, GIB - 1000))


def test_a_length_that_does_not_fit() -> None:
    """The flags are the CPU's, and so are the words."""
    with pytest.raises(ConfigError, match="--max-model-len 500 does not fit"):
        size_device_cache(config(num_blocks=30, max_model_len=500), MODEL, BLOCK, measured(GIB, 0, 0))
