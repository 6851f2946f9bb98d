"""The C kernels, as the doctor sees them: built, loaded, tested, or the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fourstroke.common.errors import ResourceError
from fourstroke.common.finding import Level
from fourstroke.procs.executor.attention.cpu import CpuAttention
from fourstroke.procs.executor.attention.reference import ReferenceAttention
from fourstroke.procs.executor.compute import TorchCompute
from fourstroke.procs.executor.doctor import native, tiny_model
from fourstroke.procs.executor.doctor.selftest import TOLERANCE, judge, largest_error
from fourstroke.procs.executor.kv_cache import KvCache, LayerCache
from fourstroke.procs.executor.models.llama import Llama
from fourstroke.procs.executor.native import load
from fourstroke.procs.executor.native.build import Compiler


@pytest.mark.parametrize(
    "cause, compiler, advice",
    [
        ("there is no C compiler (cc, gcc, clang)", None, "apt install gcc"),
        ("cc could not build the kernels:\n a.c:1: error", Compiler("cc", "1.0"), "try another compiler"),
    ],
)
def test_kernels_that_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cause: str, compiler: Compiler | None, advice: str
) -> None:
    """The server works without them, so it is yellow, with the compiler's words in one line."""

    def fails(cache: Path) -> None:
        raise ResourceError(cause)

    monkeypatch.setattr(native, "load_kernels", fails)
    monkeypatch.setattr(native, "find_compiler", lambda: compiler)
    kernels, finding = native.load(tmp_path)
    assert kernels is None
    assert finding.level == Level.YELLOW
    assert finding.found == " ".join(cause.split())
    assert advice in finding.advice


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that is no library is a finding, not an end."""
    broken = tmp_path / "kernels.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(load, "built_library", lambda cache: broken)
    kernels, finding = native.load(tmp_path)
    assert (kernels, finding.level) == (None, Level.YELLOW)
    assert "cannot be loaded" in finding.found


def test_the_kernels_of_this_machine(tmp_path: Path) -> None:
    """Where they can be built they compute the tiny model."""
    kernels, finding = native.load(tmp_path)
    if kernels is None:
        pytest.skip(finding.found)
    assert judge(native.model_test(kernels).run()).level == Level.GREEN


def _torch(dtype: torch.dtype, backend: type[CpuAttention] | type[ReferenceAttention]) -> torch.Tensor:
    model = Llama(tiny_model.CONFIG, tiny_model.weights(dtype), tiny_model.CONFIG.max_position, 1)
    cache = KvCache(tiny_model.CONFIG, tiny_model.NUM_BLOCKS, tiny_model.BLOCK_SIZE, dtype)
    with torch.inference_mode():
        return tiny_model.logits_of(TorchCompute(model, cache, backend))


def test_the_tiny_model_is_a_fair_test() -> None:
    """What is merely rounded is within what is allowed, by torch alone too."""
    with torch.inference_mode():
        right = tiny_model.right_logits()
    assert largest_error(_torch(torch.float32, CpuAttention), right) < TOLERANCE[torch.float32]
    assert largest_error(_torch(torch.bfloat16, CpuAttention), right) < TOLERANCE[torch.bfloat16]


def test_the_tiny_model_sees_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the cached values lost: the result is far beyond what is allowed."""
    with torch.inference_mode():
        right = tiny_model.right_logits()
    plain = ReferenceAttention.attend

    def forgetful(self: ReferenceAttention, queries: torch.Tensor, cache: LayerCache) -> torch.Tensor:
        cache.values[::2].zero_()
        return plain(self, queries, cache)

    monkeypatch.setattr(ReferenceAttention, "attend", forgetful)
    assert largest_error(_torch(torch.float32, ReferenceAttention), right) > TOLERANCE[torch.bfloat16]
