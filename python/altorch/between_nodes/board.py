# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of `altorch check --between-nodes` keep in step: over the rendezvous store, beside what is measured.

Waits poll, because the store warns of a wait that times out. A rank that fails says so, and all waits end within a
second. A wait lasts as long as any rank gets on, and `timeout` seconds longer.
"""

from __future__ import annotations

import json
import time
from typing import Any

LONGEST_SLEEP = 0.05
LOOK_AROUND = 0.5  # seconds between looks at the progress of all ranks


class Stopped(Exception):
    """Another rank failed, and says so itself."""


class Board:
    def __init__(self, store: Any, timeout: float) -> None:
        self._store, self._timeout = store, timeout

    def post(self, key: str, value: Any = None) -> None:
        self._store.set(key, json.dumps(value))

    def read(self, key: str) -> Any:
        """What a rank has posted, or will."""
        self._wait(key)
        return json.loads(self._store.get(key))

    def has(self, key: str) -> bool:
        return bool(self._store.check([key]))

    def barrier(self, key: str, count: int) -> None:
        """Of `count` ranks. The key serves once."""
        if self._store.add(f"{key}/count", 1) == count:
            self.post(key)
        self.read(key)

    def leave(self, rank: int, count: int) -> None:
        """After a barrier, by each of `count` ranks: the last calls. Rank 0 may host the store, and leaves last."""
        if rank != 0:
            self.post(f"left/{rank}")
            return
        for other in range(1, count):
            self._wait(f"left/{other}")

    def advance(self) -> None:
        """A step is done: ranks that wait have patience again."""
        self._store.add("steps", 1)

    def fail(self) -> None:
        self.post("failed")

    def _wait(self, key: str) -> None:
        began = looked = advanced = time.monotonic()
        steps = -1
        while not self._store.check([key]):
            now = time.monotonic()
            if now - looked > LOOK_AROUND:
                looked = now
                if self._store.check(["failed"]):
                    raise Stopped
                if (done := self._store.add("steps", 0)) != steps:
                    steps, advanced = done, now
            if now - advanced > self._timeout:
                raise TimeoutError(f"no rank got on for {self._timeout:g} s; this one waits for {key}")
            time.sleep(min(LONGEST_SLEEP, 0.0002 + 0.05 * (now - began)))
