# SPDX-License-Identifier: BSD-3-Clause
"""`altorch check`: every operation against a reference, for a new cluster.

    altorch check --ranks 4                               starts four ranks on this machine
    torchrun --nnodes 2 --nproc-per-node 8 ... -m altorch check      checks what torchrun started
    mpirun -n 16 altorch check                            the same under an MPI launcher

    torchrun --nnodes 4 --nproc-per-node 8 ... -m altorch check --between-nodes

measures latency, bandwidth and message rate of every pair of nodes instead, beside a plain TCP socket, and names the
node or link that is slow beside the others (docs/clusters.md); exit code 1 if there is one, 2 if all ranks are on one
node.

Results travel through the rendezvous store, not through the backend that is being checked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from altorch.cli import _ranks
from altorch.cli._output import print_json, print_table

SUMMARY = (
    "Run every operation on small and large tensors and compare with a reference; exit code 1 on a difference. "
    "With --between-nodes, measure the network instead, and name the slow node or link."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="start N ranks here (default 2 when nothing started us)"
    )
    parser.add_argument("--backend", default="al", help="backend to check (default: %(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=60, help="deadline of one operation [s] (default: %(default)s)"
    )
    parser.add_argument(
        "--between-nodes",
        action="store_true",
        help="measure every pair of nodes instead; under torchrun, mpirun or srun on several nodes",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=10,
        help="of --between-nodes: about so long; many nodes take longer (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    from altorch import _launcher

    launcher = _launcher.detect()
    if arguments.between_nodes:
        return _between_nodes(arguments, launcher)
    if arguments.ranks is not None or launcher.name == "none":
        return _start_ranks(arguments)
    return _check(arguments, launcher)


def _between_nodes(arguments: argparse.Namespace, launcher: Any) -> int:
    from altorch import _version_check

    problem = ""
    if arguments.ranks is not None or launcher.name == "none":
        problem = (
            "--between-nodes needs ranks on several nodes, and none are started from here: torchrun --nnodes 2 ... "
            "-m altorch check --between-nodes, or mpirun or srun with altorch check --between-nodes"
        )
    elif _version_check.needs_fallback():
        problem = "--between-nodes needs the extension, and there is none for this torch"
    elif not 0 < arguments.seconds <= 3600 or not arguments.timeout > 0:
        problem = "--seconds is not above 0 and at most 3600, or --timeout is not above 0"
    if problem:
        print(f"altorch check: {problem}.", file=sys.stderr)
        return 2
    from altorch.between_nodes import job

    return job.run(arguments, launcher)


def _start_ranks(arguments: argparse.Namespace) -> int:
    command = ["check", f"--backend={arguments.backend}", f"--timeout={arguments.timeout}"]
    command += ["--json"] if arguments.json else []
    return _ranks.start(2 if arguments.ranks is None else arguments.ranks, command)


def _check(arguments: argparse.Namespace, launcher: Any) -> int:
    import torch.distributed as dist

    from altorch.cli import _check_cases

    init = "mpi://" if launcher.starts_mpi and "MASTER_ADDR" not in os.environ else None
    began = time.perf_counter()
    dist.init_process_group(arguments.backend, init_method=init, timeout=timedelta(seconds=arguments.timeout))
    seconds = time.perf_counter() - began
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.PrefixStore("altorch-check", dist.distributed_c10d._get_default_store())

    rows: list[dict[str, Any]] = []
    cases = _check_cases.of_backend(arguments.backend, _all_have_gpus(store, rank, size, launcher))
    for case in cases:
        began = time.perf_counter()
        not_run = None
        try:
            not_run = case.run(rank, size)
            failure = ""
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        taken = time.perf_counter() - began
        store.set(f"{case.name}/{rank}", failure)
        failures = [text.decode() for text in store.multi_get([f"{case.name}/{r}" for r in range(size)])]
        wrong = [(r, text) for r, text in enumerate(failures) if text]
        rows.append(
            {
                "operation": case.name,
                "ok": not wrong,
                "seconds": taken,
                "not_run": not_run or "",
                "failures": [{"rank": r, "error": text} for r, text in wrong],
            }
        )
        if wrong:
            break  # the ranks may no longer be in step
    passed = all(row["ok"] for row in rows) and len(rows) == len(cases)
    if rank == 0:
        _report(arguments, rows, passed, len(cases) - len(rows), size, seconds, launcher)
    store.set(f"left/{rank}", "")
    if rank == 0:  # it may host the store, and leaves last
        store.multi_get([f"left/{r}" for r in range(size)])
    if passed:
        dist.destroy_process_group()
    return 0 if passed else 1


def _all_have_gpus(store: Any, rank: int, size: int, launcher: Any) -> bool:
    """Then this rank's is current."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    store.set(f"gpus/{rank}", str(count))
    if b"0" in store.multi_get([f"gpus/{r}" for r in range(size)]):
        return False
    torch.cuda.set_device((rank if launcher.local_rank is None else launcher.local_rank) % count)
    return True


def _report(
    arguments: argparse.Namespace,
    rows: list[dict[str, Any]],
    passed: bool,
    missing: int,
    size: int,
    seconds: float,
    launcher: Any,
) -> None:
    if arguments.json:
        print_json(
            {
                "backend": arguments.backend,
                "ranks": size,
                "launcher": launcher.name,
                "passed": passed,
                "init_seconds": seconds,
                "operations": rows,
            }
        )
        return
    print_table(
        f"{arguments.backend}: {size} ranks, started by {launcher.name}, group made in {seconds:.2f} s",
        ["operation", "right", "time [ms]", "what is wrong"],
        [
            [
                row["operation"],
                "not run" if row["not_run"] else row["ok"],
                f"{row['seconds'] * 1e3:.1f}",
                row["not_run"] or "; ".join(f"rank {f['rank']}: {f['error']}" for f in row["failures"]),
            ]
            for row in rows
        ],
        right=["time [ms]"],
    )
    print("All operations are right." if passed else json.dumps({"passed": False, "not run": missing}))
