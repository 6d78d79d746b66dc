"""A store in which the victim is struck: the way to meet a failure within what ranks do through it."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from tests.drill.scene import Scene


class StrikingStore(dist.Store):
    """Hands everything on to the job's store; once armed, the victim's first write there strikes it."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene, self._armed = scene, False
        self._store = dist.TCPStore(
            "127.0.0.1",
            int(os.environ["MASTER_PORT"]),
            scene.size,
            is_master=False,
            timeout=timedelta(seconds=scene.timeout),
        )

    def arm(self) -> None:
        self._armed = True

    def _pass(self) -> None:
        if self._armed:
            self._armed = False
            self._scene.strike()

    def set(self, key: str, value: Any) -> None:
        if self._scene.is_victim:
            self._pass()
        self._store.set(key, value)

    def add(self, key: str, value: int) -> int:
        if self._scene.is_victim:
            self._pass()
        return self._store.add(key, value)

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
