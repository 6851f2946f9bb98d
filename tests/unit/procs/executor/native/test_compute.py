"""The C kernels against torch, and against themselves: a token's numbers have the same bits whatever is beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fourstroke.common.errors import ResourceError
from fourstroke.procs.executor.attention.backend import Spans
from fourstroke.procs.executor.attention.reference import ReferenceAttention
from fourstroke.procs.executor.batch import Batch
from fourstroke.procs.executor.compute import TorchCompute
from fourstroke.procs.executor.doctor import tiny_model
from fourstroke.procs.executor.kv_cache import KvCache
from fourstroke.procs.executor.models.llama import Llama
from fourstroke.procs.executor.native import build
from fourstroke.procs.executor.native.build import built_library
from fourstroke.procs.executor.native.compute import NativeCompute
from fourstroke.procs.executor.native.library import Library
from fourstroke.procs.executor.work import Draws, ragged

CONFIG = tiny_model.CONFIG
BLOCKS, BLOCK_SIZE, WIDTH = 160, 16, 40
NONE = np.empty(0, np.int64)
TABLES = np.random.default_rng(1).permutation(BLOCKS).reshape(-1, WIDTH).astype(np.int32)
TEXT = np.random.default_rng(2).integers(0, CONFIG.vocab_size, WIDTH * BLOCK_SIZE)

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C compiler here")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def native(cache: Path, threads: int = 2, quantization: str = "none", flags: tuple[str, ...] = ()) -> NativeCompute:
    return NativeCompute(
        Library(built_library(cache, flags)),
        CONFIG,
        tiny_model.weights(torch.bfloat16),
        num_blocks=BLOCKS,
        block_size=BLOCK_SIZE,
        max_positions=WIDTH * BLOCK_SIZE,
        threads=threads,
        quantization=quantization,
    )


def step(*rows: tuple[int, int, int]) -> Batch:
    """A step of rows (table, first position, tokens), all of the same text."""
    table, start, count = np.array(rows).T
    owner, within = ragged(count)
    positions = start[owner] + within
    slots = TABLES[table[owner], positions // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + positions % BLOCK_SIZE
    spans = Spans(np.cumsum(count) - count, count, start + count, TABLES[table], BLOCK_SIZE)
    rest = {"given": NONE, "following": NONE, "order": NONE, "rows": NONE, "drafts": NONE, "draws": Draws(*[NONE] * 5)}
    return Batch(tokens=TEXT[positions], positions=positions, slots=slots, begun=NONE, spans=spans, **rest)


def whole(compute: NativeCompute, length: int) -> torch.Tensor:
    return compute.forward(step((0, 0, length)))


@pytest.mark.parametrize("length", [1, 15, 17, 33, 600])
def test_as_torch(cache: Path, length: int) -> None:
    """Logits are those of torch in float32, within the rounding of bfloat16; beyond a segment of keys, too."""
    threads = torch.get_num_threads()
    model = Llama(CONFIG, tiny_model.weights(torch.float32), WIDTH * BLOCK_SIZE, threads)
    torch.set_num_threads(threads)
    right = TorchCompute(model, KvCache(CONFIG, BLOCKS, BLOCK_SIZE, torch.float32), ReferenceAttention)
    compute = native(cache)
    logits = compute.logits(whole(compute, length))
    expected = right.logits(right.forward(step((0, 0, length))))
    assert float((logits - expected).abs().max() / expected.abs().max()) < 0.02


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
@pytest.mark.parametrize("flags", [(), ("-DNO_AMX",)], ids=["native", "no AMX"])
def test_the_same_bits_in_any_chunking(cache: Path, quantization: str, flags: tuple[str, ...]) -> None:
    """600 tokens in chunks of 1 to 300 give the bits that they have as one chunk."""
    compute = native(cache, quantization=quantization, flags=flags)
    expected, parts, start = whole(compute, 600), [], 0
    for count in (1, 1, 15, 16, 33, 300, 1, 64, 169):
        parts.append(compute.forward(step((1, start, count))))
        start += count
    assert start == 600
    assert torch.equal(torch.cat(parts), expected)
    assert torch.equal(compute.logits(expected[-3:]), compute.logits(expected)[-3:])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bits_beside_others(cache: Path, threads: int) -> None:
    """A decode and a chunk in a step with others, on one thread or several, have the bits that they have alone."""
    alone = whole(native(cache, 1), 520)
    compute = native(cache, threads)
    compute.forward(step((0, 0, 519), (1, 0, 100), (2, 0, 30)))
    together = compute.forward(step((0, 519, 1), (3, 0, 1), (1, 100, 77), (2, 30, 200)))
    assert torch.equal(together[0], alone[519])
    assert torch.equal(together[1], alone[0])
    assert torch.equal(together[2:79], alone[100:177])
    assert torch.equal(together[79:], alone[30:230])


def test_without_amx(cache: Path) -> None:
    """The same kernels by plain vectors: equal within rounding."""
    plain, fast = native(cache, flags=("-DNO_AMX",)), native(cache)
    torch.testing.assert_close(plain.logits(whole(plain, 80)), fast.logits(whole(fast, 80)), atol=0.05, rtol=0)


@pytest.mark.parametrize(("quantization", "most"), [("int8", 0.03), ("int4", 0.4)])
def test_quantised(cache: Path, quantization: str, most: float) -> None:
    """Weights of 8 and 4 bits give nearly the logits of bfloat16; random ones are the hardest for 4 bits."""
    exact, rough = native(cache), native(cache, quantization=quantization)
    expected, found = exact.logits(whole(exact, 80)), rough.logits(whole(rough, 80))
    assert 0 < float((found - expected).norm() / expected.norm()) < most


def test_a_former_owner_leaves_nothing(cache: Path) -> None:
    """NaN in a block does not reach its next owner, once the block was cleared."""
    compute = native(cache)
    expected = whole(compute, 5)
    compute._memory[1][:] = 255  # bfloat16's NaN
    batch = step((0, 0, 5))
    begun = TABLES[0, :1].astype(np.int64)
    cleared = Batch(**{name: getattr(batch, name) for name in batch.__slots__} | {"begun": begun})
    assert torch.equal(compute.forward(cleared), expected)


def test_built_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library is built once for its flags; without a compiler the error says so, with a broken one what it said."""
    assert built_library(cache) == built_library(cache) != built_library(cache, ("-DNO_AMX",))
    with pytest.raises(ResourceError, match="could not build the kernels"):
        built_library(tmp_path, ("-include", "no-such-file.h"))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    with pytest.raises(ResourceError, match="no C compiler"):
        built_library(tmp_path)
