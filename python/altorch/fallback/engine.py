# SPDX-License-Identifier: BSD-3-Clause
"""libaltorch_engine.so through ctypes: the functions of csrc/c_api/c_api.h. Errors become torch's exceptions."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import zlib
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, byref, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from datetime import timedelta
from typing import Any

from altorch import _version_check
from altorch.fallback.store import Store, store_over

_RAISED = CFUNCTYPE(c_int)


class Call(ctypes.Structure):
    """struct altorch_call"""

    _fields_ = (
        ("kind", c_int),
        ("dtype", c_int),
        ("op", c_int),
        ("root", c_int),
        ("input", c_void_p),
        ("output", c_void_p),
        ("count", c_int64),
        ("input_counts", POINTER(c_int64)),
        ("output_counts", POINTER(c_int64)),
        ("factor", c_double),
        ("tag", c_int64),
        ("timeout_ms", c_int64),
        ("refused", c_char_p),
    )


class StatsRow(ctypes.Structure):
    """struct altorch_stats_row"""

    _fields_ = (
        ("operation", c_char * 32),
        ("route", c_char * 64),
        ("count", c_int64),
        ("bytes", c_int64),
        ("seconds", c_double),
    )

    def as_dict(self) -> dict[str, Any]:
        names = {"operation": self.operation.decode(), "route": self.route.decode()}
        return names | {"count": self.count, "bytes": self.bytes, "seconds": self.seconds}


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "altorch_dtype": (c_int, [c_char_p]),
    "altorch_kind": (c_int, [c_char_p]),
    "altorch_can_reduce": (c_int, [c_int, c_int]),
    "altorch_error": (c_char_p, []),
    "altorch_error_code": (c_int, []),
    "altorch_buffers_free": (c_int, []),
    "altorch_join": (
        c_void_p,
        [POINTER(Store), c_char_p, c_char_p, c_int, c_int, POINTER(c_int), c_int, c_int64],
    ),
    "altorch_run": (c_int, [c_void_p, POINTER(Call)]),
    "altorch_start": (c_void_p, [c_void_p, POINTER(Call)]),
    "altorch_wait": (c_int, [c_void_p, c_void_p, c_int64]),
    "altorch_is_done": (c_int, [c_void_p]),
    "altorch_release": (None, [c_void_p]),
    "altorch_close": (None, [c_void_p, c_char_p]),
    "altorch_leave": (None, [c_void_p]),
    "altorch_stats": (c_int, [c_void_p, POINTER(StatsRow), c_size_t, POINTER(c_size_t)]),
    "altorch_set_signal_check": (None, [_RAISED]),
    "altorch_stop": (None, []),
}

_library: ctypes.CDLL | None = None
_kept: list[Any] = []  # what engine threads and abandoned calls may still use
_raised: list[BaseException] = []  # by signal handlers, while a call waits


def library() -> ctypes.CDLL:
    """The engine, loaded when it is first asked for. Raises OSError where it cannot be loaded."""
    global _library
    if _library is None:
        loaded = ctypes.CDLL(str(_version_check.ENGINE))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        checks = _signal_checks()
        next(checks)
        check = _RAISED(checks.__next__)
        _kept.append((check, checks))
        loaded.altorch_set_signal_check(check)
        atexit.register(_stop, os.getpid())
        _library = loaded
    return _library


def _signal_checks() -> Iterator[int]:
    """Yields 1 where a signal handler has raised, else 0.

    A generator, because Python runs pending handlers where a frame starts or resumes: a function would raise before its
    `try`, a generator resumes inside of it.
    """
    raised = 0
    while True:
        try:
            yield raised
            raised = 0
        except GeneratorExit:
            return
        except BaseException as error:
            _raised.append(error)
            raised = 1


def _stop(owner: int) -> None:
    """At exit. A forked child leaves the threads of its parent alone."""
    if os.getpid() == owner:
        library().altorch_stop()


def milliseconds(timeout: timedelta) -> int:
    """Whole milliseconds, at least 1: 0 means another limit."""
    return max(1, min(int(timeout.total_seconds() * 1000), 1 << 40))


@functools.cache
def number_of(table: str, name: str) -> int:
    """`table`: "dtype" or "kind"; -1: the engine knows no such name."""
    return int(getattr(library(), f"altorch_{table}")(name.encode()))


def stats(handle: c_void_p) -> list[Any]:
    """Returns the rows of altorch.stats() for a group."""
    capacity, count = 64, c_size_t()
    while True:
        rows = (StatsRow * capacity)()
        check(library().altorch_stats(handle, rows, capacity, byref(count)))
        if count.value <= capacity:
            return [rows[i].as_dict() for i in range(count.value)]
        capacity = count.value + 16  # other threads may add some


def error_text() -> str:
    """Of this thread's last call that failed."""
    return str(library().altorch_error().decode(errors="replace"))


def keep(buffers: Any) -> None:
    """For the life of the process."""
    _kept.append(buffers)


def keep_if_used(buffers: Any) -> None:
    """Keeps the buffers of this thread's last call for the life of the process, if a peer may still use them."""
    if not library().altorch_buffers_free():
        _kept.append(buffers)


def check(code: int, buffers: Any = None) -> None:
    """Raises what `code` (0, or 1 + ErrorKind) stands for, or what a signal handler has raised meanwhile."""
    if code == 0:
        return
    keep_if_used(buffers)
    if _raised:
        raise _raised.pop()
    raise _exception(code, error_text())


def _exception(code: int, text: str) -> Exception:
    from torch.distributed import DistBackendError

    kinds: dict[int, type[Exception]] = {1: ValueError, 2: TypeError, 8: NotImplementedError}
    other: type[Exception] = DistBackendError
    return kinds.get(code, other)(text)


def join(
    store: Any, name: str, rank: int, global_ranks: list[int], is_job: bool, timeout_ms: int
) -> c_void_p:
    """Collective: the handle of a new group, whose ranks meet in `store`.

    A thread of its own makes it, so that a signal handler that raises ends the wait here.
    """
    size = len(global_ranks)
    ranks = (c_int * size)(*global_ranks)
    # Disjoint groups may have one name.
    key = f"{name}/{size}.{zlib.crc32(repr(global_ranks).encode()):08x}"
    made: list[tuple[Any, int, str]] = []

    def make() -> None:
        table = store_over(store, library(), is_job)
        group = library().altorch_join(
            byref(table), name.encode(), key.encode(), rank, size, ranks, int(is_job), timeout_ms
        )
        made.append((group, library().altorch_error_code(), error_text()))

    thread = threading.Thread(target=make, name="al-join", daemon=True)
    thread.start()
    thread.join()
    if not made:
        raise RuntimeError(
            f"altorch: group '{name}', rank {rank}: it could not be made; the reason stands above"
        )
    group, code, text = made[0]
    if not group:
        raise _exception(code, text)
    return c_void_p(group)
