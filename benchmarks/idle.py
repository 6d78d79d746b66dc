# SPDX-License-Identifier: BSD-3-Clause
"""Measures the processor time of a group that has nothing to do, after it has worked.

`none` is a process that has imported torch and has no group: what the interpreter itself uses. `store` has a c10d
store as every group needs one, and no group: what torch itself uses. With --late the last rank is idle, and the others
wait for it in a barrier: the figures are theirs.
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

WITHOUT_GROUP = ("none", "store")


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
    elif backend not in WITHOUT_GROUP:
        provide(backend)
        dist.init_process_group(backend)
        values = torch.ones(1 << 18)
        for _ in range(20):
            dist.all_reduce(values)
            dist.all_reduce(values, async_op=True).wait()
        dist.barrier()
    time.sleep(config["settle"])  # an engine may wait eagerly for a moment after work
    waits = config["late"] and dist.get_rank() < dist.get_world_size() - 1
    before, ticks_before = resource.getrusage(resource.RUSAGE_SELF), ticks()
    if waits:
        dist.barrier()
    else:
        time.sleep(config["seconds"])
    after, ticks_after = resource.getrusage(resource.RUSAGE_SELF), ticks()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    emit(
        {
            "waited": waits,
            "cpu_ms_per_s": used * 1e3 / config["seconds"],
            "ticks": ticks_after - ticks_before,
            "wakes_per_s": (after.ru_nvcsw - before.ru_nvcsw) / config["seconds"],
            "threads": len(list(Path("/proc/self/task").iterdir())),
        }
    )
    del store
    if backend not in WITHOUT_GROUP:
        if not waits:
            dist.barrier()
        dist.destroy_process_group()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "none,store,al,gloo")
    report.add_ranks(parser, "2")
    parser.add_argument("--seconds", type=float, default=10, help="how long to watch, default 10")
    parser.add_argument("--settle", type=float, default=1, help="pause before watching, default 1")
    parser.add_argument("--late", action="store_true", help="the last rank comes so late to a barrier")
    arguments = parser.parse_args()
    if arguments.late:
        if min(arguments.ranks) < 2:
            parser.error("--late takes 2 ranks or more")
        arguments.contenders = [name for name in arguments.contenders if name not in WITHOUT_GROUP]

    measured: list[Row] = [report.where()]
    lines = []
    for ranks in arguments.ranks:
        for contender in arguments.contenders:
            config = {name: getattr(arguments, name) for name in ("seconds", "settle", "late")}
            config |= {"contender": contender}
            with console().status(f"{contender}, {ranks} ranks, {arguments.seconds:.0f} s"):
                found = run_ranks("benchmarks.idle:work", ranks, config, deadline=60 + arguments.seconds)
            found = [row for row in found if row.pop("waited") or not arguments.late]
            worst = {name: max(row[name] for row in found) for name in found[0]}
            benchmark = "idle_late" if arguments.late else "idle"
            row = {"benchmark": benchmark, "contender": contender, "ranks": ranks, "device": "cpu"}
            measured.append(row | {"seconds": arguments.seconds} | worst)
            used, wakes = f"{worst['cpu_ms_per_s']:.3f}", f"{worst['wakes_per_s']:.1f}"
            lines.append((contender, ranks, used, worst["ticks"], wakes, worst["threads"]))
    print_table(
        f"{'waiting' if arguments.late else 'idle'} for {arguments.seconds:.0f} s (worst rank)",
        ["contender", "ranks", "CPU ms per s", "clock ticks", "wakes per s", "threads"],
        lines,
        right=["ranks", "CPU ms per s", "clock ticks", "wakes per s", "threads"],
    )
    rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
