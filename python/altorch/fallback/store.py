# SPDX-License-Identifier: BSD-3-Clause
"""torch's store as the engine's altorch_store (csrc/c_api/c_api.h). The engine calls it from its own threads, too."""

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


_tables: dict[int, tuple[Store, Any]] = {}  # by id() of torch's store, which the entry keeps


def store_over(store: Any, library: ctypes.CDLL) -> Store:
    """The functions over `store` without its prefixes: the engine's keys are unique to a group.

    Each of torch's stores gets one connection for the engine, because a caller may block on the other. It stays open
    until the process ends.
    """
    root = getattr(store, "_underlying_non_prefix_store", store)
    if id(root) not in _tables:
        _tables[id(root)] = (_table(_connection(root), library), root)
    return _tables[id(root)][0]


def _connection(root: Any) -> Any:
    try:
        return root.clone()
    except Exception:  # a store that cannot be cloned
        return root


def _table(own: Any, library: ctypes.CDLL) -> Store:
    library.altorch_answer.argtypes = [c_void_p, c_char_p, c_size_t]
    library.altorch_answer.restype = None

    def guarded(request: Callable[..., None]) -> Callable[..., int]:
        def asked(*arguments: Any) -> int:
            try:
                request(*arguments)
            except BaseException:  # the engine reports that the store did not answer
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
