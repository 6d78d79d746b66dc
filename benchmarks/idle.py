# SPDX-License-Identifier: BSD-3-Clause
"""Measures the processor time of a group that has nothing to do, after it has worked.

`none` is a process that has imported torch and has no group: what the interpreter itself uses. `store` has a c10d
store as every group needs one, and no group: what torch itself uses.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import torch
import torch.distributed as dist

from altorch.bench import rows
from altorch.bench.contenders import provide
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks


def ticks() -> int:
    """Clock ticks that all threads of this process have used: utime + stime of /proc/self/stat."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def work(config: Row, emit: Emit) -> None:
    backend = config["contender"]
    store = None
    if backend == "store":
        port, size = int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"])
        store = dist.TCPStore(os.environ["MASTER_ADDR"], port, size, is_master=os.environ["RANK"] == "0")
    elif backend != "none":
        provide(backend)
        dist.init_process_group(backend)
        values = torch.ones(1 << 18)
        for _ in range(20):
            dist.all_reduce(values)
            dist.all_reduce(values, async_op=True).wait()
        dist.barrier()
    time.sleep(config["settle"])  # an engine may wait eagerly for a moment after work
    before, ticks_before = resource.getrusage(resource.RUSAGE_SELF), ticks()
    time.sleep(config["seconds"])
    after, ticks_after = resource.getrusage(resource.RUSAGE_SELF), ticks()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    emit(
        {
            "cpu_ms_per_s": used * 1e3 / config["seconds"],
            "ticks": ticks_after - ticks_before,
            "wakes_per_s": (after.ru_nvcsw - before.ru_nvcsw) / config["seconds"],
            "threads": len(list(Path("/proc/self/task").iterdir())),
        }
    )
    del store
    if backend not in ("none", "store"):
        dist.barrier()
        dist.destroy_process_group()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "none,store,al,gloo")
    report.add_ranks(parser, "2")
    parser.add_argument("--seconds", type=float, default=10, help="how long to watch, default 10")
    parser.add_argument("--settle", type=float, default=1, help="pause before watching, default 1")
    arguments = parser.parse_args()

    measured: list[Row] = [report.where()]
    lines = []
    for ranks in arguments.ranks:
        for contender in arguments.contenders:
            config = {"contender": contender, "seconds": arguments.seconds, "settle": arguments.settle}
            with console().status(f"{contender}, {ranks} ranks, {arguments.seconds:.0f} s"):
                found = run_ranks("benchmarks.idle:work", ranks, config, deadline=60 + arguments.seconds)
            worst = {name: max(row[name] for row in found) for name in found[0]}
            row = {"benchmark": "idle", "contender": contender, "ranks": ranks, "device": "cpu"}
            measured.append(row | {"seconds": arguments.seconds} | worst)
            used, wakes = f"{worst['cpu_ms_per_s']:.3f}", f"{worst['wakes_per_s']:.1f}"
            lines.append((contender, ranks, used, worst["ticks"], wakes, worst["threads"]))
    print_table(
        f"idle for {arguments.seconds:.0f} s (worst rank)",
        ["contender", "ranks", "CPU ms per s", "clock ticks", "wakes per s", "threads"],
        lines,
        right=["ranks", "CPU ms per s", "clock ticks", "wakes per s", "threads"],
    )
    rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
