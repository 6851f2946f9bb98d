"""Sockets that notice when the other end is not there any more, though its machine has not said so.

The publisher of KV events and its subscribers use it: without it a connection to a machine that has lost its power
looks like a quiet one for ever.
"""

from __future__ import annotations

import math

import zmq

PING_EVERY_S = 10.0
DEAD_AFTER_S = 30.0
"""Without an answer for so long a connection is broken, and made again."""


def keep_alive(socket: zmq.Socket[bytes]) -> None:
    """Have the kernel ask whether the machines of a socket's peers are there. Any peer can take that."""
    socket.tcp_keepalive = 1
    socket.tcp_keepalive_idle = socket.tcp_keepalive_intvl = math.ceil(PING_EVERY_S)
    socket.tcp_keepalive_cnt = round(DEAD_AFTER_S / PING_EVERY_S)


def ping(socket: zmq.Socket[bytes]) -> None:
    """Have ZeroMQ ask, too, whether the peers themselves answer.

    Only where they are libzmq, as publishers are: zmq.rs, which readers in Rust use, knows no PING and takes it for an
    error.
    """
    socket.heartbeat_ivl = round(1000 * PING_EVERY_S)
    socket.heartbeat_timeout = round(1000 * DEAD_AFTER_S)
