# SPDX-License-Identifier: BSD-3-Clause
"""What no operation can be faster than, measured on all ranks at once: a copy, and the links between host and GPUs."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from altorch.bench.cases import Buffers, Case
from altorch.bench.figures import slowest_median
from altorch.bench.rows import Row
from altorch.bench.turns import FEWEST_BATCHES, Lane, row_of

COPIES_EACH_WAY = 4


def copies(size: int, dtype: torch.dtype, device: torch.device, seconds: float = 0.1) -> Row:
    """All ranks copy as many bytes at once: the floor of an operation that must move each byte once."""
    buffers = Buffers(size, dtype, dist.get_world_size(), device)

    def call(turn: int, lazy: bool) -> None:
        buffers.second[turn % len(buffers)].copy_(buffers.large[turn % len(buffers)])

    lane = Lane("memcpy", "sync", call, device.type == "cuda")
    rounds = max(FEWEST_BATCHES, min(20, int(seconds / max(lane.settle(), 1e-9))))
    for turn in range(rounds):
        buffers.dirty()
        dist.barrier()
        took, host = lane.batch(1 + turn)
        lane.seconds.append(took)
        lane.host.append(host)
    floor = Case("memcpy", lambda buffers, group: call)
    row = row_of(floor, buffers, dtype, lane, dist.get_world_size())
    row.pop("busbw_GBps", None)
    return row


def link_bandwidth(device: torch.device, size: int = 64 << 20) -> float:
    """GB/s each way, of the slowest GPU, while all copy to and from pinned memory."""
    down_host, up_host = (torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2))
    down, up = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(COPIES_EACH_WAY):
            with torch.cuda.stream(streams[0]):
                down_host.copy_(down, non_blocking=True)
            with torch.cuda.stream(streams[1]):
                up.copy_(up_host, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return round(COPIES_EACH_WAY * size / slowest_median(times) / 1e9, 1)
