# SPDX-License-Identifier: BSD-3-Clause
"""Measures what calls of two ranks cost while their cores are near each other, and while they are far.

Near cores share a cache. On a machine of several sockets or core complexes, name a pair: --cores 0,1 and --cores 0,8. A
virtual machine's cores may be moved while it runs: then one run shows both. Before and after each batch the ranks hand
a cache line back and forth from Python; a pair is far while that takes over 1.5 times the shortest time of the run.
"""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from altorch.bench import rows
from altorch.bench.cases import CASES, Buffers
from altorch.bench.contenders import provide
from altorch.bench.rows import Row
from altorch.cli._output import console, parse_bytes, print_table
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks

FAR = 1.5  # times the shortest hand-over
ROUNDS, TRIES = 300, 5
BATCHES, LONGEST_BATCH = 3, 0.02  # seconds
LINES = (0, 1024)  # of 8-byte numbers: one page for each rank


class Handover:
    """The time of a round trip of one number between the two ranks' cores."""

    def __init__(self, path: str, rank: int) -> None:
        with Path(path).open("r+b") as file:
            self.numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self.own, self.peers = LINES if rank == 0 else LINES[::-1]
        self.leads, self.count = rank == 0, 0

    def nanoseconds(self) -> float:
        numbers, own, peers, best = self.numbers, self.own, self.peers, float("inf")
        for _ in range(TRIES):
            began = time.perf_counter()
            for count in range(self.count + 1, self.count + ROUNDS + 1):
                if self.leads:
                    numbers[own] = count
                while numbers[peers] < count:
                    pass
                numbers[own] = count
            self.count += ROUNDS
            best = min(best, (time.perf_counter() - began) / ROUNDS * 1e9)
        return best


def work(config: dict[str, Any], emit: Emit) -> None:
    rank = int(os.environ["RANK"])
    os.sched_setaffinity(0, {config["cores"][rank]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {}
    for name in config["contenders"]:
        provide(name)
        groups[name] = dist.new_group(backend=name)
    handover = Handover(config["file"], rank)
    cells = [(operation, size) for operation in config["operations"] for size in config["sizes"]]
    buffers = {size: Buffers(size, torch.float32, 2) for size in config["sizes"]}
    calls: dict[tuple[str, str, int], int] = {}
    end = time.monotonic() + config["seconds"]
    goes_on = torch.ones(1)
    while goes_on.item():
        for operation, size in cells:
            for name, group in groups.items():
                call = CASES[operation].make(buffers[size], group)
                cell = (name, operation, size)
                before = handover.nanoseconds()
                took = [batch(call, calls.get(cell, 3), group) for _ in range(BATCHES)]
                after = handover.nanoseconds()
                slowest = torch.tensor([max(min(took), 1e-7)])
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                if rank == 0 and cell in calls:
                    us = slowest.item() * 1e6 / CASES[operation].messages
                    emit({"cell": cell, "us": us, "before_ns": before, "after_ns": after})
                calls[cell] = max(3, min(300, int(LONGEST_BATCH / slowest.item())))
        goes_on[0] = float(time.monotonic() < end)
        dist.broadcast(goes_on, 0)
    dist.destroy_process_group()


def batch(call: Any, calls: int, group: dist.ProcessGroup) -> float:
    dist.barrier(group=group)
    began = time.perf_counter()
    for turn in range(calls):
        call(turn, False)
    return (time.perf_counter() - began) / calls


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "al,gloo")
    report.add_operations(parser, "all_reduce,reduce_scatter,broadcast,send_recv", "4K,16K,64K,256K,1M,4M")
    parser.add_argument("--cores", type=report.numbers, default=None, help="of the two ranks: 0,8")
    parser.add_argument("--seconds", type=float, default=60, help="default 60")
    arguments = parser.parse_args()
    cores = arguments.cores or sorted(os.sched_getaffinity(0))[:2]
    if len(cores) != 2:
        parser.error("two cores are needed: --cores 0,8")
    config = {key: getattr(arguments, key) for key in ("contenders", "operations", "sizes", "seconds")}
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file, console().status("two ranks"):
        file.truncate(parse_bytes("64K"))
        found = run_ranks(
            "benchmarks.distance:work",
            2,
            config | {"cores": cores, "file": file.name},
            deadline=arguments.seconds + 120,
        )
    nearest = min(row["before_ns"] for row in found)

    def distance_of(row: Row) -> str:
        """Nothing where the cores were moved meanwhile."""
        before, after = row["before_ns"] > FAR * nearest, row["after_ns"] > FAR * nearest
        return "" if before != after else "far" if before else "near"

    measured, lines = [report.where()], []
    for cell in dict.fromkeys(tuple(row["cell"]) for row in found):
        contender, operation, size = cell
        line = []
        for distance in ("near", "far"):
            us = [row["us"] for row in found if tuple(row["cell"]) == cell and distance_of(row) == distance]
            line += [f"{statistics.median(us):.1f}" if us else "-", str(len(us))]
            if us:
                row = {"benchmark": "distance", "contender": contender, "ranks": 2, "device": "cpu"}
                row |= {"operation": operation, "bytes": size, "distance": distance}
                measured.append(row | {"median_us": statistics.median(us), "batches": len(us)})
        lines.append((operation, size, contender, *line))
    print_table(
        f"2 ranks on cores {cores}; a hand-over takes {nearest:.0f} ns at least",
        ["operation", "bytes", "contender", "near, us", "near batches", "far, us", "far batches"],
        sorted(lines),
        right=["bytes", "near, us", "near batches", "far, us", "far batches"],
    )
    rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
