# SPDX-License-Identifier: BSD-3-Clause
"""Contenders take turns, batch by batch, so that whatever disturbs the machine disturbs all of them.

A batch's time is the slowest rank's. Figures are those of one call (of one message, where a call has two): the 10th
percentile, which is what the machine can do, the median, which is what it did, and the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from altorch.bench import clocks
from altorch.bench.cases import Buffers, Call, Case, check
from altorch.bench.contenders import MOVE_NOTHING, SYMMETRIC, call_of
from altorch.bench.figures import figures, slowest, slowest_median, slowest_of_each
from altorch.bench.rows import Row

BATCH_SECONDS = 0.004
MOST_CALLS = 200
FEWEST_BATCHES, MOST_BATCHES = 5, 60
DEVICE_ROUNDS = 5


@dataclass
class Lane:
    """One contender in one mode."""

    contender: str
    mode: str
    call: Call
    on_gpu: bool
    calls: int = 1  # in a batch
    graph: Any = None
    seconds: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)

    def issue(self, first: int) -> None:
        if self.mode == "graph":
            self.graph.replay()
            return
        lazy = self.mode == "async"
        for turn in range(first, first + self.calls):
            work = self.call(turn, lazy)
            if lazy and work is not None:
                work.wait()

    def capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for turn in range(self.calls):
                self.call(turn, False)

    def batch(self, first: int) -> tuple[float, float]:
        """Seconds a call, and on the host. One call goes before the clock and brings the ranks together."""
        if self.mode != "graph":
            self.call(first - 1, False)
        if self.on_gpu:
            took, host = clocks.on_device(lambda: self.issue(first))
        else:
            took = host = clocks.on_host(lambda: self.issue(first))
        return took / self.calls, host / self.calls

    def settle(self) -> float:
        """Chooses how many calls make a batch, all ranks alike; the seconds that a batch takes."""
        if self.mode == "graph":
            self.calls = 10
            self.capture()
        else:
            self.calls = 2
        self.batch(1)  # may connect the ranks
        one = slowest(self.batch(1)[0])
        if self.mode != "graph":
            self.calls = max(1, min(MOST_CALLS, int(BATCH_SECONDS / max(one, 1e-9))))
        return one * (self.calls + 1)

    def alone_on_device(self) -> float | None:
        """Seconds a call with the host left out; nothing where the host could not be."""
        host = slowest_median(self.host)
        calls = max(1, min(self.calls, int(clocks.LONGEST_SPIN / 1.5 / host) - 1))
        spin = clocks.spin_for((calls + 1) * host)

        def issue() -> None:
            for turn in range(calls):
                self.call(turn, False)

        rounds = [clocks.behind_spin(issue, lambda: self.call(0, False), spin) for _ in range(DEVICE_ROUNDS)]
        device = slowest_median([seconds for seconds, _ in rounds]) / calls
        uncovered = slowest_median([float(not covered) for _, covered in rounds])
        return device if not uncovered or device >= host else None


def takes_part(contender: str, mode: str, case: Case, on_gpu: bool) -> bool:
    backend, _, choice = contender.partition(":")
    if mode == "async":
        return not case.synchronous and backend != SYMMETRIC
    if mode == "graph":  # what the host drives cannot be captured
        return (
            on_gpu
            and backend in ("al", "nccl", SYMMETRIC)
            and not choice.startswith("host")
            and case.name != "barrier"
        )
    return True


def measure(
    case: Case,
    size: int,
    dtype: torch.dtype,
    device: torch.device,
    groups: Mapping[str, dist.ProcessGroup],
    *,
    modes: tuple[str, ...] = ("sync",),
    seconds: float = 0.6,
) -> list[Row]:
    """Rows of one case and size, the same on every rank. About `seconds` long."""
    on_gpu, ranks = device.type == "cuda", dist.get_world_size()
    buffers = Buffers(size, dtype, ranks, device)
    lanes = []
    for name, group in groups.items():
        if name not in MOVE_NOTHING:
            check(case, buffers, group)
        call = call_of(name, case, buffers, group)
        lanes += [Lane(name, mode, call, on_gpu) for mode in modes if takes_part(name, mode, case, on_gpu)]
    take_turns(lanes, buffers, seconds)
    return [row_of(case, buffers, dtype, lane, ranks) for lane in lanes]


def take_turns(lanes: Sequence[Lane], buffers: Buffers, seconds: float) -> None:
    round_seconds = sum(lane.settle() for lane in lanes)
    rounds = max(FEWEST_BATCHES, min(MOST_BATCHES, int(seconds / max(round_seconds, 1e-9))))
    for turn in range(rounds):
        for lane in lanes:
            first = 1 + turn * lane.calls
            buffers.dirty(first - 1, lane.calls + 1)
            dist.barrier()
            took, host = lane.batch(first)
            lane.seconds.append(took)
            lane.host.append(host)


def row_of(case: Case, buffers: Buffers, dtype: torch.dtype, lane: Lane, ranks: int) -> Row:
    moves = case.name != "barrier"
    row: Row = {
        "operation": case.name,
        "dtype": str(dtype).removeprefix("torch.") if moves else "",
        "bytes": buffers.bytes if moves else 0,
        "ranks": ranks,
        "device": buffers.large[0].device.type,
        "contender": lane.contender,
        "mode": lane.mode,
        "calls_per_batch": lane.calls,
        "batches": len(lane.seconds),
    }
    row |= figures(slowest_of_each(lane.seconds), case.messages)
    best = row["median_us"]
    if lane.on_gpu:
        row["host_us"] = figures(slowest_of_each(lane.host), case.messages)["median_us"]
        if lane.mode == "sync" and lane.contender.partition(":")[0] not in ("gloo", *MOVE_NOTHING):
            device = lane.alone_on_device()
            if device is not None:
                best = row["device_us"] = round(device * 1e6 / case.messages, 3)
    if moves and best > 0 and lane.contender not in MOVE_NOTHING:
        row["busbw_GBps"] = round(buffers.bytes * case.bus_factor(ranks) / best / 1e3, 3)
    return row
