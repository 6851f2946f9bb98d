"""Workers that move KV for the fake executor: the faked reports of fake_transfer.py, with hands on the memory.

What is being received is overwritten with noise until its last worker has reported, and is right only if all of them
said so. What is being sent must stay as it was. So a block that is given away too early spoils somebody's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from fourstroke.common.types import TransferAction, TransferOutcome
from fourstroke.ipc.messages import KvTransfer, TransferReport
from fourstroke.ipc.plan import Column
from fourstroke.procs.executor.fake_text import Hashes

from .fake_transfer import FakeTransfer, Key
from .model import Story


class Movers:
    """`cache` holds the hash of each position of each block; `stories` says by id what they are to be."""

    def __init__(self, workers: int, seed: int, cache: Hashes, block_size: int, stories: Mapping[int, Story]) -> None:
        self.fake = FakeTransfer(workers, seed=seed, late_ticks=12)
        self._workers = workers
        self._cache = cache.reshape(-1, block_size)
        self._stories = stories
        self._noise = np.random.default_rng(seed)
        self._heard: dict[Key, dict[int, TransferOutcome]] = {}
        self._incoming: dict[Key, Column] = {}
        self._outgoing: dict[Key, tuple[Column, Hashes]] = {}

    @property
    def incoming(self) -> set[int]:
        """The blocks that are being written."""
        return {block for blocks in self._incoming.values() for block in blocks.tolist()}

    def take(self, orders: Iterable[KvTransfer], outputs: Mapping[int, list[int]]) -> None:
        """Orders of the scheduler; `outputs` are those that requests have."""
        for order in orders:
            key, blocks = (order.rid, order.epoch), np.frombuffer(order.blocks, "<i4")
            if order.action is not TransferAction.CANCEL:
                self._heard[key] = {}
            if order.action is TransferAction.RECEIVE:
                assert not self.incoming & set(blocks.tolist()), "a block is received twice"
                self._incoming[key] = blocks
            elif order.action is TransferAction.SEND:
                story = self._stories[order.rid]
                written = len(story.asked.prompt) + max(0, len(outputs.get(order.rid, ())) - 1)
                self._outgoing[key] = blocks, story.hashes[:written]
            self.fake.take((order,))

    def tick(self) -> list[TransferReport]:
        """One tick goes by; returns the reports that are due."""
        for blocks in self._incoming.values():
            self._cache[blocks] = self._noise.integers(0, 2**63, self._cache[blocks].shape, np.uint64)
        for blocks, hashes in self._outgoing.values():
            assert (self._cache[blocks].ravel()[: len(hashes)] == hashes).all(), "what is being sent was changed"
        reports = self.fake.tick()
        for report in reports:
            self._hear(report)
        return reports

    def _hear(self, report: TransferReport) -> None:
        key = report.rid, report.epoch
        heard = self._heard[key]
        heard[report.worker] = report.outcome
        if len(heard) < self._workers:
            return
        self._outgoing.pop(key, None)
        blocks = self._incoming.pop(key, None)
        if blocks is not None and set(heard.values()) == {TransferOutcome.RECEIVED}:
            hashes = self._stories[report.rid].hashes[: len(self._stories[report.rid].asked.prompt)]
            places = np.arange(len(hashes))
            size = self._cache.shape[1]
            self._cache[blocks[places // size], places % size] = hashes
