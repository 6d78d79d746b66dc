# SPDX-License-Identifier: BSD-3-Clause
"""TCP ports for ranks to meet at, which no two processes of this machine get at the same time."""

from __future__ import annotations

import random
import socket
from collections import deque

# Below the ephemeral range, from which the kernel takes ports of outgoing connections.
FIRST, LAST = 15000, 32000
MAX_RESERVATIONS = 64
_reservations: deque[socket.socket] = deque()


def free_port() -> int:
    """A port that no socket is bound to, and that no other call returns while this process keeps its reservation.

    A reservation is an abstract Unix socket whose name holds the port. A process keeps its newest 64.
    """
    for _ in range(1000):
        port = random.SystemRandom().randint(FIRST, LAST)
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0altorch-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            reservation.close()
            continue
        _reservations.append(reservation)
        if len(_reservations) > MAX_RESERVATIONS:
            _reservations.popleft().close()
        return port
    raise RuntimeError(f"No free TCP port was found between {FIRST} and {LAST}.")
