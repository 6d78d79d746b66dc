"""Runs cells, several at a time, each under a limit."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import Client
from pathlib import Path

from tests.drill.cells import Cell
from tests.drill.expectations import Seen, objections

ROOT = Path(__file__).resolve().parents[2]
CLEARING_UP = 20.0  # seconds that a cell may take beyond its limit before it is given up


@dataclass
class Result:
    cell: Cell
    seen: Seen

    @property
    def objections(self) -> list[str]:
        """Why it is not as expected. What torch's own backends show is recorded, and judged by nobody."""
        if self.seen.skipped or (not self.cell.route.is_al and not self.seen.broken):
            return []
        return objections(self.cell.expected, self.seen)


class Runner:
    """Has a zygote, from entry to exit."""

    def __enter__(self) -> Runner:
        self._folder = Path(tempfile.mkdtemp(prefix="altorch-drill-"))
        self._address = str(self._folder / "zygote")
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.drill.zygote", self._address],
            cwd=ROOT,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._zygote.stdout is not None
        if self._zygote.stdout.readline() != "ready\n":
            raise RuntimeError("the drill's zygote did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._zygote.kill()
        self._zygote.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def process_id(self) -> int:
        return self._zygote.pid

    def run(self, cell: Cell, limit: float | None = None) -> Result:
        """`limit`: seconds; without one that of the cell."""
        if why := cell.obstacle:
            return Result(cell, Seen(skipped=why))
        limit = cell.limit if limit is None else limit
        with Client(self._address, family="AF_UNIX") as connection:
            connection.send((cell.name, limit, str(self._folder / secrets.token_hex(4))))
            try:
                if connection.poll(limit + CLEARING_UP):
                    return Result(cell, connection.recv())
            except EOFError:
                return Result(cell, Seen(broken="the cell's process ended"))
        return Result(cell, Seen(broken="the cell's process never answered"))

    def run_all(self, cells: Iterable[Cell], jobs: int, latest: float = float("inf")) -> Iterator[Result]:
        """As they end. `latest`: when none begins any more (time.monotonic())."""

        def one(cell: Cell) -> Result:
            return self.run(cell) if time.monotonic() < latest else Result(cell, Seen(skipped="lack of time"))

        with ThreadPoolExecutor(jobs) as pool:
            for future in as_completed([pool.submit(one, cell) for cell in cells]):
                yield future.result()


def clean_environment() -> dict[str, str]:
    """Without what a launcher, or who tries things out, has left; one thread for a rank's computing."""
    patience = {name: value for name, value in os.environ.items() if name == "ALTORCH_TEST_PATIENCE"}
    foreign = ("ALTORCH_", "TORCHELASTIC_", "PMI_", "PMIX_", "OMPI_COMM_", "SLURM_", "MASTER_")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(foreign)
        and name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    }
    return (
        kept
        | patience
        | {"RES_OPTIONS": "timeout:1 attempts:1"}  # c10d's store looks up the name of every peer
        | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TORCH_SHOW_CPP_STACKTRACES": "0"}
    )
