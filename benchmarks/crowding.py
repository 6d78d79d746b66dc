# SPDX-License-Identifier: BSD-3-Clause
"""Measures where the time of a small all_reduce goes when ranks outnumber cores (docs/waiting.md).

Per call and rank: time, processor time, and how often the kernel took the core away (a switch that the rank asked for
by sleeping counts as voluntary). The batches begin in step, after random sleeps, or after random computation: then the
scheduler owes some ranks more time than others. `fake` is torch's backend that communicates nothing: the floor.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from altorch.bench import rows
from altorch.bench.contenders import provide
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks

LONGEST_SKEW = 0.004  # seconds


def compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


SKEWS: dict[str, Callable[[float], None]] = {
    "in step": lambda _: None,
    "after sleeps": time.sleep,
    "after computing": compute,
}


def work(config: Row, emit: Emit) -> None:
    backend = config["contender"]
    provide(backend)
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if backend == "fake":  # which takes rank and size from no environment
        dist.init_process_group(backend, store=dist.HashStore(), rank=rank, world_size=size)
    else:
        dist.init_process_group(backend)
    values = torch.ones(2)  # 8 bytes
    chance = random.Random(rank)
    for _ in range(100):
        dist.all_reduce(values)
    for skew, wait in SKEWS.items():
        took = []  # us a call, by batch
        used = dict.fromkeys(("user_us", "system_us", "voluntary", "involuntary"), 0.0)
        for _ in range(config["batches"]):
            dist.all_reduce(values)
            wait(chance.random() * LONGEST_SKEW)
            dist.all_reduce(values)
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            for _ in range(config["calls"]):
                dist.all_reduce(values)
            took.append((time.perf_counter() - began) / config["calls"] * 1e6)
            after = resource.getrusage(resource.RUSAGE_SELF)
            used["user_us"] += (after.ru_utime - before.ru_utime) * 1e6
            used["system_us"] += (after.ru_stime - before.ru_stime) * 1e6
            used["voluntary"] += after.ru_nvcsw - before.ru_nvcsw
            used["involuntary"] += after.ru_nivcsw - before.ru_nivcsw
        calls = config["batches"] * config["calls"]
        per_call = {name: value / calls for name, value in used.items()}
        emit(
            {
                "skew": skew,
                "median_us": statistics.median(took),
                "p90_us": sorted(took)[-len(took) // 10],
            }
            | per_call
        )
    dist.destroy_process_group()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "fake,al,gloo")
    report.add_ranks(parser, "2,4,8,16")
    parser.add_argument("--batches", type=int, default=60, help="default 60")
    parser.add_argument("--calls", type=int, default=50, help="in a batch, default 50")
    arguments = parser.parse_args()

    measured: list[Row] = [report.where()]
    lines = []
    for ranks in arguments.ranks:
        for contender in arguments.contenders:
            config = {"contender": contender, "batches": arguments.batches, "calls": arguments.calls}
            with console().status(f"{contender}, {ranks} ranks"):
                found = run_ranks("benchmarks.crowding:work", ranks, config)
            for skew in SKEWS:
                of_ranks = [row for row in found if row["skew"] == skew]
                mean = {
                    name: statistics.mean(row[name] for row in of_ranks)
                    for name in of_ranks[0]
                    if name != "skew"
                }
                row = {"benchmark": "crowding", "contender": contender, "ranks": ranks, "device": "cpu"}
                measured.append(row | {"skew": skew, "bytes": 8} | mean)
                figures = [f"{mean[name]:.1f}" for name in ("median_us", "p90_us", "user_us", "system_us")]
                switches = [f"{mean[name]:.2f}" for name in ("voluntary", "involuntary")]
                lines.append((contender, ranks, skew, *figures, *switches))
    right = ["ranks", "us", "p90", "user us", "system us", "voluntary", "involuntary"]
    print_table(
        "all_reduce of 8 bytes, per call and rank",
        ["contender", "ranks", "batches", *right[1:]],
        lines,
        right=right,
    )
    rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
