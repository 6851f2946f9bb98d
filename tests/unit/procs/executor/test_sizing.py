"""Sizing: flags are kept or refused, memory is never promised twice."""

import logging
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fourstroke.common.config import Config
from fourstroke.common.errors import ConfigError, ResourceError
from fourstroke.procs.executor.models.config import ModelConfig
from fourstroke.procs.executor.sizing import Sizes, graph_rows, size_cache

from .driver import Driver, executor_config

MODEL = ModelConfig(
    vocab_size=100,
    hidden_size=64,
    intermediate_size=64,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    max_position=1000,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
)
TOKEN_BYTES = 2 * 2 * 2 * 16 * 2
WEIGHTS = 1 << 20


def size(available: int = 1 << 30, **options: object) -> Sizes:
    config = Config(model="m", served_model_names=("m",), **options)  # type: ignore[arg-type]
    return size_cache(config, MODEL, WEIGHTS, 2, available)


def test_a_token_takes_what_its_keys_and_values_take() -> None:
    """Two tensors a layer."""
    assert MODEL.kv_bytes_per_token(2) == TOKEN_BYTES


def test_no_more_blocks_than_all_rows_can_fill() -> None:
    """With memory to spare the pool holds max_num_seqs requests of full length, blocks rounded up."""
    assert size(max_num_seqs=3) == Sizes(3 * 63, 1000)
    assert size(max_num_seqs=3, max_model_len=17) == Sizes(3 * 2, 17)


@given(st.integers(WEIGHTS + 40 * 16 * TOKEN_BYTES, 1 << 28), st.floats(0.1, 0.9))
def test_the_pool_takes_its_share_of_what_weights_leave(available: int, fraction: float) -> None:
    """The pool is within its fraction, not a block less than it could be, and never above what is there."""
    blocks = size(available, memory_fraction=fraction, max_num_seqs=60000).num_blocks
    share = fraction * (available - WEIGHTS)
    assert blocks * 16 * TOKEN_BYTES <= share
    assert (blocks + 1) * 16 * TOKEN_BYTES > share - 1 or blocks == 60000 * 63


@given(st.integers(4 * (WEIGHTS + 40 * 16 * TOKEN_BYTES), 1 << 28), st.integers(1, 4))
def test_engines_share_the_memory(available: int, engines: int) -> None:
    """What all engines take together, weights included, is what one would take of their parts of the memory."""
    shared = size(available, data_parallel_size=engines, max_num_seqs=60000)
    assert shared == size(available // engines, max_num_seqs=60000)
    assert engines * (WEIGHTS + shared.num_blocks * 16 * TOKEN_BYTES) <= available


def test_too_little_memory_for_all_engines() -> None:
    """What would do for one engine is refused when there are several."""
    with pytest.raises(ResourceError, match="to each of 3 engines"):
        size(2 * WEIGHTS, data_parallel_size=3)


def test_a_length_above_the_models_is_refused() -> None:
    """The flag is named, and both numbers."""
    with pytest.raises(ConfigError, match="--max-model-len 1001 is above the model's 1000"):
        size(max_model_len=1001)


def test_a_length_that_the_pool_cannot_hold() -> None:
    """A flag that does not fit is refused with both numbers; without the flag the length shrinks."""
    with pytest.raises(ConfigError, match=r"--max-model-len 500 does not fit .* 480 tokens"):
        size(num_blocks=30, max_model_len=500)
    assert size(num_blocks=30) == Sizes(30, 480)


def test_a_shorter_length_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An operator is told that requests are limited."""
    with caplog.at_level(logging.WARNING):
        size(num_blocks=30)
    assert "480 tokens of the model's 1000" in caplog.text


@pytest.mark.parametrize("options", [{"num_blocks": 10_000_000}, {}])
def test_too_little_memory_is_told_with_both_numbers(options: dict[str, int]) -> None:
    """Needed and available, in one line."""
    available = WEIGHTS // 2 if not options else 1 << 30
    with pytest.raises(ResourceError, match=r"need [\d,]+ MiB of memory, but [\d,]+ MiB are available"):
        size(available, **options)


def test_loading_checks_memory_first(tiny_model: Path) -> None:
    """A cache that no machine can hold is refused when the model is opened, not when it is touched."""
    with pytest.raises(ResourceError, match="are available"):
        Driver(executor_config(tiny_model, num_blocks=1 << 30, max_model_len=32))


@pytest.mark.parametrize(
    "max_rows, max_tokens, tokens_per_row, rows",
    [(256, 16384, 4, 256), (256, 512, 4, 128), (256, 512, 1, 256), (256, 2, 4, 0)],
)
def test_the_widest_decode_step(max_rows: int, max_tokens: int, tokens_per_row: int, rows: int) -> None:
    """As many rows as there are, or as the budget holds with their drafts. (EX-6)"""
    assert graph_rows(max_rows, max_tokens, tokens_per_row) == rows
