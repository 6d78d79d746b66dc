# SPDX-License-Identifier: BSD-3-Clause
"""A store in which the victim is struck: the way to meet a failure within what ranks do through it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from tests.drill.scene import Scene


class StrikingStore(dist.Store):
    """Hands everything on to the job's store; once armed, one of the victim's writes there strikes it."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene, self._left, self._writes = scene, 0, 0
        self._store = dist.TCPStore(
            "127.0.0.1",
            int(os.environ["MASTER_PORT"]),
            scene.size,
            is_master=False,
            timeout=timedelta(seconds=scene.timeout),
        )

    def arm(self, write: int = 1) -> None:
        """Counted from here on; at least the first."""
        self._left = max(1, write)

    def writes_of(self, program: Callable[[], object]) -> int:
        before = self._writes
        program()
        return self._writes - before

    def _write(self) -> None:
        self._writes += 1
        self._left -= 1
        if self._left == 0 and self._scene.is_victim:
            self._scene.strike()

    def set(self, key: str, value: Any) -> None:
        self._write()
        self._store.set(key, value)

    def add(self, key: str, value: int) -> int:
        self._write()
        return self._store.add(key, value)

    def compare_set(self, key: str, expected: Any, desired: Any) -> Any:
        self._write()
        return self._store.compare_set(key, expected, desired)

    def get(self, key: str) -> Any:
        return self._store.get(key)

    def check(self, keys: list[str]) -> bool:
        return self._store.check(keys)

    def wait(self, *arguments: Any) -> None:
        self._store.wait(*arguments)

    def multi_get(self, keys: list[str]) -> Any:
        return self._store.multi_get(keys)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(key)
