"""Ingests that ask each other: a request is found by its id, whoever is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fourstroke.common.errors import BadMessage
from fourstroke.ipc.messages import FROM_SIBLING, AbortAnswer
from fourstroke.ipc.wire import Inbox, memory_wire
from fourstroke.procs.ingest.errors import Refusal
from fourstroke.procs.ingest.siblings import Siblings


class Family:
    """Ingests with wires between all of them. Each owns some request ids, and writes down which it has ended."""

    def __init__(self, size: int = 3) -> None:
        self.ended: list[tuple[int, str]] = []
        self.owned: list[set[str]] = [set() for _ in range(size)]
        self.members = [Siblings(index, lambda asked, index=index: self._abort(index, asked)) for index in range(size)]
        self.wires: list[tuple[int, int, Inbox]] = []
        for sender in range(size):
            for receiver in range(size):
                if sender != receiver:
                    outbox, inbox = memory_wire(f"ingest{sender}", *FROM_SIBLING)
                    self.members[sender].add(receiver, outbox)
                    self.wires.append((sender, receiver, inbox))

    def _abort(self, index: int, request_id: str) -> bool:
        self.ended.append((index, request_id))
        return request_id in self.owned[index]

    def request(self, owner: int) -> str:
        request_id = self.members[owner].new_id("chatcmpl")
        self.owned[owner].add(request_id)
        return request_id

    def carry(self) -> None:
        for sender, receiver, inbox in self.wires:
            for message in inbox.drain():
                self.members[receiver].hear(sender, message)

    async def abort(self, asked: int, request_id: str) -> bool:
        answer = asyncio.create_task(self.members[asked].abort(request_id))
        while not answer.done():
            await asyncio.sleep(0)
            self.carry()
        return await answer


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 10))


@pytest.mark.parametrize("owner", range(3))
@pytest.mark.parametrize("asked", range(3))
def test_any_ingest_can_be_asked(asked: int, owner: int) -> None:
    """Its owner ends a request, and nobody else is troubled; asked again about one that has ended it says so."""
    family = Family()
    request_id = family.request(owner)
    assert run(family.abort(asked, request_id)) is True
    assert family.ended == [(owner, request_id)]
    family.owned[owner].clear()
    assert run(family.abort(asked, request_id)) is False


@pytest.mark.parametrize(
    "request_id", ["", "x", "cmpl-", f"cmpl-ff{'0' * 30}", f"cmpl-01{'0' * 29}", f"cmpl-01{'0' * 31}"]
)
def test_ids_of_nobody(request_id: str) -> None:
    """An id that no ingest can have made is answered without asking."""
    family = Family()
    assert run(family.members[0].abort(request_id)) is False
    assert not any(list(inbox.drain()) for *_, inbox in family.wires)


def test_ids_differ() -> None:
    """No two requests have the same id, within an ingest and among them."""
    family = Family()
    assert len({member.new_id("cmpl") for member in family.members for _ in range(100)}) == 300


def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that does not answer is a 503; its answer that comes later is refused like any that nobody asked for."""
    monkeypatch.setattr("fourstroke.procs.ingest.siblings.ANSWER_S", 0.01)
    family = Family()
    with pytest.raises(Refusal, match="does not answer") as raised:
        run(family.members[0].abort(family.request(1)))
    assert raised.value.status == 503
    with pytest.raises(BadMessage):
        family.carry()
    with pytest.raises(BadMessage):
        family.members[0].hear(1, AbortAnswer(99, True))
