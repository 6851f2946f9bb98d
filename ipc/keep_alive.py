"""Sockets that notice when the other end is not there any more, though its machine has not said so.

The publisher of KV events and its subscribers both use it: without it a connection to a machine that has lost its power
looks like a quiet one for ever.
"""

from __future__ import annotations

import math

import zmq

PING_EVERY_S = 10.0
DEAD_AFTER_S = 30.0
"""Without an answer for so long a connection is broken, and made again."""


def keep_alive(socket: zmq.Socket[bytes]) -> None:
    """Have a socket ask its peers whether they live: by ZMTP, and by TCP where a peer does not know that."""
    socket.heartbeat_ivl = round(1000 * PING_EVERY_S)
    socket.heartbeat_timeout = round(1000 * DEAD_AFTER_S)
    socket.tcp_keepalive = 1
    socket.tcp_keepalive_idle = socket.tcp_keepalive_intvl = math.ceil(PING_EVERY_S)
    socket.tcp_keepalive_cnt = round(DEAD_AFTER_S / PING_EVERY_S)
