# SPDX-License-Identifier: BSD-3-Clause
"""Runs cells, several at a time, each under a limit."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.drill.cells import Cell
from tests.drill.expectations import Seen, objections
from tests.drill.stage import SEEN
from tests.ranks.fork_server import ForkServer
from tests.ranks.launch import clean_environment

CLEARING_UP = 20.0  # seconds that a cell may take beyond its limit before it is aborted


@dataclass
class Result:
    cell: Cell
    seen: Seen

    @property
    def objections(self) -> list[str]:
        """Why it is not as expected. The drill records what torch's own backends show, and does not judge it."""
        if self.seen.skipped or (not self.cell.route.is_al and not self.seen.broken):
            return []
        return objections(self.cell.expected, self.seen)


class Runner:
    """Has a fork server, from entry to exit."""

    def __enter__(self) -> Runner:
        self._folder = Path(tempfile.mkdtemp(prefix="altorch-drill-"))
        self._server = ForkServer(
            environment(), preload=["altorch", "tests.drill.moments", "tests.drill.stage"]
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def process_id(self) -> int:
        """The ancestor of all processes of the cells."""
        return self._server.pid

    def run(self, cell: Cell, limit: float | None = None) -> Result:
        """`limit`: seconds; without one that of the cell."""
        if why := cell.unsupported_reason:
            return Result(cell, Seen(skipped=why))
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            return Result(cell, self._run(cell, cell.limit if limit is None else limit, folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, cell: Cell, limit: float, folder: Path) -> Seen:
        log = folder / "cell.log"
        try:
            process = self._server.start("tests.drill.stage:run_cell", None, log, cell.name, limit, folder)
        except OSError as error:
            return Seen(broken=f"the cell's process was not started: {error}")
        try:
            code = process.wait(limit + CLEARING_UP)
        except subprocess.TimeoutExpired:
            process.kill()  # its ranks die with it
            process.wait()
            return Seen(broken=f"the cell's process did not end\n{tail(log)}")
        try:
            seen: Seen = pickle.loads((folder / SEEN).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return Seen(broken=f"the cell's process ended with exit code {code}\n{tail(log)}")
        return seen

    def run_all(self, cells: Iterable[Cell], jobs: int, latest: float = float("inf")) -> Iterator[Result]:
        """As they end. `latest`: when none begins any more (time.monotonic())."""

        def one(cell: Cell) -> Result:
            return self.run(cell) if time.monotonic() < latest else Result(cell, Seen(skipped="lack of time"))

        with ThreadPoolExecutor(jobs) as pool:
            for future in as_completed([pool.submit(one, cell) for cell in cells]):
                yield future.result()


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def environment() -> dict[str, str]:
    """The environment of the fork server, without the caller's ALTORCH_ variables."""
    return {
        name: value
        for name, value in clean_environment().items()
        if not name.startswith("ALTORCH_") or name == "ALTORCH_TEST_PATIENCE"
    } | {"RES_OPTIONS": "timeout:1 attempts:1"}  # c10d's store looks up the name of every peer
