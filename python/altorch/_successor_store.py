# SPDX-License-Identifier: BSD-3-Clause
"""The store of a job whose host has gone with its store: the lowest rank that is left hosts the next one.

Ranks of one node find it by an abstract Unix socket, whose name all of them know and which ends with its process: no
file is left behind, and nothing has to be agreed on while all is well. Ranks of several nodes have no such place.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import Store

_LOOK = 2.0  # seconds, for an answer of a process of this machine
_CLEARED_UP = 3.0  # seconds
_CREDENTIALS = "3i"  # pid, uid, gid


def is_gone(store: Store) -> bool:
    """Whether no process serves the store any more. A host that is stopped or only slow is not gone."""
    import torch.distributed as dist

    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if not isinstance(store, dist.TCPStore):
        return False
    try:
        socket.create_connection((store.host, store.port), timeout=_LOOK).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


_found: dict[str, Store] = {}  # by place, for a later call of found()


def goes(store: Store) -> bool:
    """As is_gone(), for a store that has just failed.

    The kernel accepts connections for a killed process until it has cleared up, so this looks for a while.
    """
    end, pause = time.monotonic() + _CLEARED_UP, 0.02
    while time.monotonic() < end:
        if is_gone(store):
            return True
        time.sleep(pause)
        pause *= 1.5
    return False


def found(job: str, rank: int, size: int, is_lost: Callable[[int], bool], timeout: timedelta) -> Store:
    """Collective over the ranks that are left. `job`: a name of its own, the same on all of them."""
    deadline = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        host = next((each for each in range(size) if each == rank or not is_lost(each)), rank)
        place = f"{job}/{host}"
        store = _found.get(place) or (_host(place, timeout) if host == rank else _join(_ask(place), timeout))
        if store is not None:
            _found[place] = store
            return store
        time.sleep(0.01)
    raise TimeoutError(
        f"no rank that is left has come to host the job's store within {timeout.total_seconds():g} s; "
        "start the job again"
    )


def _name(place: str) -> bytes:
    return b"\0altorch-store/" + place.encode()


def _join(port: int, timeout: timedelta) -> Store | None:
    import torch.distributed as dist

    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout) if port else None


def _host(place: str, timeout: timedelta) -> Store:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(_name(place))
    except OSError as error:
        raise TimeoutError(
            f"the place where the others look for the job's next store is taken: {error}"
        ) from None
    listener.listen(128)
    # A late rank gets the port, too; the thread ends with the process.
    threading.Thread(target=_tell, args=(listener, store.port), name="al-store-port", daemon=True).start()
    return store


def _tell(listener: socket.socket, port: int) -> None:
    """Sends the port to each process that asks. Goes on after an error of one, or a lack of descriptors."""
    while listener.fileno() >= 0:
        try:
            connection, _ = listener.accept()
        except OSError:
            time.sleep(0.1)
            continue
        with connection, suppress(OSError):
            if _is_mine(connection):
                connection.sendall(struct.pack("!H", port))


def _ask(place: str) -> int:
    """The port, or 0 if no rank serves it yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_LOOK)
        try:
            connection.connect(_name(place))
            answer: Any = connection.recv(2) if _is_mine(connection) else b""
        except OSError:
            return 0
    return int(struct.unpack("!H", answer)[0]) if len(answer) == 2 else 0


def _is_mine(connection: socket.socket) -> bool:
    """Whether the other end is a process of this user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS))
    pid, user, _ = struct.unpack(_CREDENTIALS, raw)
    # A user that a user namespace does not map appears as the overflow uid, a process of another
    # pid namespace as 0.
    return bool(user == os.getuid() and not (user == _overflow_uid() and pid == 0))


@functools.cache
def _overflow_uid() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534  # the kernel's default
