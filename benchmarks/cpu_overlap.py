# SPDX-License-Identifier: BSD-3-Clause
"""How much of an asynchronous all_reduce of CPU tensors hides behind matrix products.

Starts its ranks itself, one compute thread each. Per contender: the products alone (so many that they take about 1.3
times the communication), the communication alone, and both: `work = all_reduce(async_op=True)`, the products,
`work.wait()`. Hidden is 1 - (both - products) / communication. The contenders take turns; figures are medians of
rounds, of the slowest rank. What carries the tensors needs a core of its own to hide: with as many ranks as cores it
takes its time from the products.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
import torch.distributed as dist

from altorch.bench import clocks, contenders, process_group, rows
from altorch.bench.figures import slowest_median
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table, short_number
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks

KINDS = ("products", "communication", "both")
LONGER = 1.3  # the products than the communication
WIDTH = 256  # of the matrices: a product takes about a millisecond
WARM_UP = 3


class Contender:
    """What is timed over one group: the products alone, the communication alone, both."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.group = contenders.make(name, torch.device("cpu"), ())
        self.tensor = torch.zeros(size // 4)
        self.left, self.right = torch.randn(2, WIDTH, WIDTH)
        self.result = torch.empty(WIDTH, WIDTH)
        self.number = 10
        for _ in range(WARM_UP):
            self.communicate()
            self.products()
        alone = slowest_median([self.time(self.communicate) for _ in range(5)])
        one = slowest_median([self.time(self.products) / self.number for _ in range(5)])
        self.number = max(1, math.ceil(LONGER * alone / one))
        self.issues = dict(zip(KINDS, (self.products, self.communicate, self.both), strict=True))
        self.rounds: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def products(self) -> None:
        for _ in range(self.number):
            torch.mm(self.left, self.right, out=self.result)

    def communicate(self) -> None:
        dist.all_reduce(self.tensor, group=self.group, async_op=True).wait()

    def both(self) -> None:
        work = dist.all_reduce(self.tensor, group=self.group, async_op=True)
        self.products()
        work.wait()

    def time(self, issue: Callable[[], None]) -> float:
        dist.barrier(group=self.group)
        return clocks.on_host(issue)

    def one_round(self) -> None:
        for kind, issue in self.issues.items():
            self.rounds[kind].append(self.time(issue))

    def result_row(self) -> Row:
        seconds = {kind: slowest_median(took) for kind, took in self.rounds.items()}
        hidden = 1 - (seconds["both"] - seconds["products"]) / seconds["communication"]
        return {
            "products": self.number,
            "hidden_percent": round(100 * hidden, 1),
            **{f"{kind}_us": round(value * 1e6, 1) for kind, value in seconds.items()},
        }


def work(config: Row, emit: Emit) -> None:
    shape = argparse.Namespace(**config)
    process_group.join("cpu", control="gloo")  # altorch may be left out
    for size in shape.sizes:
        taking = [Contender(name, size) for name in shape.contenders]
        for _ in range(shape.rounds):
            for contender in taking:
                contender.one_round()
        about = {"benchmark": "cpu_overlap", "ranks": dist.get_world_size(), "device": "cpu"}
        about |= {"operation": "all_reduce", "dtype": "float32", "bytes": size}
        for contender in taking:
            row = about | {"contender": contender.name} | contender.result_row()
            if dist.get_rank() == 0:
                emit(row)
    process_group.leave()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "al,gloo")
    report.add_ranks(parser, "2")
    report.add_sizes(parser, "1M,16M")
    parser.add_argument("--rounds", type=int, default=20, help="default %(default)s")
    arguments = parser.parse_args()
    run = report.where()
    rows.append(arguments.json, [run])
    config = {name: getattr(arguments, name) for name in ("contenders", "sizes", "rounds")}
    for ranks in arguments.ranks:
        with console().status(f"{ranks} ranks"):
            measured = run_ranks("benchmarks.cpu_overlap:work", ranks, config)
        columns = ["bytes", "contender", "products", *(f"{kind} [us]" for kind in KINDS), "hidden [%]"]
        lines = [
            [row["bytes"], row["contender"], row["products"]]
            + [short_number(row[f"{kind}_us"]) for kind in KINDS]
            + [f"{row['hidden_percent']:.1f}"]
            for row in measured
        ]
        print_table(f"all_reduce of float32, {ranks} ranks", columns, lines, right=columns[2:])
        rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
