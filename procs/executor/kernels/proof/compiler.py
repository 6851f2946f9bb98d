"""Compiles the variants of our kernels for AMD architectures: Triton does so without a card and without a driver.

Triton caches what it has compiled by source, constants and options, so a second run costs the reading of files. The
kernels are found by their files: every module of the package `kernels` that has `variants`.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompilationError

from .....common.errors import ConfigError
from ... import kernels
from ..architectures import ARCHITECTURES, Architecture
from ..variants import Variant
from .assembly import read_assembly
from .figures import Built

TRITON_VERSION: str = triton.__version__

_ALIGNED = ["tt.divisibility", 16]
_WITHIN_2_GIB = ["tt.pointer_range", 32]
"""What Triton's launcher finds out about an argument, in the words of its compiler."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The variants of one file for one architecture, and why others could not be compiled, in words."""

    arch: str
    file: str
    built: tuple[Built, ...]
    failures: tuple[str, ...]


def kernel_files(patterns: Sequence[str]) -> tuple[str, ...]:
    """The files of kernels that match one of the patterns ("*"). Raises ConfigError for a pattern that matches none."""
    names = [info.name for info in pkgutil.iter_modules(kernels.__path__) if not info.ispkg]
    known = [name for name in names if "variants" in vars(importlib.import_module(f"{kernels.__name__}.{name}"))]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ConfigError(f"no kernel is called {pattern!r}; there are {', '.join(known)}")
    return tuple(name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns))


def compile_all(files: Sequence[str], archs: Sequence[str], workers: int) -> Iterator[Outcome]:
    """Compile the variants of files for architectures in several processes; in the order in which they are done."""
    tasks = [(file, arch) for file in files for arch in archs]
    context = multiprocessing.get_context("spawn")  # LLVM has threads, which a fork would not take along
    with ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context) as pool:
        running = {pool.submit(compile_file, *task): task for task in tasks}
        try:
            yield from (_outcome(future, *running[future]) for future in as_completed(running))
        finally:  # who stops listening, or interrupts us, does not wait for what has not begun
            pool.shutdown(cancel_futures=True)


def _outcome(future: Future[Outcome], file: str, arch: str) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return Outcome(arch, file, (), (f"{arch} {file} was not compiled: a compiler process died",))


def compile_file(file: str, arch: str) -> Outcome:
    """Compile all variants of a file for an architecture."""
    make: Callable[[str], list[Variant]] = importlib.import_module(f"{kernels.__name__}.{file}").variants
    built: dict[tuple[str, ...], Built] = {}
    failures: dict[str, list[str]] = defaultdict(list)
    for variant in make(arch):
        name = f"{arch} {file}.{variant.kernel.__name__} [{variant.name}]"
        try:
            one = compile_variant(variant, file, ARCHITECTURES[arch])
        except (CompilationError, RuntimeError, ValueError) as error:  # Triton's front end, LLVM's passes, our own
            failures[f"does not compile: {cause_of(error)}"].append(name)
            continue
        if one.key in built:
            failures["is there twice: the variants of a kernel must have different names"].append(name)
        built[one.key] = one
    return Outcome(arch, file, tuple(built.values()), tuple(_in_words(failures)))


def _in_words(failures: Mapping[str, list[str]]) -> Iterator[str]:
    """One line for all variants that fail for the same reason."""
    for reason, (first, *others) in failures.items():
        more = f" (and {len(others)} more)" if others else ""
        yield f"{first}{more} {reason}"


def cause_of(error: BaseException) -> str:
    """Why Triton gave up, and at which line of the innermost function. Its front end wraps what it trips over."""
    chain = [error]
    while isinstance(chain[-1].__cause__, Exception):
        chain.append(chain[-1].__cause__)
    words = (str(chain[-1]).strip() or type(chain[-1]).__name__).splitlines()[-1]
    at = [one for one in chain if isinstance(one, CompilationError) and one.src is not None]
    return f"{words}, at `{at[-1].src.splitlines()[at[-1].node.lineno - 1].strip()}`" if at else words


def compile_variant(variant: Variant, file: str, architecture: Architecture) -> Built:
    """Compile one variant and read its assembly. Raises what Triton raises."""
    source = ASTSource(
        fn=variant.kernel,
        signature=_signature(variant),
        constexprs=dict(variant.constexprs),
        attrs=dict(_attributes(variant)),
    )
    target = GPUTarget("hip", architecture.name, architecture.wave)
    compiled = triton.compile(source, target=target, options=variant.tuning.options)
    return Built(
        arch=architecture.name,
        file=file,
        kernel=variant.kernel.__name__,
        variant=variant.name,
        num_warps=variant.tuning.num_warps,
        num_stages=variant.tuning.num_stages,
        lds_bytes=compiled.metadata.shared,
        dot=variant.dot,
        fp8_dot=variant.fp8_dot,
        assembly=read_assembly(compiled.asm["amdgcn"]),
    )


def _signature(variant: Variant) -> dict[str, str]:
    """The type of every argument, in the order of the kernel. Raises ValueError if one is missing."""
    types = {**variant.signature, **dict.fromkeys(variant.constexprs, "constexpr")}
    names = variant.kernel.arg_names
    if wrong := set(names) ^ set(types):
        raise ValueError(f"its variant has too many or too few arguments: {', '.join(sorted(wrong))}")
    return {name: types[name] for name in names}


def _attributes(variant: Variant) -> Iterator[tuple[tuple[int], list[list[Any]]]]:
    """What a launch would know of each argument, by its place."""
    for place, name in enumerate(variant.kernel.arg_names):
        if variant.signature.get(name, "").startswith("*"):
            yield (place,), [_ALIGNED] if name in variant.large else [_ALIGNED, _WITHIN_2_GIB]
        elif name in variant.multiples_of_16:
            yield (place,), [_ALIGNED]
