"""`fourstroke chaos`: a server of its own, an undisturbed run, a disturbed one, and what must hold afterwards."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TextIO

from ...common.config import Config
from ...common.errors import TargetMissed
from ...common.machine import usable_cores
from ..bench.figures import make_console
from ..private_server import PrivateServer
from ..topology import build
from .report import Found, as_json, as_table, trends_table
from .trial import Order, run_trial

OWN_FLAGS = ("--dtype=float32", "--max-model-len=1024", "--num-blocks=256", "--max-restarts=1000000")
"""Of a server that is to be hit: texts that do not depend on the batch, and a KV cache that is soon full."""

_SHOWN_WRONGS = 20


def chaos(namespace: argparse.Namespace, flags: Sequence[str], configure: Callable[[list[str]], Config]) -> None:
    """Run, print what was found, write the file. Raises TargetMissed if anything is not as it must be.

    `flags` are further ones of `fourstroke serve`, of which `configure` makes a configuration.
    """
    order = _order(namespace)
    own = [*OWN_FLAGS, *flags]
    names = build(configure(own), usable_cores()).board
    with _log(namespace.log) as log, closing(PrivateServer(own, log)) as server:
        found = run_trial(server, names, order)
    _tell(found, order, namespace.json)


@contextmanager
def _log(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    with path.open("w", buffering=1) as log:
        yield log


def _order(namespace: argparse.Namespace) -> Order:
    soak = namespace.soak is not None
    return Order(
        seconds=60 * namespace.soak if soak else namespace.seconds,
        every_s=None if soak else namespace.every,
        roles=namespace.only,
        streams=namespace.streams,
        seed=namespace.seed,
    )


def _tell(found: Found, order: Order, json_file: Path | None) -> None:
    console = make_console()
    console.print(as_table(found) if found.recoveries else trends_table(found.samples))
    asked = f"{len(found.heard)} requests in {found.seconds:.0f} s, {len(found.recoveries)} blows"
    console.print(f"{asked}, --seed {order.seed}")
    for line in found.wrong[:_SHOWN_WRONGS]:
        console.print(f"wrong: {line}", markup=False)
    if json_file is not None:
        json_file.write_text(as_json(found))
    if found.wrong:
        raise TargetMissed(f"{len(found.wrong)} things are not as they must be, the first: {found.wrong[0]}")
    console.print("every request ended as in the undisturbed run, and nothing was lost")
