"""Starts the ranks of a benchmark as fresh processes, collects what they emit, and leaves none behind.

    rows = run_ranks("benchmarks.startup:work", ranks=4, config={"contender": "gloo"})

runs ``work(config, emit)`` in every rank with the environment that torchrun would give. Rows that a rank hands to
``emit`` come back as dictionaries. `join` is what most ranks do first, these and those that a launcher started.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from altorch import _launcher
from altorch.bench.rows import Row

if TYPE_CHECKING:
    import torch

Emit = Callable[[Row], None]


def join(device: str, control: str = "al") -> torch.device:
    """This rank's device. Its default group is of the backend `control` and carries what is not measured."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    found, here = _launcher.detect(), torch.device("cpu")
    if device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", found.local_rank or 0))
        here = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(here)
    init = "mpi://" if found.starts_mpi and "MASTER_ADDR" not in os.environ else None
    dist.init_process_group(control, init_method=init, timeout=timedelta(minutes=5))
    return here


def leave() -> None:
    """The end of a rank, for all together."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()


class RanksFailed(RuntimeError):
    """A rank ended with an error or the deadline passed; the message holds the ends of the ranks' output."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(
    function: str,
    ranks: int,
    config: dict[str, Any],
    *,
    deadline: float = 280.0,
    on_row: Emit | None = None,
    nodes: int = 1,
) -> list[Row]:
    """Runs ``function`` ("module:name") in ``ranks`` processes and returns the rows in order of arrival.

    ``nodes``: as if the ranks were on so many, one after another.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        environment = os.environ | {
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "BENCHMARK_CONFIG": json.dumps(config),
            "BENCHMARK_FOLDER": folder,
        }
        if nodes > 1:  # to MPICH too: ranks of different nodes talk over the network
            environment |= {
                "MPIR_CVAR_NUM_CLIQUES": str(nodes),
                "MPIR_CVAR_CLIQUES_BY_BLOCK": "1",
                "UCX_TLS": "tcp,self",
            }
        processes: list[subprocess.Popen[str]] = []
        readers: list[threading.Thread] = []
        try:
            for rank in range(ranks):
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                if nodes > 1:
                    own["ALTORCH_NODE"] = str(rank * nodes // ranks)
                with (Path(folder) / f"stderr-{rank}").open("w") as errors:
                    process = subprocess.Popen(
                        [sys.executable, "-m", "altorch.bench.launcher", function],
                        env=environment | own,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        text=True,
                        start_new_session=True,
                    )
                processes.append(process)
                reader = threading.Thread(target=_read_rows, args=(process, rows, on_row), daemon=True)
                reader.start()
                readers.append(reader)
            failure = _wait(processes, time.monotonic() + deadline)
        finally:
            for process in processes:
                _kill(process)
            for reader in readers:
                reader.join(timeout=5)
        if failure:
            raise RanksFailed(f"{function} on {ranks} ranks: {failure}\n{_tails(Path(folder), ranks)}")
    return rows


def _read_rows(process: subprocess.Popen[str], rows: list[Row], on_row: Emit | None) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith('{"'):
            continue  # a library's chatter
        row = json.loads(line)
        rows.append(row)
        if on_row is not None:
            on_row(row)


def _wait(processes: list[subprocess.Popen[str]], deadline: float) -> str | None:
    while True:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code not in (None, 0):
                return f"rank {rank} ended with status {code}"
        if all(code == 0 for code in codes):
            return None
        if time.monotonic() > deadline:
            late = [rank for rank, code in enumerate(codes) if code is None]
            return f"ranks {late} were still running at the deadline"
        time.sleep(0.02)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tails(folder: Path, ranks: int) -> str:
    texts = []
    for rank in range(ranks):
        lines = (folder / f"stderr-{rank}").read_text(errors="replace").splitlines()
        texts.append(f"--- rank {rank}\n" + "\n".join(lines[-12:]))
    return "\n".join(texts)


def wait_for_all_ranks() -> None:
    """Returns when every rank has called it. Needs no process group, so that starting one can be timed."""
    folder = Path(os.environ["BENCHMARK_FOLDER"])
    size = int(os.environ["WORLD_SIZE"])
    (folder / f"ready-{os.environ['RANK']}").touch()
    while not all((folder / f"ready-{rank}").exists() for rank in range(size)):
        time.sleep(0.001)


def _emit(row: Row) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    work = getattr(importlib.import_module(module), name)
    work(json.loads(os.environ["BENCHMARK_CONFIG"]), _emit)


if __name__ == "__main__":
    main()
