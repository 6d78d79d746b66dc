# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a benchmark as fresh processes, collects the rows that they emit, and leaves none behind.

    rows = run_ranks("benchmarks.startup:work", ranks=4, config={"contender": "gloo"})

runs ``work(config, emit)`` in every rank with the environment that torchrun would give. Rows that a rank hands to
``emit`` come back as dictionaries.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from altorch.bench.rows import Row
from benchmarks.link import Node
from tests.ranks.launch import clean_environment, free_port, kill_session, rank_environment, spawn

Emit = Callable[[Row], None]
TAIL = 12  # lines of a rank's log in an error


class RanksFailed(RuntimeError):
    """A rank ended with an error or the deadline passed; the message holds the ends of the ranks' output."""


def run_ranks(
    function: str,
    ranks: int,
    config: dict[str, Any],
    *,
    deadline: float = 280.0,
    on_row: Emit | None = None,
    nodes: Sequence[Node] = (Node(),),
    hosts_store: bool = False,
) -> list[Row]:
    """Runs ``function`` ("module:name") in ``ranks`` processes and returns the rows in order of arrival.

    ``nodes``: they get as many ranks each, one after another. ``hosts_store``: this process serves the
    store, as torchrun's agent does. Otherwise rank 0 serves it, and a rank that asks sooner tries again after 0.5 to
    1 s.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        processes: list[subprocess.Popen[bytes]] = []
        readers: list[threading.Thread] = []
        port = free_port()
        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False) if hosts_store else None
        agent = {"TORCHELASTIC_USE_AGENT_STORE": "True"} if store else {}
        try:
            for rank in range(ranks):
                number = rank * len(nodes) // ranks
                node = nodes[number]
                own = rank_environment(rank, ranks, nodes[0].address, port) | node.env
                env = _environment(config, folder) | own | agent
                if len(nodes) > 1:
                    env |= node_environment(number, len(nodes))
                command = [*node.prefix, sys.executable, "-m", "benchmarks.ranks", function]
                processes.append(spawn(command, env, _log(folder, rank), stdout=subprocess.PIPE))
                reader = threading.Thread(target=_read_rows, args=(processes[-1], rows, on_row), daemon=True)
                reader.start()
                readers.append(reader)
            failure = _wait(processes, time.monotonic() + deadline)
        finally:
            for process in processes:
                kill_session(process)
            for reader in readers:
                reader.join(timeout=5)
        if failure:
            raise RanksFailed(f"{function} on {ranks} ranks: {failure}\n{_tails(folder, ranks)}")
    return rows


def _environment(config: dict[str, Any], folder: str) -> dict[str, str]:
    own = {"OMP_NUM_THREADS": "1", "BENCHMARK_CONFIG": json.dumps(config), "BENCHMARK_FOLDER": folder}
    return clean_environment(own)


def node_environment(node: int, nodes: int) -> dict[str, str]:
    """The node of altorch's rank; and ranks of different nodes talk over the network by MPICH and by NCCL, too."""
    return {
        "ALTORCH_NODE": str(node),
        "NCCL_HOSTID": f"node {node}",
        "ALTORCH_MPI": "mpich",  # Open MPI would go through memory between such nodes
        "MPIR_CVAR_NUM_CLIQUES": str(nodes),
        "MPIR_CVAR_CLIQUES_BY_BLOCK": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
    }


def _log(folder: str, rank: int) -> Path:
    return Path(folder) / f"rank{rank}.log"


def _read_rows(process: subprocess.Popen[bytes], rows: list[Row], on_row: Emit | None) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith(b'{"'):
            continue  # a library's chatter
        row = json.loads(line)
        rows.append(row)
        if on_row is not None:
            on_row(row)


def _wait(processes: list[subprocess.Popen[bytes]], deadline: float) -> str | None:
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


def _tails(folder: str, ranks: int) -> str:
    texts = []
    for rank in range(ranks):
        lines = _log(folder, rank).read_text(errors="replace").splitlines()
        texts.append(f"--- rank {rank}\n" + "\n".join(lines[-TAIL:]))
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
