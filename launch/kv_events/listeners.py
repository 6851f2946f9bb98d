"""Those who listen to a publisher, as a program of its own: they must not share a lock with the clock of `cost.py`.

Run as `python -m fourstroke.launch.kv_events.listeners PUB REPLAY READING STALLED REPLAYING`: so many subscribers that
read, that never read, and readers who ask for everything again and again. It says a line when all have connected, and
ends when its standard input does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from ...ipc.replay import END, request_frames

PROGRAM = "fourstroke.launch.kv_events.listeners"


@contextmanager
def listeners(pub: str, replay: str, reading: int, stalled: int, replaying: int) -> Iterator[None]:
    """Have so many listen, until the end of the `with`."""
    command = [sys.executable, "-P", "-m", PROGRAM, pub, replay, *map(str, (reading, stalled, replaying))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        yield
        process.stdin.close()


def main(pub: str, replay: str, reading: int, stalled: int, replaying: int) -> None:
    """Listen until standard input ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    for _ in range(reading):
        poller.register(_subscriber(context, pub, queue=0), zmq.POLLIN)
    left_alone = [_subscriber(context, pub, queue=1) for _ in range(stalled)]
    asking = [_reader(context, replay) for _ in range(replaying)]
    for socket in asking:
        poller.register(socket, zmq.POLLIN)
    sys.stdout.write(f"{reading + replaying} read, {len(left_alone)} do not\n")
    sys.stdout.flush()
    while True:
        for ready, _ in poller.poll():
            if ready == sys.stdin.fileno():
                context.destroy(linger=0)
                return
            frames = ready.recv_multipart()
            if ready in asking and frames[-2] == END:
                ready.send_multipart(request_frames(0))


def _subscriber(context: zmq.Context[zmq.Socket[bytes]], pub: str, queue: int) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.SUB)
    socket.rcvhwm = queue
    socket.subscribe("")
    socket.connect(pub)
    return socket


def _reader(context: zmq.Context[zmq.Socket[bytes]], replay: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.connect(replay)
    socket.send_multipart(request_frames(0))
    return socket


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
