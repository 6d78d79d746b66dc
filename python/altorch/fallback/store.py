# SPDX-License-Identifier: BSD-3-Clause
"""torch's store as the engine's altorch_store (csrc/c_api/c_api.h), which one thread of the engine calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

_SET = CFUNCTYPE(c_int, c_char_p, c_void_p, c_size_t)
_GET = CFUNCTYPE(c_int, c_char_p, c_void_p)
_ADD = CFUNCTYPE(c_int, c_char_p, c_int64, POINTER(c_int64))


class Store(ctypes.Structure):
    """struct altorch_store"""

    _fields_ = (("set", _SET), ("set_once", _SET), ("get", _GET), ("add", _ADD))


_job: Store | None = (
    None  # of the job's first group; its keys are in the way of no other job of the same store
)
_kept: list[Store] = []  # the engine may ask until the process ends


def store_over(store: Any, library: ctypes.CDLL, is_job: bool) -> Store:
    """The functions over `store`, or, of a later group of the job, over the store of its first group.

    They have a connection of their own, where torch can make one, because callers may block on the other. It stays open
    until the process ends.
    """
    global _job
    if not is_job and _job is not None:
        return _job
    try:
        own = store.clone()
    except Exception:  # a store that cannot be cloned
        own = store
    made = _table(own, library)
    _kept.append(made)
    if is_job:
        _job = made
    return made


def _table(own: Any, library: ctypes.CDLL) -> Store:
    library.altorch_answer.argtypes = [c_void_p, c_char_p, c_size_t]
    library.altorch_answer.restype = None

    def guarded(request: Callable[..., None]) -> Callable[..., int]:
        def asked(*arguments: Any) -> int:
            try:
                request(*arguments)
            except Exception:  # the engine reports that the store failed
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
            library.altorch_answer(answer, value, len(value))

    def add(key: bytes, amount: int, total: Any) -> None:
        total[0] = own.add(key.decode(), amount)

    return Store(_SET(guarded(set_key)), _SET(guarded(set_once)), _GET(guarded(get)), _ADD(guarded(add)))
