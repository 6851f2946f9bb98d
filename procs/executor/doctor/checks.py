"""From what torch has to findings, without a look at torch itself: one function for each subject."""

from __future__ import annotations

from ....common.config import Config
from ....common.finding import Finding, green, red, yellow
from ..device.selection import TorchBuild, choose_backend
from ..kernels.architectures import ARCHITECTURES
from .facts import Build, Order, Torch

MIN_TORCH = (2, 8)
"""As in pyproject.toml."""

PROVEN_ARCHS = tuple(ARCHITECTURES)
"""Those for which the kernels are compiled ahead of time in our tests."""

_DEFAULTS = Config(model="", served_model_names=("any",))

_WORDS = {Build.CPU: "the CPU", Build.ROCM: "ROCm", Build.CUDA: "CUDA"}

_ROCM_TORCH = "start once with TORCH_INDEX_URL=<the index of PyTorch's wheels for your ROCm> launch/serve.sh"


def check(torch: Torch, order: Order) -> list[Finding]:
    """All findings, in the order in which they are shown."""
    found = [check_build(torch, order), check_devices(torch, order)]
    found += [check_card(torch, index) for index in range(len(torch.cards))]
    found += [check_triton(torch), check_aiter(torch)]
    if len(torch.cards) > 1:
        found.append(check_collectives(torch))
    return [*found, check_backend(torch)]


def check_build(torch: Torch, order: Order) -> Finding:
    """Whether this is a torch that will do, and the one for this machine."""
    kind = f"{_WORDS[torch.build]} {torch.runtime}".strip()
    found = f"{torch.version} for {kind}, {torch.capability}, {torch.threads} threads"
    if _release(torch.version) < MIN_TORCH:
        return red("torch", found, "upgrade it to 2.8 or newer: pip install --upgrade 'torch>=2.8'")
    if order.amd_cards and torch.build is Build.CUDA:
        return red("torch", f"{found}, on a machine with AMD cards", f"install one for ROCm: {_ROCM_TORCH}")
    if order.amd_cards and torch.build is Build.CPU:
        return yellow("torch", f"{found}, on a machine with AMD cards", f"to use the cards, {_ROCM_TORCH}")
    return green("torch", found)


def check_devices(torch: Torch, order: Order) -> Finding:
    """Whether a torch for cards sees some."""
    if torch.cards:
        return green("devices", f"{len(torch.cards)} visible")
    if torch.build is Build.CPU:
        return green("devices", "none: this torch is for the CPU")
    found = f"none{f': {torch.fault}' if torch.fault else ''}"
    if order.variables:
        return red("devices", found, f"unset {' and '.join(sorted(order.variables))}, which may hide the cards")
    if torch.build is Build.ROCM:
        advice = (
            "pass the cards into the container (docker: --device /dev/kfd --device /dev/dri "
            "--group-add video --group-add render), or install a torch for the CPU"
        )
        return red("devices", found, advice)
    return red(
        "devices", found, "pass the cards into the container (docker: --gpus all), or install a torch for the CPU"
    )


def check_card(torch: Torch, index: int) -> Finding:
    """Whether a card is of a kind that torch and our kernels know, and free."""
    it = torch.cards[index]
    subject, found = f"device {index}", f"{it.name}, {it.arch}, {_gib(it.free)} of {_gib(it.memory)} free"
    if torch.build is Build.ROCM and it.arch not in torch.archs:
        advice = f"install a torch that is built for {it.arch}: this one knows {', '.join(torch.archs) or 'none'}"
        return red(subject, found, advice)
    if it.free < it.memory / 2:
        return yellow(subject, found, f"stop what holds its memory ({_who_holds(torch)} shows it)")
    if torch.build is Build.ROCM and it.arch not in PROVEN_ARCHS:
        advice = f"trust the self-tests below: our kernels are proven for {', '.join(PROVEN_ARCHS)} only"
        return yellow(subject, found, advice)
    return green(subject, found)


def check_triton(torch: Torch) -> Finding:
    if torch.triton is not None:
        return green("Triton", torch.triton)
    if torch.cards:
        return red("Triton", "not installed", "pip install triton (for ROCm, the one of the same index as torch)")
    return green("Triton", "not installed: only cards need it")


def check_aiter(torch: Torch) -> Finding:
    return green("AITER", torch.aiter or "not installed: it is optional")


def check_collectives(torch: Torch) -> Finding:
    """Whether several cards can be used together."""
    name = "RCCL" if torch.build is Build.ROCM else "NCCL"
    if torch.collectives is None:
        return red(name, "not in this torch", "install a torch that has it, or make one card visible only")
    return green(name, torch.collectives)


def check_backend(torch: Torch) -> Finding:
    """Where a server with default flags computes. What speaks against a card, the lines above have said."""
    build = TorchBuild(torch.build.value, len(torch.cards), torch.triton is not None)
    return green("backend", f"{choose_backend(_DEFAULTS, build)}, unless --backend says otherwise")


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version such as 2.13.0+rocm7.0."""
    major, minor = version.partition("+")[0].split(".")[:2]
    return int(major), int(minor)


def _who_holds(torch: Torch) -> str:
    return "rocm-smi --showpids" if torch.build is Build.ROCM else "nvidia-smi"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
