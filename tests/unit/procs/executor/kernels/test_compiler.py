"""The compiler: small kernels for every architecture, and failures in words."""

from __future__ import annotations

import dataclasses

import pytest
from triton.runtime.jit import JITFunction

from fourstroke.common.errors import ConfigError
from fourstroke.procs.executor.kernels.architectures import ARCHITECTURES
from fourstroke.procs.executor.kernels.proof import compiler
from fourstroke.procs.executor.kernels.proof.compiler import (
    cause_of,
    compile_all,
    compile_file,
    compile_variant,
    kernel_files,
)
from fourstroke.procs.executor.kernels.proof.figures import Built
from fourstroke.procs.executor.kernels.proof.limits import beyond_limits
from fourstroke.procs.executor.kernels.variants import Variant

from . import small

pytestmark = pytest.mark.skipif(
    not isinstance(small.product, JITFunction), reason="Triton interprets in this process: it compiles nothing"
)
PRODUCT, ADD = small.variants("gfx942")
FP8 = {"a": "*fp8e4b8", "b": "*fp8e4b8"}


def compiled(variant: Variant, arch: str = "gfx942") -> Built:
    """A variant, compiled."""
    return compile_variant(variant, "small", ARCHITECTURES[arch])


def named(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """What failed, and why."""
    pairs = [line.split(" does not compile: ") for line in words]
    return [(name, cause) for name, cause in pairs]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture(arch: str) -> None:
    """Without a card and without a driver there is assembly for each; a product of matrices is one of its units'."""
    product, add = (compiled(variant, arch) for variant in small.variants(arch))
    assert beyond_limits(product) == beyond_limits(add) == []
    assert product.assembly.wave == ARCHITECTURES[arch].wave
    assert all("bf16" in name for name in product.assembly.matrix)
    assert product.lds_bytes > 0
    assert (add.assembly.matrix, add.lds_bytes, add.waves) == ({}, 0, add.assembly.occupancy)


def test_fp8_on_the_matrix_units() -> None:
    """The card's own 8-bit float is multiplied as it is; that of another card is not, which is a finding."""
    own = dataclasses.replace(PRODUCT, signature={**PRODUCT.signature, **FP8}, fp8_dot=True)
    other = dataclasses.replace(own, signature={**own.signature, "a": "*fp8e4nv", "b": "*fp8e4nv"})
    assert any("fp8" in name for name in compiled(own).assembly.matrix)
    assert beyond_limits(compiled(own)) == []
    assert [words.rpartition(": ")[2] for words in beyond_limits(compiled(other))] == ["no instruction for fp8"]


def test_what_a_launch_knows_matters() -> None:
    """Strides that are multiples of 16 make other code: what a launch would see must be said."""
    known, unknown = (compiled(dataclasses.replace(PRODUCT, multiples_of_16=names)).assembly for names in (("k",), ()))
    assert known != unknown


def test_registers_that_overflow() -> None:
    """A tile that one wave cannot hold is found by its spills."""
    greedy = dataclasses.replace(
        PRODUCT, constexprs={"B": 128}, tuning=dataclasses.replace(PRODUCT.tuning, num_warps=1)
    )
    assert any("scratch memory" in words for words in beyond_limits(compiled(greedy)))


def test_arguments_must_be_complete() -> None:
    """A variant that forgets an argument, or has one too many, is told which."""
    without = {name: kind for name, kind in ADD.signature.items() if name != "count"}
    for signature in (without, {**ADD.signature, "other": "i32"}):
        wrong = set(signature) ^ set(ADD.signature)
        with pytest.raises(ValueError, match=rf"too many or too few arguments: {wrong.pop()}"):
            compiled(dataclasses.replace(ADD, signature=signature))


def test_failures_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be compiled is named with its cause, innermost first; the others are compiled all the same.

    Those that fail for the same reason share a line.
    """
    odd = dataclasses.replace(ADD, name="odd", constexprs={"B": 1000})
    short = dataclasses.replace(ADD, name="short", constexprs={})
    other = dataclasses.replace(odd, name="other")
    monkeypatch.setattr(small, "variants", lambda _: [odd, ADD, other, short])
    monkeypatch.setattr(compiler.importlib, "import_module", lambda _: small)
    outcome = compile_file("small", "gfx942")
    assert [built.variant for built in outcome.built] == ["f32"]
    (first, why), (second, and_why) = named(outcome.failures)
    assert (first, second) == ("gfx942 small.add [odd] (and 1 more)", "gfx942 small.add [short]")
    assert "power of 2" in why
    assert "tl.arange(0, B)" in why
    assert and_why == "its variant has too many or too few arguments: B"


def test_a_name_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two variants with one name could not be told apart in the report."""
    monkeypatch.setattr(small, "variants", lambda _: [ADD, ADD])
    monkeypatch.setattr(compiler.importlib, "import_module", lambda _: small)
    (failure,) = compile_file("small", "gfx942").failures
    assert failure.startswith("gfx942 small.add [f32] is there twice")


def test_the_last_line_is_the_cause() -> None:
    """Of an error that is not Triton's front end's; one without words is named."""
    assert cause_of(RuntimeError("a long story\nand its end\n")) == "and its end"
    assert cause_of(RuntimeError()) == "RuntimeError"


def test_the_kernels_are_found() -> None:
    """Every file with variants is a kernel, and nothing else is; patterns choose among them."""
    known = kernel_files(["*"])
    assert {"matmul", "attention_decode", "attention_prefill", "rms_norm", "sample"} <= set(known)
    assert not {"tuning", "variants", "architectures", "proof"} & set(known)
    assert kernel_files(["matmul"]) == ("matmul",)
    assert kernel_files(["attention_p*", "matmul"]) == ("attention_prefill", "matmul")


def test_a_kernel_that_there_is_not() -> None:
    """Each pattern must match something; those that there are, are named."""
    with pytest.raises(ConfigError, match=r"no kernel is called 'matmull'; there are .*matmul"):
        kernel_files(["*", "matmull"])


def test_processes() -> None:
    """Each file is compiled for each architecture, in processes of their own; an empty choice is no error."""
    outcomes = list(compile_all(["silu_mul"], ["gfx942", "gfx1100"], workers=1))
    assert {(outcome.arch, outcome.file) for outcome in outcomes} == {("gfx942", "silu_mul"), ("gfx1100", "silu_mul")}
    assert all(outcome.built and not outcome.failures for outcome in outcomes)
