"""`fourstroke kv-events bench --pub ...`: how much a stream brings, how late, and what was missed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field

from ...common.figures import summarise
from ...ipc.events import Stored
from ...ipc.follower import Item, Lost, Received
from ...ipc.subscriber import KvSubscriber


@dataclass(slots=True)
class Rates:
    """What has come. Delays are between a batch's time and its arrival, of live batches, by this machine's clock."""

    batches: int = 0
    replayed: int = 0
    events: int = 0
    blocks: int = 0
    lost: int = 0
    delays_ms: list[float] = field(default_factory=list)

    def take(self, item: Item, now_s: float) -> None:
        match item:
            case Lost(first, end):
                self.lost += end - first
            case Received(_, batch, replayed):
                self.batches += 1
                self.replayed += replayed
                self.events += len(batch.events)
                self.blocks += sum(len(event.digests) for event in batch.events if isinstance(event, Stored))
                if not replayed:
                    self.delays_ms.append(1000 * (now_s - batch.ts))


def bench(namespace: argparse.Namespace) -> None:
    """Listen for some seconds and print what has come."""
    rates, begun_s = Rates(), time.monotonic()
    stream = namespace.pub, namespace.replay, namespace.topic, namespace.rank
    with KvSubscriber(*stream, heartbeat_s=namespace.heartbeat) as events:
        while (left_s := begun_s + namespace.seconds - time.monotonic()) > 0:
            item = events.poll(left_s)
            if item is not None:
                rates.take(item, time.time())
    if namespace.json:
        sys.stdout.write(json.dumps({"seconds": namespace.seconds, **asdict(rates)}) + "\n")
        return
    counts = {"batches": rates.batches, "events": rates.events, "blocks": rates.blocks}
    per_s = {name: count / namespace.seconds for name, count in counts.items()}
    sys.stdout.write(", ".join(f"{value:.1f} {name}/s" for name, value in per_s.items()) + "\n")
    sys.stdout.write(f"{rates.batches} batches, {rates.replayed} of them replayed, {rates.lost} lost\n")
    if rates.delays_ms:
        delay = summarise("stream", "delay", "ms", rates.delays_ms)
        sys.stdout.write(f"delay of live batches: {delay.p50:.2f} ms, p99 {delay.p99:.2f}, most {delay.most:.2f}\n")
