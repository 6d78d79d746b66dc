# SPDX-License-Identifier: BSD-3-Clause
"""One cell: starts the store and the ranks, waits for their ends, ends what does not, looks for what is left.

Runs in a process of its own, a child of the fork server. It is the subreaper of all that its ranks leave behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import re
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.drill.cells import CELLS, Cell
from tests.drill.expectations import ERROR, RankEnd, Seen
from tests.drill.leftovers import SharedMemory, descendants, threads_of
from tests.drill.rank import rank_program, store_program

Program = Callable[[], int]
SEEN = "seen"  # the file in a cell's folder that holds what was seen, pickled

# What torch itself says, with a stack, of a store whose host is gone.
_STORE_WARNING = re.compile(
    r"^.*\[[WE]\d.*\b(?:TCPStore|socket)\.cpp.*\n(?:Exception raised from .*\n|frame #.*\n|\n)*", re.MULTILINE
)
# Python shows the line of a program that warns below the warning.
_WARNING_LINE = re.compile(r"^(.*\w+Warning: .*\n)  .*\n", re.MULTILINE)


class Stage:
    def __init__(self, cell: Cell, limit: float, folder: Path) -> None:
        self.cell, self.limit, self.folder = cell, limit, folder
        self.pids: dict[int, int] = {}
        self.ended: dict[int, int] = {}  # rank -> exit code
        self.ended_at: dict[int, float] = {}
        self.store_pid = 0

    def perform(self) -> Seen | Program:
        """What was seen; in a forked rank, the program that it has to run."""
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
        began = time.monotonic()
        self._memory = SharedMemory()
        self.store_pid = os.fork()
        if self.store_pid == 0:
            return store_program(self.folder, self.cell)
        for rank in range(self.cell.ranks):
            pid = os.fork()
            if pid == 0:
                return rank_program(self.folder, self.cell, rank)
            self.pids[rank] = pid
        self._wait(began + self.limit)
        hung = [rank for rank in self.pids if rank not in self.ended]
        self._show_stacks(hung)
        ends = [self._end_of(rank) for rank in self.pids]
        left = self._clear_up()
        return Seen(ends, left, whole_seconds=time.monotonic() - began)

    def _wait(self, limit: float) -> None:
        while len(self.ended) < len(self.pids) and time.monotonic() < limit:
            self._collect()
            self._resume()
            time.sleep(0.005)

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                for rank, own in self.pids.items():
                    if own == pid:
                        self.ended[rank] = os.waitstatus_to_exitcode(status)
                        self.ended_at[rank] = time.monotonic()

    def _resume(self) -> None:
        """Lets a stopped rank go on: after its time, or when all others have ended."""
        victim, failure = self.cell.victim, self.cell.failure
        struck = self.folder / "struck"
        if not failure.name.startswith("stopped") or not struck.exists():
            return
        if failure.resumes_after is not None:
            due = time.time() > struck.stat().st_mtime + failure.resumes_after
        else:
            due = len(self.ended) == len(self.pids) - 1
        if due and victim not in self.ended:
            os.kill(self.pids[victim], signal.SIGCONT)

    def _show_stacks(self, hung: list[int]) -> None:
        """Into their logs: what the system knows of their threads, and the stacks, which the ranks write themselves."""
        for rank in hung:
            with (self.folder / f"rank{rank}.log").open("a") as log:
                log.write("\n".join(["", "threads of a rank that hangs:", *threads_of(self.pids[rank]), ""]))
            os.kill(self.pids[rank], signal.SIGUSR2)
        if hung:
            time.sleep(0.3)

    def _end_of(self, rank: int) -> RankEnd:
        failure, is_victim = self.cell.failure, rank == self.cell.victim
        gone = failure.dies or (failure.excused and self.cell.expected.outcome == ERROR)
        end = RankEnd(rank, not (is_victim and gone), failure.exit_code if is_victim else 0)
        end.exit_code = self.ended.get(rank)
        with contextlib.suppress(OSError):
            written = json.loads((self.folder / f"end.{rank}").read_text())
            end.outcome, end.message = written["outcome"], written["message"]
            end.seconds = max(0.0, written["ended_at"] - max(written["called_at"], self._failed_at()))
        end.output = (self.folder / f"rank{rank}.log").read_text(errors="replace").strip()
        words = _WARNING_LINE.sub(r"\1", _STORE_WARNING.sub("", end.output + "\n"))
        end.last_words = words.strip().rpartition("\n")[2]
        end.output = end.output[-6000:]
        return end

    def _failed_at(self) -> float:
        """When the others could have known. An interpreter that ends may take seconds, and is alive meanwhile."""
        dies = self.cell.failure.dies and self.cell.expected.outcome == ERROR
        if dies and self.cell.victim in self.ended_at:
            return self.ended_at[self.cell.victim]
        struck = self.folder / "struck"
        return float(json.loads(struck.read_text())) if struck.exists() else 0.0

    def _clear_up(self) -> list[str]:
        """Ends the store and whatever else there is; what should not have been there."""
        with contextlib.suppress(OSError):
            os.kill(self.store_pid, signal.SIGKILL)
        expected = {self.store_pid, *self.pids.values()}
        strangers = [pid for pid in descendants(os.getpid()) if pid not in expected]
        left = [f"process {pid}" for pid in strangers]
        while remaining := descendants(os.getpid()):
            for pid in remaining:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._collect()
            time.sleep(0.005)
        left += [f"/dev/shm/{name}" for name in self._memory.new_and_unused()]
        cell = self.cell
        # MPI is not finalized over a call that has not ended.
        is_in_flight = cell.moment == "in destroy, work in flight alone"
        unfinalized = cell.failure.dies or cell.expected.outcome == ERROR or is_in_flight
        names = temporary_files(self.folder / "tmp", unfinalized)
        left += [f"temporary file {name}" for name in names]
        return left


def temporary_files(folder: Path, unfinalized: bool) -> list[str]:
    """Open MPI's session folder (ompi.<host>.<uid>) stays when a process ends without MPI_Finalize."""
    return [path.name for path in folder.iterdir() if not (unfinalized and path.name.startswith("ompi."))]


def run_cell(name: str, limit: float, folder: Path) -> int:
    """The program of a cell's process. The store and the ranks, which it forks, return from perform() too."""
    cell = next(cell for cell in CELLS if cell.name == name)
    try:
        (folder / "tmp").mkdir()
        outcome = Stage(cell, limit, folder).perform()
    except Exception:
        outcome = Seen(broken=traceback.format_exc())
    if not isinstance(outcome, Seen):
        return outcome()
    (folder / SEEN).write_bytes(pickle.dumps(outcome))
    return 0
