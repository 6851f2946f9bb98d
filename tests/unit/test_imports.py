"""Who may import whom: the rules of the architecture, read from the source of every module.

Imports inside functions and under TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fourstroke

ROOT = Path(fourstroke.__file__).parent
PACKAGE = "fourstroke"
PROCS = ("ingest", "scheduler", "executor", "output", "publisher")

MODULE_RULES = {
    "": ("common", "ipc", "launch"),
    "common": ("common",),
    "ipc": ("common", "ipc"),
    "launch": ("common", "ipc", "launch", ""),
    "procs": ("common", "ipc", "procs"),
    **{f"procs.{name}": ("common", "ipc", "procs", f"procs.{name}") for name in PROCS},
}
"""What the modules of each part may import of ours. "" is the root package, "procs" the modules beside the folders."""

PACKAGE_RULES = {
    "torch": ("procs.executor",),
    "triton": ("procs.executor.kernels",),
    "aiter": ("procs.executor.kernels.aiter",),
    "llguidance": ("procs.grammar", "procs.ingest", "procs.executor"),
    "tokenizers": ("procs.ingest",),
    "starlette": ("procs.ingest",),
    "uvicorn": ("procs.ingest",),
    "httptools": ("procs.ingest",),
    "huggingface_hub": ("launch.model_source",),
    "rich": ("launch",),
    "aiohttp": ("launch.bench",),
    "matplotlib": ("launch.bench",),
}
"""Which modules, and all below them, may import a package."""

FREE_OF_PACKAGES = {"common": {"numpy"}, "ipc": {"numpy", "msgpack", "zmq", "cbor2"}}
"""Parts that may import these packages and otherwise only the standard library."""

FORBIDDEN_PACKAGES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__"}
FORBIDDEN_METHODS = {("torch", "load"), ("np", "load"), ("os", "system"), ("os", "popen"), ("tempfile", "mktemp")}
FORBIDDEN_KEYWORDS = {("shell", True), ("trust_remote_code", True), ("allow_pickle", True), ("weights_only", False)}


def sources() -> dict[str, Path]:
    """Every module of ours by its name inside the package; packages have the name of their folder."""
    folders = [ROOT, *(ROOT / part for part in ("common", "ipc", "launch", "procs"))]
    paths = [path for folder in folders for path in (folder.glob("*.py") if folder == ROOT else folder.rglob("*.py"))]
    return {_module_name(path.relative_to(ROOT)): path for path in paths}


def _module_name(path: Path) -> str:
    return ".".join(part for part in path.with_suffix("").parts if part != "__init__")


MODULES = sources()
TREES = {name: ast.parse(path.read_text(), str(path)) for name, path in MODULES.items()}


def imported(name: str) -> Iterator[str]:
    """What a module imports, as absolute names: ours begin with the package's name."""
    is_package = MODULES[name].name == "__init__.py"
    parents = [PACKAGE, *name.split(".")] if name else [PACKAGE]
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            keep = len(parents) - node.level + is_package
            base = parents[:keep] if node.level else []
            base += (node.module or "").split(".") if node.module else []
            yield from (".".join([*base, alias.name]) for alias in node.names)


def our_imports(name: str) -> set[str]:
    """The modules of ours that a module imports, by their names inside the package."""
    return {_longest_module(target) for target in imported(name) if target.split(".")[0] == PACKAGE}


def _longest_module(target: str) -> str:
    """The module in an imported name, whose last part may be something inside of the module."""
    inner = target.removeprefix(PACKAGE).strip(".")
    while inner not in MODULES:
        inner = inner.rpartition(".")[0]
    return inner


def part(name: str) -> str:
    """The part of the architecture to which a module belongs."""
    return max((known for known in MODULE_RULES if within(name, known)), key=len)


def within(name: str, above: str) -> bool:
    return above == "" or name == above or name.startswith(above + ".")


def test_the_scan_sees_imports() -> None:
    """The rules below are about something: known imports are found, relative ones resolved."""
    assert "ipc.codec" in our_imports("ipc.wire")
    assert "common.errors" in our_imports("ipc.codec")
    assert "launch.cli" in our_imports("__main__")
    assert "zmq" in set(imported("ipc.wire"))
    assert len(MODULES) > 30


def test_parts() -> None:
    """Modules import only from the parts of the architecture that theirs may know."""
    wrong = [
        f"{name} imports {target}"
        for name in MODULES
        for target in our_imports(name)
        if part(target) not in MODULE_RULES[part(name)]
    ]
    assert wrong == []


def test_packages() -> None:
    """torch, tokenizers, starlette and the like stay in the processes that need them."""
    wrong = [
        f"{name} imports {target}"
        for name in MODULES
        for target in imported(name)
        if not any(within(name, allowed) for allowed in PACKAGE_RULES.get(target.split(".")[0], ("",)))
    ]
    assert wrong == []


def test_lower_parts_stand_alone() -> None:
    """common and ipc need the standard library and the few packages that are named."""
    wrong = [
        f"{name} imports {target}"
        for name in MODULES
        for target in imported(name)
        if part(name) in FREE_OF_PACKAGES
        and target.split(".")[0] not in {PACKAGE, *sys.stdlib_module_names, *FREE_OF_PACKAGES[part(name)]}
    ]
    assert wrong == []


def test_no_cycles() -> None:
    """No module imports itself, by whatever detour."""
    graph = {name: our_imports(name) - {name} for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_relative_inside() -> None:
    """Inside the package imports are relative."""
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == PACKAGE)
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == PACKAGE for alias in node.names))
    ]
    assert wrong == []


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call in the source, with where it stands."""
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield f"{name}:{node.lineno}", node


def test_nothing_is_executed_from_data() -> None:
    """No pickle, in whatever package or file; no eval, exec or shell; no code that comes with a model."""
    wrong = [
        f"{name}: {target}"
        for name in MODULES
        for target in imported(name)
        if target.split(".")[0] in FORBIDDEN_PACKAGES
    ]
    wrong += [where for where, call in calls() if _executes(call)]
    assert wrong == []


def _executes(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name) if name in FORBIDDEN_CALLS:
            return True
        case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in FORBIDDEN_METHODS:
            return True
    keywords = {(word.arg, word.value.value) for word in call.keywords if isinstance(word.value, ast.Constant)}
    return bool(keywords & FORBIDDEN_KEYWORDS)


@pytest.mark.parametrize(
    "source, executes",
    [
        ("eval(x)", True),
        ("torch.load(f)", True),
        ("run(x, shell=True)", True),
        ("np.load(f, allow_pickle=True)", True),
        ("model.eval()", False),
        ("run(x, shell=False)", False),
        ("json.load(f)", False),
    ],
)
def test_what_executes(source: str, executes: bool) -> None:
    """The rule above tells these apart."""
    (statement,) = ast.parse(source).body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    assert _executes(statement.value) is executes


def test_every_package_is_installed() -> None:
    """The packages in pyproject.toml are the folders that have an __init__.py, each of them."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = [
        ".".join([PACKAGE, *name.split(".")]) if name else PACKAGE
        for name, path in MODULES.items()
        if path.name == "__init__.py"
    ]
    assert sorted(listed) == sorted(there)
