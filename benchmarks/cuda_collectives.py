"""Times torch.distributed's operations on CUDA tensors: altorch beside torch's own NCCL backend, in the same processes.

    torchrun --nproc-per-node 2 -m benchmarks.cuda_collectives --json results.jsonl

Per size: `eager` is device time a call, by events around ten synchronous calls; `host` the time that the host needs to
issue one; `async host` the same with async_op=True and wait(). The backends take turns; figures are medians of rounds.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist

from benchmarks.cuda_common import about, event_pair, finish, headline, make_group, median, skipped, start

KIB = 1024
SIZES = [8, KIB, 16 * KIB, 64 * KIB, KIB * KIB, 4 * KIB * KIB, 64 * KIB * KIB, 256 * KIB * KIB]
CALLS = 10


def operations(size: int, world: int, dtype: torch.dtype, here: torch.device):
    count = max(world, size // dtype.itemsize // world * world)
    whole = torch.zeros(count, dtype=dtype, device=here)
    part = torch.zeros(count // world, dtype=dtype, device=here)
    other = torch.zeros(count, dtype=dtype, device=here)
    return {
        "all_reduce": lambda group, lazy: dist.all_reduce(whole, group=group, async_op=lazy),
        "all_gather": lambda group, lazy: dist.all_gather_into_tensor(
            whole, part, group=group, async_op=lazy
        ),
        "reduce_scatter": lambda group, lazy: dist.reduce_scatter_tensor(
            part, whole, group=group, async_op=lazy
        ),
        "all_to_all": lambda group, lazy: dist.all_to_all_single(other, whole, group=group, async_op=lazy),
    }


def bus_factor(operation: str, world: int) -> float:
    return (2 if operation == "all_reduce" else 1) * (world - 1) / world


def one_round(call, group, lazy: bool) -> tuple[float, float]:
    """Seconds a call on the device and on the host."""
    begin, end = event_pair()
    torch.cuda.synchronize()
    dist.barrier(group)
    begin.record()
    started = time.perf_counter()
    for _ in range(CALLS):
        work = call(group, lazy)
        if work is not None:
            work.wait()
    host = (time.perf_counter() - started) / CALLS
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / CALLS, host


def graph_round(call, group, cache: dict) -> float:
    if "graph" not in cache:
        cache["graph"] = graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                call(group, False)
    begin, end = event_pair()
    torch.cuda.synchronize()
    dist.barrier(group)
    begin.record()
    cache["graph"].replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / CALLS


def line_of(row: dict) -> str:
    cells = []
    for key in ("eager", "host", "lazy", "graph"):
        ours, theirs = row[f"al_{key}_us"], row[f"nccl_{key}_us"]
        cells.append(f"{ours:8.1f} {theirs:8.1f} {theirs / max(ours, 1e-9):5.2f}x")
    bandwidth = f"{row['al_busbw_GBps']:6.1f} {row['nccl_busbw_GBps']:6.1f}"
    return f"{row['operation']:15} {row['bytes']:>10} | " + " | ".join(cells) + " | " + bandwidth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="append the rows to this file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-graphs", action="store_true")
    arguments = parser.parse_args()
    here = start()
    if skipped(["nccl"]):
        return
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = {"al": dist.group.WORLD, "nccl": make_group("nccl", here)}
    common = about("cuda_collectives") | {"dtype": "bfloat16"}
    rows = []
    if rank == 0:
        print(headline(common))
        heads = [f"{head:^25}" for head in ("eager us: al nccl", "host us", "async host us", "graph us")]
        print(f"{'operation':15} {'bytes':>10} |", " | ".join(heads), "| bus bandwidth GB/s: al nccl")
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for size in SIZES:
            call = operations(size, world, torch.bfloat16, here)[operation]
            measured = {name: {"eager": [], "host": [], "lazy": [], "graph": []} for name in groups}
            caches: dict[str, dict] = {name: {} for name in groups}
            for turn in range(arguments.rounds + 2):
                for name, group in groups.items():
                    eager, host = one_round(call, group, False)
                    lazy = one_round(call, group, True)[1]
                    replay = 0.0 if arguments.no_graphs else graph_round(call, group, caches[name])
                    if turn >= 2:
                        for key, value in zip(measured[name], (eager, host, lazy, replay), strict=True):
                            measured[name][key].append(value)
            row = common | {"operation": operation, "bytes": size}
            for name, figures in measured.items():
                for key, values in figures.items():
                    row[f"{name}_{key}_us"] = round(median(values) * 1e6, 2)
                on_the_bus = size * bus_factor(operation, world)
                row[f"{name}_busbw_GBps"] = round(on_the_bus / (row[f"{name}_eager_us"] * 1e3), 1)
            rows.append(row)
            if rank == 0:
                print(line_of(row), flush=True)
    del call, caches  # NCCL ends a communicator only after the graphs that hold it
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
