# SPDX-License-Identifier: BSD-3-Clause
"""libaltorch_engine.so through ctypes: the functions of csrc/c_api/c_api.h, and torch's store as its altorch_store.

For a torch that no extension was built for. Errors become the exceptions that the extension raises.
"""

from __future__ import annotations

import atexit
import ctypes
import zlib
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from datetime import timedelta
from typing import Any

from altorch import _version_check

_SET = CFUNCTYPE(c_int, c_char_p, c_void_p, c_size_t)
_GET = CFUNCTYPE(c_int, c_char_p, c_void_p)
_ADD = CFUNCTYPE(c_int, c_char_p, c_int64, POINTER(c_int64))
_RAISED = CFUNCTYPE(c_int)


class _Store(ctypes.Structure):
    _fields_ = (("set", _SET), ("set_once", _SET), ("get", _GET), ("add", _ADD))


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


_library: ctypes.CDLL | None = None
_kept: list[Any] = []  # what engine threads and abandoned calls may still use
_raised: list[BaseException] = []  # by signal handlers, while a call waits


def library() -> ctypes.CDLL:
    """The engine; raises OSError where it cannot be loaded."""
    global _library
    if _library is None:
        loaded = ctypes.CDLL(str(_version_check.ENGINE))
        for name in ("altorch_join", "altorch_start"):
            getattr(loaded, name).restype = c_void_p
        loaded.altorch_error.restype = c_char_p
        loaded.altorch_answer.argtypes = [c_void_p, c_char_p, c_size_t]
        loaded.altorch_join.argtypes = [
            POINTER(_Store),
            c_char_p,
            c_char_p,
            c_int,
            c_int,
            POINTER(c_int),
            c_int,
            c_int64,
        ]
        loaded.altorch_run.argtypes = [c_void_p, POINTER(Call)]
        loaded.altorch_start.argtypes = [c_void_p, POINTER(Call)]
        loaded.altorch_wait.argtypes = [c_void_p, c_void_p, c_int64, POINTER(c_int)]
        for name in ("altorch_is_done", "altorch_release", "altorch_leave"):
            getattr(loaded, name).argtypes = [c_void_p]
        loaded.altorch_close.argtypes = [c_void_p, c_char_p]
        check = _RAISED(_signal_handler_raised)
        _kept.append(check)
        loaded.altorch_set_signal_check(check)
        atexit.register(loaded.altorch_stop)
        _library = loaded
    return _library


def _signal_handler_raised() -> int:
    try:
        for _ in range(2):  # Python runs pending handlers between bytecodes
            pass
    except BaseException as error:
        _raised.append(error)
        return 1
    return 0


def raise_error(code: int, keep: Any = None) -> None:
    """Raises what 1 + ErrorKind stands for. `keep`: the call's buffers, which may have to outlive it."""
    from torch.distributed import DistBackendError

    text = library().altorch_error().decode(errors="replace")
    if keep is not None and not library().altorch_buffers_free():
        _kept.append(keep)
    if _raised:
        raise _raised.pop()
    kinds = {1: ValueError, 2: TypeError, 8: NotImplementedError}
    raise kinds.get(code, DistBackendError)(text)


def keep(what: Any) -> None:
    """For the life of the process."""
    _kept.append(what)


def number_of(table: str, name: str) -> int:
    """`table`: "dtype" or "kind"; -1: the engine knows no such name."""
    return int(getattr(library(), f"altorch_{table}")(name.encode()))


def join(
    store: Any, name: str, rank: int, global_ranks: list[int], is_job: bool, timeout_ms: int
) -> c_void_p:
    """Collective: the handle of a new group. `store`: torch's; altorch asks it from threads of its own."""
    size = len(global_ranks)
    ranks = (c_int * size)(*global_ranks)
    table = _store_over(store)
    # Disjoint groups may have one name.
    key = f"{name}/{size}.{zlib.crc32(repr(global_ranks).encode()):08x}"
    group = library().altorch_join(
        byref(table), name.encode(), key.encode(), rank, size, ranks, int(is_job), timeout_ms
    )
    if not group:
        text = library().altorch_error().decode(errors="replace")
        from torch.distributed import DistBackendError

        if _raised:
            raise _raised.pop()
        raise DistBackendError(text)
    return c_void_p(group)


def _store_over(store: Any) -> _Store:
    """altorch_store over torch's, on a connection of its own where torch can make one: callers may block on theirs."""
    try:
        own = store.clone()
    except Exception:
        own = store

    def guarded(request: Any) -> Any:
        def asked(*arguments: Any) -> int:
            try:
                request(*arguments)
            except Exception:  # the engine reports that the store did not answer
                return 1
            return 0

        return asked

    def set_key(key: bytes, data: int, size: int) -> None:
        own.set(key.decode(), ctypes.string_at(data, size))

    def set_once(key: bytes, data: int, size: int) -> None:
        own.compare_set(key.decode(), "", ctypes.string_at(data, size))

    def get(key: bytes, answer: int) -> None:
        if own.check([key.decode()]):
            value = own.get(key.decode())
            library().altorch_answer(answer, value, len(value))

    def add(key: bytes, amount: int, total: Any) -> None:
        total[0] = own.add(key.decode(), amount)

    table = _Store(_SET(guarded(set_key)), _SET(guarded(set_once)), _GET(guarded(get)), _ADD(guarded(add)))
    _kept.append((table, own))
    return table


def milliseconds(timeout: timedelta) -> int:
    return min(int(timeout.total_seconds() * 1000), 1 << 40)
