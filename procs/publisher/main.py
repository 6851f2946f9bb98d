"""The publisher process: tells the world of the KV cache of its engine, until it is told to stop.

Started by the supervisor as `python -m fourstroke.procs.publisher.main <assignment>`. Without --kv-events it opens no
socket and has nothing to do.
"""

from __future__ import annotations

import secrets
from typing import cast

import zmq

from ...common.endpoints import filled_in, fixed, of_rank
from ...common.errors import BadMessage
from ...common.types import State
from ...ipc.block_hash import root
from ...ipc.events import DYNAMO_SALT_PREFIX, Form
from ...ipc.messages import KvBatch
from ...ipc.replay import ReplayForm
from ..process import HEARTBEAT_MS, Process, run
from .history import History
from .replays import Replays
from .sockets import PubSocket, ReplaySocket, bound_port
from .stream import Stream
from .turn import PublisherTurn


def serve(process: Process) -> None:
    """Run the publisher until the process is told to stop."""
    if not process.config.kv_events:
        _idle(process)
        return
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = _open(process, context)
    process.report(State.READY, _said(process))
    while not process.stopping:
        process.wait(publisher.wait_ms(HEARTBEAT_MS))
        publisher.run()
    publisher.finish()
    process.row["incarnation"] = 0
    context.destroy()


def _idle(process: Process) -> None:
    inbox = process.inbox(process.peer("scheduler"), KvBatch)
    process.live()
    process.report(State.READY, "")
    while not process.stopping:
        process.wait()
        for _ in inbox.drain():
            inbox.reject(BadMessage("KV events, which nobody asked for"))


def _open(process: Process, context: zmq.Context[zmq.Socket[bytes]]) -> PublisherTurn:
    """Bind the sockets, and tell the scheduler by the board that somebody is here who knows nothing.

    Raises ResourceError if an endpoint cannot be had.
    """
    config, rank, row = process.config, process.assignment.index, process.row
    row["kv_event_taken"] = row["kv_event_wishes"] = 0
    form = cast(Form, config.kv_events_encoding)
    topic = filled_in(config.kv_events_topic, config.served_model_names[0], config.host, config.port).encode()
    # Where the process before had its sockets, if this one takes its place: readers know no other.
    endpoint = fixed(of_rank(config.kv_events_endpoint, rank), row["kv_event_port"])
    replay_endpoint = fixed(of_rank(config.kv_replay_endpoint, rank), row["kv_event_replay_port"])
    pub = PubSocket(context, endpoint, topic, config.kv_events_hwm)
    row["kv_event_port"] = bound_port(pub.socket)
    history = History(config.kv_events_buffer_steps, rank, form)
    replays = None
    if config.kv_replay_endpoint:
        router = ReplaySocket(context, replay_endpoint)
        row["kv_event_replay_port"] = bound_port(router.socket)
        process.watch(router.socket)
        replay_form = cast(ReplayForm, config.kv_events_replay_form)
        replays = Replays(router, history, row, rank=rank, form=replay_form, topic=topic)
    stream = Stream(
        history,
        pub,
        row,
        rank=rank,
        form=form,
        heartbeat_s=config.kv_events_heartbeat_s,
        min_interval_s=config.kv_events_min_interval_s,
    )
    incarnation = secrets.randbits(62) + 1
    publisher = PublisherTurn(
        process.inbox(process.peer("scheduler"), KvBatch),
        row,
        stream,
        replays,
        incarnation=incarnation,
        root=root(config.kv_events_hash_seed),
        salt_prefix=DYNAMO_SALT_PREFIX if config.kv_events_dynamo_salt else "",
    )
    process.live()
    row["incarnation"] = incarnation
    return publisher


def _said(process: Process) -> str:
    replay = process.row["kv_event_replay_port"]
    where = f", replays on {replay}" if replay else ""
    return f"KV events on port {process.row['kv_event_port']}{where}"


def main() -> None:
    run("publisher", serve)


if __name__ == "__main__":
    main()
