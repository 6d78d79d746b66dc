# SPDX-License-Identifier: BSD-3-Clause
"""What the processes of a cell run: its ranks, and the store that a launcher would host."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from tests.drill.cells import Cell
from tests.drill.scene import Scene
from tests.ranks.fork_server import die_with_parent


def rank_program(folder: Path, cell: Cell, rank: int) -> Callable[[], int]:
    def program() -> int:
        die_with_parent()
        redirect_output(folder / f"rank{rank}.log")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a drill in the background ignores it
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR2, all_threads=True)
        scene = Scene(cell, rank, folder)
        scene.note(f"pid.{rank}", os.getpid())
        store = scene.await_note("store")
        os.environ |= environment(cell, rank) | {
            "MASTER_PORT": str(store["port"]),
            "TMPDIR": str(folder / "tmp"),
        }
        from tests.drill.moments import MOMENTS

        MOMENTS[cell.moment](scene)
        scene.end()
        return 0

    return program


def environment(cell: Cell, rank: int) -> dict[str, str]:
    """As torchrun leaves it, which hosts the store itself."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(cell.ranks),
        "LOCAL_WORLD_SIZE": str(cell.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_FR_DUMP_ON_TIMEOUT": "0",
        **cell.route.environment(rank),
    }


def store_program(folder: Path, cell: Cell) -> Callable[[], int]:
    def program() -> int:
        import torch.distributed as dist

        die_with_parent()
        redirect_output(folder / "store.log")
        timeout = timedelta(seconds=cell.timeout)
        store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, timeout=timeout, wait_for_workers=False)
        Scene(cell, -1, folder).note("store", {"port": store.port, "pid": os.getpid()})
        while True:
            time.sleep(1000)

    return program


def redirect_output(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
