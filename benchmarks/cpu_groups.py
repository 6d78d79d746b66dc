# SPDX-License-Identifier: BSD-3-Clause
"""Whether collectives gain from running at the same time.

A group carries its collectives one after another. Eight all_reduces of CPU tensors are issued in one group, and in
turns in several groups, which carry them at the same time; then `wait()` for each. `sync` calls them one by one.
Starts its ranks itself; figures are medians of rounds, of the slowest rank, for all eight calls.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
import torch.distributed as dist

from altorch.bench import clocks, contenders, process_group, rows
from altorch.bench.figures import slowest_median
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table, short_number
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks

CALLS = 8


def issue(tensors: list[torch.Tensor], groups: list[dist.ProcessGroup]) -> None:
    works = [
        dist.all_reduce(tensor, group=groups[i % len(groups)], async_op=True)
        for i, tensor in enumerate(tensors)
    ]
    for work in works:
        work.wait()


def issue_in_turn(tensors: list[torch.Tensor], group: dist.ProcessGroup) -> None:
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)


def work(config: Row, emit: Emit) -> None:
    shape = argparse.Namespace(**config)
    device = process_group.join("cpu", control="gloo")  # altorch may be left out
    for name in shape.contenders:
        groups = [contenders.make(name, device, ()) for _ in range(max(shape.groups))]
        for size in shape.sizes:
            tensors = [torch.zeros(size // 4) for _ in range(CALLS)]
            ways = {"sync": partial(issue_in_turn, tensors, groups[0])}
            ways |= {str(number): partial(issue, tensors, groups[:number]) for number in shape.groups}
            took: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(shape.rounds):
                for way, body in ways.items():
                    dist.barrier(group=groups[0])
                    took[way].append(clocks.on_host(body))
            about = {"benchmark": "cpu_groups", "ranks": dist.get_world_size(), "device": "cpu"}
            about |= {"operation": "all_reduce", "dtype": "float32", "bytes": size, "calls": CALLS}
            for way, seconds in took.items():
                row = about | {
                    "contender": name,
                    "groups": way,
                    "median_us": round(slowest_median(seconds) * 1e6, 1),
                }
                if dist.get_rank() == 0:
                    emit(row)
    process_group.leave()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "al")
    report.add_ranks(parser, "2,4")
    report.add_sizes(parser, "4K,64K,1M,4M")
    parser.add_argument("--groups", type=report.numbers, default=[1, 2, 4], help="how many, default 1,2,4")
    parser.add_argument("--rounds", type=int, default=100, help="default %(default)s")
    arguments = parser.parse_args()
    run = report.where()
    rows.append(arguments.json, [run])
    config = {name: getattr(arguments, name) for name in ("contenders", "sizes", "groups", "rounds")}
    for ranks in arguments.ranks:
        with console().status(f"{ranks} ranks"):
            measured = run_ranks("benchmarks.cpu_groups:work", ranks, config)
        cells: dict[tuple[int, str], list[str]] = {}
        for row in measured:
            cells.setdefault((row["bytes"], row["contender"]), []).append(short_number(row["median_us"]))
        numbers = (f"{number} group{'s' * (number > 1)}" for number in arguments.groups)
        columns = ["bytes", "contender", "sync", *numbers]
        lines = [[*cell, *medians] for cell, medians in cells.items()]
        print_table(f"{CALLS} all_reduces of float32, {ranks} ranks, us", columns, lines, right=columns[2:])
        rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
