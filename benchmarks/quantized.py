# SPDX-License-Identifier: BSD-3-Clause
"""altorch.ops.all_reduce_quantized beside all_reduce of the same group, in turns.

    torchrun --nproc-per-node 2 -m benchmarks.quantized --device cuda --json results.jsonl

Prints microseconds of a call, their ratio, the floor (the bytes that one rank sends at the speed of a bare exchange)
and the largest error, as a share of the largest sum. `graph`: replayed CUDA graphs, for which the host's time does not
count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

import altorch.ops
from altorch.bench import clocks, process_group, rows
from altorch.bench.figures import slowest
from altorch.bench.rows import Row
from altorch.cli._output import Progress
from benchmarks import report

SIZES = "64K,1M,4M,16M,64M"
TURNS = 9
Call = Callable[[], object]


def in_turns(contenders: dict[str, Call], calls: int, device: torch.device) -> dict[str, float]:
    """Microseconds by contender: medians of turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        call()
    for _ in range(TURNS):
        for name, call in contenders.items():
            times[name].append(slowest(clocks.per_call(call, calls, device)))
    return {name: statistics.median(found) * 1e6 for name, found in times.items()}


def calls_for(size: int) -> int:
    """Of a turn: enough that the first call, which finds the GPU idle, does not count."""
    return max(20, min(200, (256 << 20) // max(1, size)))


def exchange_us(elements: int, device: torch.device) -> float:
    """A bare all_gather in which each rank sends the bytes that so many elements take in 8 bits."""
    ranks = dist.get_world_size()
    sent = torch.zeros(max(1, elements * 8 // 7 * 2 // ranks), dtype=torch.uint8, device=device)
    there = sent.new_empty(ranks * sent.numel())
    calls = calls_for(2 * elements)
    return in_turns({"exchange": partial(dist.all_gather_into_tensor, there, sent)}, calls, device)[
        "exchange"
    ]


def largest_error(x: torch.Tensor, bits: int | str) -> float:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    exact = torch.stack([part.double() for part in parts]).sum(0)
    got = altorch.ops.all_reduce_quantized(x, bits).double()
    return slowest(float((got - exact).abs().max() / exact.abs().max()))


CALLS_OF_A_GRAPH = 10


def in_graph(call: Call) -> Call:
    """Replays a CUDA graph of CALLS_OF_A_GRAPH calls."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS_OF_A_GRAPH):
            call()
    return graph.replay


def measure(dtype: torch.dtype, size: int, device: torch.device, mode: str) -> Row:
    generator = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(size // dtype.itemsize, generator=generator).to(dtype).to(device)
    y = x.clone()
    calls = calls_for(size)
    contenders: dict[str, Call] = {"plain": partial(dist.all_reduce, y, dist.ReduceOp.AVG)}  # stays finite
    contenders |= {f"bits_{bits}": partial(altorch.ops.all_reduce_quantized, x, bits) for bits in (8, "fp8")}
    if mode == "graph":
        contenders = {name: in_graph(call) for name, call in contenders.items()}
        times = in_turns(contenders, max(3, calls // CALLS_OF_A_GRAPH), device)
        times = {name: took / CALLS_OF_A_GRAPH for name, took in times.items()}
    else:
        times = in_turns(contenders, calls, device)
    row: Row = {"benchmark": "quantized", "device": device.type, "ranks": dist.get_world_size(), "mode": mode}
    row |= {"dtype": str(dtype)[6:], "bytes": size, "plain_us": times["plain"]}
    row |= {f"{name}_us": times[name] for name in times if name != "plain"}
    row |= {f"{name}_ratio": times["plain"] / times[name] for name in times if name != "plain"}
    row |= {"floor_us": exchange_us(x.numel(), device)}
    row |= {f"bits_{bits}_error": largest_error(x, bits) for bits in (8, "fp8")}
    return row


def main() -> None:
    parser = report.parser_of(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--dtypes", type=report.names, default=report.names("bfloat16,float32"), metavar="LIST"
    )
    parser.add_argument("--sizes", type=report.byte_sizes, default=report.byte_sizes(SIZES), metavar="LIST")
    arguments = parser.parse_args()
    device = process_group.join(arguments.device)
    first = dist.get_rank() == 0
    if first:
        rows.append(arguments.json, [report.where(arguments.device)])
    modes = ("sync", "graph") if device.type == "cuda" else ("sync",)
    jobs = [
        (getattr(torch, name), size, mode)
        for name in arguments.dtypes
        for size in arguments.sizes
        for mode in modes
    ]
    measured: list[Row] = []
    with Progress(len(jobs), quiet=not first) as progress:
        for dtype, size, mode in jobs:
            progress.at(f"{dtype} {size} {mode}")
            measured.append(measure(dtype, size, device, mode))
            if first:
                rows.append(arguments.json, measured[-1:])
    if first:
        print(f"{dist.get_world_size()} ranks, {arguments.device}; microseconds of a call")
        print(
            f"{'type':>9} {'bytes':>10} {'mode':>6} {'plain':>9} {'int8':>9} {'fp8':>9} {'ratio':>6} {'fp8':>6} "
            f"{'floor':>8} {'error':>9} {'fp8':>9}"
        )
        for row in measured:
            print(
                f"{row['dtype']:>9} {row['bytes']:>10} {row['mode']:>6} {row['plain_us']:>9.1f}"
                f" {row['bits_8_us']:>9.1f} {row['bits_fp8_us']:>9.1f}"
                f" {row['bits_8_ratio']:>6.2f} {row['bits_fp8_ratio']:>6.2f} {row['floor_us']:>8.1f}"
                f" {row['bits_8_error']:>9.1e} {row['bits_fp8_error']:>9.1e}"
            )
    process_group.leave()


if __name__ == "__main__":
    main()
