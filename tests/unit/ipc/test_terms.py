"""Each term of a group has one leader, whoever else wanted to lead it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fourstroke.ipc.terms import Seat, Terms


def test_one_leader(tmp_path: Path) -> None:
    """Of many who claim terms at the same moment one gets each, and all know which."""
    seats = [Seat(rank, 1000 + rank) for rank in range(8)]
    ready = threading.Barrier(len(seats))

    def claim(seat: Seat) -> list[bool]:
        ready.wait()
        return [Terms(tmp_path, seat).claim(term) for term in range(1, 51)]

    with ThreadPoolExecutor(len(seats)) as pool:
        claims = list(pool.map(claim, seats))
    for place, won in enumerate(zip(*claims, strict=True)):
        assert won.count(True) == 1
        leaders = {Terms(tmp_path, seat).leader(place + 1) for seat in seats}
        assert leaders == {seats[won.index(True)]}


def test_term_that_nobody_leads(tmp_path: Path) -> None:
    """There is nobody to follow in it."""
    with pytest.raises(FileNotFoundError):
        Terms(tmp_path, Seat(0, 1)).leader(1)
