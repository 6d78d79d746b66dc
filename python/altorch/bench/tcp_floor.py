# SPDX-License-Identifier: BSD-3-Clause
"""A floor for messages between nodes: one plain TCP socket, driven from Python, without any library between.

A fast fabric must be well above it. One stream does not fill a card of 100 Gb/s.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from altorch.bench.rows import Row

CHUNK = 1 << 20
CONNECT_SECONDS = 2.0
_PING, _LAST = b"ping-alt", b"last-alt"


def own_address(towards: str = "") -> str:
    """This node's address on the route to a host, else on the default route; the loopback where there is neither."""
    for target in (towards, "192.0.2.1"):  # reserved for documentation; nothing is sent
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                asked.connect((target or "192.0.2.1", 9))
                return str(asked.getsockname()[0])
        except (OSError, UnicodeError):
            continue
    return "127.0.0.1"


def is_loopback(address: str) -> bool:
    return address.startswith("127.")


def accept(address: str, publish: Callable[[int], None]) -> socket.socket:
    """A connection of the other node, which learns the port from `publish`. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind((address, 0))
        listening.listen(1)
        listening.settimeout(CONNECT_SECONDS + 1)
        publish(listening.getsockname()[1])
        return listening.accept()[0]


def connect(address: str, port: int) -> socket.socket:
    return socket.create_connection((address, port), timeout=CONNECT_SECONDS)


def measure(connection: socket.socket, first: bool, seconds: float, timeout: float) -> Row:
    """Latency, as the first node sees it, and the bandwidth of what this node receives [bytes/s]."""
    connection.settimeout(timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if first:
        row: Row = {"tcp_latency_us": _ping(connection, seconds / 4) * 1e6}
        _send(connection, seconds)
        return row | {"received": _receive(connection)}
    _echo(connection)
    row = {"received": _receive(connection)}
    _send(connection, seconds)
    return row


def _ping(connection: socket.socket, seconds: float) -> float:
    halves: list[float] = []
    end = time.perf_counter() + seconds
    while len(halves) < 20 or (time.perf_counter() < end and len(halves) < 1000):
        began = time.perf_counter()
        connection.sendall(_PING)
        _read(connection, len(_PING))
        halves.append((time.perf_counter() - began) / 2)
    connection.sendall(_LAST)
    return sorted(halves)[len(halves) // 2]


def _echo(connection: socket.socket) -> None:
    while (message := _read(connection, len(_PING))) != _LAST:
        connection.sendall(message)


def _read(connection: socket.socket, count: int) -> bytes:
    message = b""
    while len(message) < count:
        part = connection.recv(count - len(message))
        if not part:
            raise ConnectionError("the other node closed the connection")
        message += part
    return message


def _send(connection: socket.socket, seconds: float) -> None:
    chunk = bytes(CHUNK)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        connection.sendall(chunk)
    connection.shutdown(socket.SHUT_WR)


def _receive(connection: socket.socket) -> float:
    """Bytes a second from the first byte to the end of the stream."""
    buffer = bytearray(CHUNK)
    connection.recv_into(buffer)
    total, began = 0, time.perf_counter()
    while count := connection.recv_into(buffer):
        total += count
    return total / max(time.perf_counter() - began, 1e-9)
