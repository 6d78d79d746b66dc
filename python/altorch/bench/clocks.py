# SPDX-License-Identifier: BSD-3-Clause
"""Time on the host, on a device, and on a device whose host is left out.

Seconds everywhere. Functions on devices need CUDA and use the current stream.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

LONGEST_SPIN = 0.005


def on_host(issue: Callable[[], Any]) -> float:
    began = time.perf_counter()
    issue()
    return time.perf_counter() - began


def event_pair() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def on_device(issue: Callable[[], Any]) -> tuple[float, float]:
    """Between events around what `issue` gives the stream, and what the host needed to give it."""
    begin, end = event_pair()
    torch.cuda.synchronize()
    dist.barrier()
    begin.record()
    host = on_host(issue)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000, host


def per_call(call: Callable[[], Any], calls: int, device: torch.device) -> float:
    """Of `calls` calls behind each other on a device, as on_device() has it, or on the host behind a barrier."""

    def issue() -> None:
        for _ in range(calls):
            call()

    if device.type == "cuda":
        return on_device(issue)[0] / calls
    dist.barrier()
    return on_host(issue) / calls


@functools.cache
def cycles_per_second() -> float:
    cycles = 10_000_000
    torch.cuda._sleep(cycles)  # loads the kernel and wakes the clock
    begin, end = event_pair()
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return float(cycles / begin.elapsed_time(end) * 1000)


def spin_for(host: float) -> float:
    """Seconds to spin while the host issues what takes it `host` seconds: some more, but never long."""
    return min(LONGEST_SPIN, 1.5 * host + 0.0002)


def behind_spin(issue: Callable[[], Any], align: Callable[[], Any], spin: float) -> tuple[float, bool]:
    """Seconds that the current stream takes for what `issue` gives it, and whether all was issued before it began.

    A kernel that spins holds the stream meanwhile, so that the host is not what is measured. `align` is a collective
    behind it: it brings the ranks together, so that no rank's clock runs while another still spins.
    """
    begin, end = event_pair()
    cycles = int(spin * cycles_per_second())
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda._sleep(cycles)
    align()
    begin.record()
    issue()
    covered = not begin.query()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000, covered
