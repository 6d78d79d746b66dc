"""Times the routes of CUDA tensors beside torch's own backends, in the same processes, and the links they go over.

    torchrun --nproc-per-node 2 -m benchmarks.cuda_routes --json results.jsonl
    NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 -m benchmarks.cuda_routes --contenders nccl --suffix _no_p2p ...

A row per operation, size and contender: device time a call by events around several synchronous calls, the host's time
to issue one, the bandwidth on the bus; medians of rounds, of the slowest rank. The floor: what the host links give when
every GPU copies both ways at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.cpu_collectives import percentile
from benchmarks.cuda_collectives import bus_factor, operations

KIB, MIB = 1024, 1024 * 1024
SIZES = [8, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
CONTENDERS = ["al", "al:host_staged", "al:host_relay", "nccl", "gloo"]
OF_GLOO = ("all_reduce", "all_gather")  # what it has for CUDA tensors


def make_group(contender: str, here: torch.device):
    """A group of all ranks; the route is settled when its first CUDA tensor comes."""
    backend, _, route = contender.partition(":")
    before = os.environ.get("ALTORCH_ROUTE")
    if route:
        os.environ["ALTORCH_ROUTE"] = f"cuda={route}"
    try:
        group = dist.new_group(backend=backend)
        dist.all_reduce(torch.zeros(1, device=here), group=group)
        torch.cuda.synchronize()
    finally:
        if before is None:
            os.environ.pop("ALTORCH_ROUTE", None)
        else:
            os.environ["ALTORCH_ROUTE"] = before
    return group


def slowest(seconds: float) -> float:
    figure = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(figure, dist.ReduceOp.MAX)
    return figure.item()


def one_round(call, group, calls: int) -> tuple[float, float]:
    """Seconds a call: on the device, and on the host to issue it."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    dist.barrier()
    begin.record()
    started = time.perf_counter()
    for _ in range(calls):
        call(group, False)
    host = (time.perf_counter() - started) / calls
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / calls, host


def link_bandwidth(here: torch.device, size: int = 64 * MIB) -> float:
    """Bytes a second each way, of the slowest GPU, while all copy to and from pinned memory."""
    down_host, up_host = (torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2))
    down, up = (torch.empty(size, dtype=torch.uint8, device=here) for _ in range(2))
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        dist.barrier()
        started = time.perf_counter()
        for _ in range(4):
            with torch.cuda.stream(streams[0]):
                down_host.copy_(down, non_blocking=True)
            with torch.cuda.stream(streams[1]):
                up.copy_(up_host, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return 4 * size / slowest(percentile(times, 0.5))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="append the rows to this file")
    parser.add_argument("--contenders", nargs="*", default=CONTENDERS)
    parser.add_argument(
        "--operations", nargs="*", default=["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    )
    parser.add_argument("--suffix", default="", help="added to the contenders' names in the rows")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=0.15, help="for each contender and size")
    arguments = parser.parse_args()
    index = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
    here = torch.device("cuda", index)
    torch.cuda.set_device(here)
    dist.init_process_group("al")
    rank, world = dist.get_rank(), dist.get_world_size()
    contenders = [c for c in arguments.contenders if c != "nccl" or world <= torch.cuda.device_count()]
    groups = {contender: make_group(contender, here) for contender in contenders}
    link = link_bandwidth(here)
    about = {
        "benchmark": "cuda_routes", "ranks": world, "gpus": torch.cuda.device_count(), "dtype": arguments.dtype,
        "machine": torch.cuda.get_device_name(), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())), "link_GBps": round(link / 1e9, 1),
        "commit": os.environ.get("ALTORCH_TEST_COMMIT")
        or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip(),
    }  # fmt: skip
    rows = []
    if rank == 0:
        print(
            f"{world} ranks on {about['gpus']} x {about['machine']}; host links {link / 1e9:.1f} GB/s each way"
        )
        print(
            f"{'operation':15} {'bytes':>10} |",
            " | ".join(f"{c + arguments.suffix:>20}" for c in contenders),
            "[us]",
        )
    for operation in arguments.operations:
        for size in SIZES:
            call = operations(size, world, getattr(torch, arguments.dtype), here)[operation]
            cells = []
            for contender, group in groups.items():
                if contender == "gloo" and (operation not in OF_GLOO or size > 64 * MIB):
                    cells.append(f"{'-':>20}")
                    continue
                took = slowest(one_round(call, group, 2)[0])
                calls = max(2, min(50, int(arguments.seconds / 5 / max(took, 1e-6))))
                rounds = [one_round(call, group, calls) for _ in range(5)]
                device = slowest(percentile([r[0] for r in rounds], 0.5))
                host = slowest(percentile([r[1] for r in rounds], 0.5))
                rows.append(about | {
                    "operation": operation, "bytes": size, "contender": contender + arguments.suffix,
                    "device_us": round(device * 1e6, 2), "host_us": round(host * 1e6, 2),
                    "busbw_GBps": round(size * bus_factor(operation, world) / device / 1e9, 2),
                })  # fmt: skip
                cells.append(f"{device * 1e6:>20.1f}")
            if rank == 0:
                print(f"{operation:15} {size:>10} |", " | ".join(cells), flush=True)
    if rank == 0 and arguments.json:
        with Path(arguments.json).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
