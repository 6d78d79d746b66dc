# SPDX-License-Identifier: BSD-3-Clause
"""What a call costs more where altorch has no extension for the installed torch: groups made in Python, those of the
extension, and Gloo.

Starts its ranks itself. The contenders take turns; figures are medians of rounds, of the slowest rank.
"""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist

from altorch import _version_check
from altorch.bench import clocks, process_group, rows
from altorch.bench.figures import slowest_median
from altorch.bench.rows import Row
from altorch.cli._output import human_bytes, print_table, short_number
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks

CONTENDERS = ("python", "extension", "gloo")
SIZES = (8, 1 << 10, 64 << 10, 1 << 20)


def several(tensor: torch.Tensor, group: dist.ProcessGroup, calls: int) -> None:
    for _ in range(calls):
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)


def work(config: Row, emit: Emit) -> None:
    torch.set_num_threads(1)
    process_group.join("cpu", control="gloo")
    groups = {}
    found = _version_check.needs_fallback
    for name in CONTENDERS:
        _version_check.needs_fallback = lambda name=name: name == "python"
        groups[name] = dist.new_group(backend="gloo" if name == "gloo" else "al")
    _version_check.needs_fallback = found
    for size in SIZES:
        tensor = torch.ones(size // 4)
        took: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        calls = config["calls"] if size < 1 << 20 else config["calls"] // 10
        for turn in range(config["rounds"] + 1):  # the first one warms up
            for name, group in groups.items():
                dist.barrier(group=group)

                seconds = clocks.on_host(functools.partial(several, tensor, group, calls)) / calls
                if turn:
                    took[name].append(seconds)
        row = {
            "benchmark": "fallback",
            "operation": "all_reduce",
            "ranks": dist.get_world_size(),
            "bytes": size,
        }
        figures = {f"{name}_us": round(slowest_median(times) * 1e6, 1) for name, times in took.items()}
        if dist.get_rank() == 0:
            emit(row | figures)
    process_group.leave()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_ranks(parser, "2")
    parser.add_argument("--rounds", type=int, default=30, help="default %(default)s")
    parser.add_argument("--calls", type=int, default=200, help="in a round; default %(default)s")
    arguments = parser.parse_args()
    rows.append(arguments.json, [report.where()])
    for ranks in arguments.ranks:
        config = {"rounds": arguments.rounds, "calls": arguments.calls}
        measured = run_ranks("benchmarks.fallback:work", ranks, config)
        columns = ["size", *(f"{name} [us]" for name in CONTENDERS), "gloo / python"]
        lines = [
            [human_bytes(row["bytes"])]
            + [short_number(row[f"{name}_us"]) for name in CONTENDERS]
            + [f"{row['gloo_us'] / row['python_us']:.1f}"]
            for row in measured
        ]
        print_table(f"all_reduce, {ranks} ranks", columns, lines, right=columns[1:])
        rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
