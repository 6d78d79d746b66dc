# SPDX-License-Identifier: BSD-3-Clause
"""How ranks of a cell wait for one another: through files in its folder, by nothing that is being tested."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Cues:
    def __init__(self, rank: int, size: int, folder: Path, limit: float) -> None:
        self.rank, self.size, self.folder, self._limit = rank, size, folder, limit

    def note(self, name: str, value: object = None) -> None:
        """Writes the file whole, at once: a rank that finds it finds all of it."""
        draft = self.folder / f".{name}.{self.rank}"
        draft.write_text(json.dumps(value))
        draft.rename(self.folder / name)

    def read(self, name: str) -> Any:
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def until(self, reached: Callable[[], object], what: str) -> None:
        end = time.monotonic() + self._limit
        while not reached():
            if time.monotonic() > end:
                raise TimeoutError(f"the drill waited in vain for {what}")
            time.sleep(0.002)

    def await_note(self, name: str) -> Any:
        self.until((self.folder / name).exists, name)
        return self.read(name)

    def all_at(self, name: str) -> None:
        """Until every rank has come here."""
        self.note(f"{name}.{self.rank}")
        for rank in range(self.size):
            self.await_note(f"{name}.{rank}")

    def await_ends_of_others(self) -> None:
        for rank in range(self.size):
            if rank != self.rank:
                self.await_note(f"end.{rank}")
