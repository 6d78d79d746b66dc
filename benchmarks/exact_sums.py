# SPDX-License-Identifier: BSD-3-Clause
"""What exact sums cost: all_reduce of a group with deterministic="exact" beside an ordinary group, in turns.

    torchrun --nproc-per-node 4 -m benchmarks.exact_sums --json results.jsonl
    torchrun --nproc-per-node 2 -m benchmarks.exact_sums --device cuda --json results.jsonl

Normal random numbers, where the fast part of the arithmetic is exact or proved to be right; `--data wide` spreads
exponents over 2^-40 to 2^40, where it often is not.
"""

from __future__ import annotations

import statistics
from functools import partial

import torch
import torch.distributed as dist

import altorch
from altorch.bench import clocks, process_group, rows
from altorch.bench.figures import slowest
from altorch.bench.rows import Row
from altorch.cli._output import Progress
from benchmarks import report

DTYPES = "bfloat16,float16,float32,float64"
SIZES = "1K,64K,1M,16M"
TURNS = 9


def data(dtype: torch.dtype, elements: int, spread: bool, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(dist.get_rank())
    values = torch.randn(elements, generator=generator, dtype=torch.float64)
    if spread:
        values *= torch.pow(2.0, torch.randint(-40, 41, (elements,), generator=generator).double())
    return values.to(dtype).to(device)


def compare(x: torch.Tensor, op: str, groups: list[dist.ProcessGroup | None]) -> tuple[float, float]:
    """Microseconds of an all_reduce in each of two groups, on the slowest rank: medians of turns, without the copy."""
    y = x.clone()
    calls = max(2, min(200, (32 << 20) // max(x.nbytes, 1)))

    def reduce_in(group: dist.ProcessGroup | None) -> None:
        y.copy_(x)
        dist.all_reduce(y, getattr(dist.ReduceOp, op), group=group)

    times: list[list[float]] = [[] for _ in groups]
    for group in groups:
        reduce_in(group)
    for _ in range(TURNS):
        for group, found in zip(groups, times, strict=True):
            found.append(clocks.per_call(partial(reduce_in, group), calls, x.device))
    copied = statistics.median(clocks.per_call(partial(y.copy_, x), calls, x.device) for _ in range(3))
    plain, exact = (slowest(statistics.median(found) - copied) * 1e6 for found in times)
    return plain, exact


def main() -> None:
    parser = report.parser_of(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtypes", type=report.names, default=report.names(DTYPES), metavar="LIST")
    parser.add_argument("--sizes", type=report.byte_sizes, default=report.byte_sizes(SIZES), metavar="LIST")
    parser.add_argument("--data", choices=("normal", "wide"), default="normal")
    parser.add_argument("--ops", type=report.names, default=["SUM", "AVG"], metavar="LIST")
    arguments = parser.parse_args()
    device = process_group.join(arguments.device)
    groups = [dist.new_group(), dist.new_group(pg_options=altorch.Options(deterministic="exact"))]
    first, ranks = dist.get_rank() == 0, dist.get_world_size()
    if first:
        rows.append(arguments.json, [report.where(arguments.device)])
    jobs = [(name, size, op) for name in arguments.dtypes for size in arguments.sizes for op in arguments.ops]
    measured: list[Row] = []
    with Progress(len(jobs), quiet=not first) as progress:
        for name, size, op in jobs:
            progress.at(f"{name} {size} {op}")
            dtype = getattr(torch, name)
            x = data(dtype, size // dtype.itemsize, arguments.data == "wide", device)
            plain, exact = compare(x, op, groups)
            row: Row = {"benchmark": "exact_sums", "device": arguments.device, "ranks": ranks, "dtype": name}
            row |= {"bytes": size, "op": op, "data": arguments.data, "plain_us": plain, "exact_us": exact}
            row["ratio"] = exact / plain
            measured.append(row)
            if first:
                rows.append(arguments.json, [row])
    if first:
        print(
            f"{ranks} ranks, {arguments.device}, {arguments.data} numbers; microseconds of a call, without the copy"
        )
        print(f"{'type':>9} {'bytes':>10} {'op':>4} {'plain':>10} {'exact':>10} {'ratio':>6}")
        for row in measured:
            print(
                f"{row['dtype']:>9} {row['bytes']:>10} {row['op']:>4} {row['plain_us']:>10.1f} {row['exact_us']:>10.1f}"
                f" {row['ratio']:>6.2f}"
            )
    process_group.leave()


if __name__ == "__main__":
    main()
