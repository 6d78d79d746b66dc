"""Times the routes of CUDA tensors beside torch's own backends, in the same processes, and the links they go over.

    torchrun --nproc-per-node 2 -m benchmarks.cuda_routes --json results.jsonl
    NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 -m benchmarks.cuda_routes --contenders nccl --suffix _no_p2p ...

A row per operation, size and contender. Figures are of one synchronous call, medians of rounds, of the slowest rank:
`eager` is the time between events around calls that the host issues one after another, so the host's own where calls
are small; `device` is the same while a kernel before the calls spins until all of them are issued, so the device alone;
`host` is what the host needs to issue one. The bandwidth on the bus follows from `device`. Gloo lets the host wait in
every call, so both are `eager` there. The floor: what the host links give when every GPU copies both ways at once.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.distributed as dist

from benchmarks import cuda_common as common
from benchmarks.cuda_collectives import bus_factor, operations
from benchmarks.cuda_common import median, slowest

KIB, MIB = 1024, 1024 * 1024
SIZES = [8, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
ROUNDS = 5
MOST_CALLS = 50
WIDTH = 20  # of a column
CONTENDERS = ["al", "al:host_staged", "al:host_relay", "nccl", "gloo"]
OF_GLOO = ("all_reduce", "all_gather")  # what it has for CUDA tensors


def one_round(call, group, calls: int) -> tuple[float, float]:
    """Seconds a call: on the device, and on the host to issue it."""
    begin, end = common.event_pair()
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


def device_rounds(call, group, calls: int, host: float) -> tuple[float, bool]:
    """Seconds a call on the device alone, and whether the spin lasted until the host had issued all calls."""
    calls = max(1, min(calls, int(common.LONGEST_SPIN / 1.5 / host) - 1))

    def issue() -> None:
        for _ in range(calls):
            call(group, False)

    spin = common.spin_for((calls + 1) * host)
    rounds = [common.behind_spin(issue, lambda: call(group, False), spin) for _ in range(ROUNDS)]
    covered = slowest(statistics.median(not covered for _, covered in rounds)) == 0
    return median([seconds for seconds, _ in rounds]) / calls, covered


def measure(call, group, share: float) -> dict:
    """A row's times in seconds; rounds of each kind together take about `share` seconds."""
    one_round(call, group, 2)  # may connect the ranks
    took = slowest(one_round(call, group, 2)[0])
    calls = max(2, min(MOST_CALLS, int(share / ROUNDS / max(took, 1e-6))))
    rounds = [one_round(call, group, calls) for _ in range(ROUNDS)]
    eager, host = median([r[0] for r in rounds]), median([r[1] for r in rounds])
    times = {"device": eager, "eager": eager, "host": host}
    if dist.get_backend(group) == "gloo":  # the host would wait in the first call until the spin has ended
        return times | {"at_most": True}
    device, covered = device_rounds(call, group, calls, host)
    return times | {"device": device, "at_most": not covered and device < host}


def cell_of(times: dict) -> str:
    eager, device = (f"{times[kind] * 1e6:.1f}" for kind in ("eager", "device"))
    if times["device"] == times["eager"]:  # measured once
        return eager
    return f"{eager} / {'<' if times['at_most'] else ''}{device}"


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
    return 4 * size / median(times)


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
    here = common.start()
    rank, world = dist.get_rank(), dist.get_world_size()
    if common.skipped(arguments.contenders):
        return
    contenders = common.usable(arguments.contenders)
    groups = {contender: common.make_group(contender, here) for contender in contenders}
    link = link_bandwidth(here)
    about = common.about("cuda_routes") | {"dtype": arguments.dtype, "link_GBps": round(link / 1e9, 1)}
    rows = []
    if rank == 0:
        print(f"{common.headline(about)}; host links {link / 1e9:.1f} GB/s each way")
        print("eager / device [us]; <: at most so much, for the host could not be left out")
        heads = " | ".join(f"{c + arguments.suffix:>{WIDTH}}" for c in contenders)
        print(f"{'operation':15} {'bytes':>10} | {heads}")
    for operation in arguments.operations:
        for size in SIZES:
            call = operations(size, world, getattr(torch, arguments.dtype), here)[operation]
            cells = []
            for contender, group in groups.items():
                if contender == "gloo" and (operation not in OF_GLOO or size > 64 * MIB):
                    cells.append("-")
                    continue
                times = measure(call, group, arguments.seconds / 2)
                rows.append(about | {
                    "operation": operation, "bytes": size, "contender": contender + arguments.suffix,
                    **{f"{kind}_us": round(times[kind] * 1e6, 2) for kind in ("device", "eager", "host")},
                    "device_at_most": times["at_most"],
                    "busbw_GBps": round(size * bus_factor(operation, world) / times["device"] / 1e9, 2),
                })  # fmt: skip
                cells.append(cell_of(times))
            if rank == 0:
                row = " | ".join(f"{cell:>{WIDTH}}" for cell in cells)
                print(f"{operation:15} {size:>10} | {row}", flush=True)
    common.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
