# SPDX-License-Identifier: BSD-3-Clause
"""What the system knows of a cell: processes and files in /dev/shm that it left, threads of ranks that hang."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

SHARED = Path("/dev/shm")
SETTLING = 10.0  # seconds for other jobs on this machine to remove their files
# What the CUDA driver and NCCL keep there for a process stays when it is killed, in whichever cell.
FOREIGN = ("cuda.shm.", "nccl-")


class SharedMemory:
    """Files that are new in /dev/shm, that stay, and that no living process maps. Other jobs make files there, too."""

    def __init__(self) -> None:
        self._before = self._names()

    @staticmethod
    def _names() -> set[str]:
        names = {path.name for path in SHARED.iterdir()} if SHARED.exists() else set()
        return {name for name in names if not name.startswith(FOREIGN)}

    def new_and_unused(self) -> list[str]:
        end = time.monotonic() + SETTLING
        while unused := self._unused(self._names() - self._before):
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        return unused

    @staticmethod
    def _unused(names: set[str]) -> list[str]:
        used = _mapped() if names else ""
        return sorted(name for name in names if name not in used)


def _mapped() -> str:
    texts = []
    for path in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            texts.append("\n".join(line for line in path.read_text().splitlines() if str(SHARED) in line))
    return "\n".join(texts)


def descendants(root: int) -> list[int]:
    """Those of a process, but for zombies that no parent has collected."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
            parents[int(path.parent.name)] = (int(parent), state)
    found, frontier = [], {root}
    while frontier:
        frontier = {pid for pid, (parent, _) in parents.items() if parent in frontier}
        found += [pid for pid in frontier if parents[pid][1] not in "ZX"]
    return found


def threads_of(pid: int) -> list[str]:
    """A line for each: its name, its state, where in the system it waits, how long it has computed."""
    lines = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            computed = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            where, name = (task / "wchan").read_text(), (task / "comm").read_text().strip()
            lines.append(f"  {name}: {fields[0]}, in {where}, {computed:.1f} s of CPU time")
    return lines
