# SPDX-License-Identifier: BSD-3-Clause
"""The operations that are measured: their buffers, one call, and a check of what the call gave.

Bytes are those of the larger buffer of a rank, as in nccl-tests: the output of all_gather, the input of reduce_scatter.
Buffers rotate from call to call and can be written before each batch, so that no call finds its data in the cache only
because the benchmark is a benchmark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

ROTATED_BYTES = 64 << 20  # more than the last-level cache of most machines
FEWEST_BUFFERS, MOST_BUFFERS = 2, 16


class Buffers:
    """Two buffers of at least ``size`` bytes for each turn, rounded up so that every rank has a share."""

    def __init__(self, size: int, dtype: torch.dtype, ranks: int, device: torch.device | str = "cpu") -> None:
        self.share = -(-size // (dtype.itemsize * ranks))
        self.count = self.share * ranks
        self.bytes = self.count * dtype.itemsize
        many = max(FEWEST_BUFFERS, min(MOST_BUFFERS, ROTATED_BYTES // max(self.bytes, 1)))
        self.large = [torch.ones(self.count, dtype=dtype, device=device) for _ in range(many)]
        self.second = [torch.ones(self.count, dtype=dtype, device=device) for _ in range(many)]
        self.small = [buffer[: self.share] for buffer in self.second]

    def dirty(self, first: int = 0, calls: int = MOST_BUFFERS) -> None:
        """Writes the buffers that ``calls`` calls from turn ``first`` on will use."""
        for turn in range(first, first + min(calls, len(self))):
            self.large[turn % len(self)].fill_(1)
            self.second[turn % len(self)].fill_(1)

    def __len__(self) -> int:
        return len(self.large)


# The call of a turn; with ``lazy`` as an asynchronous operation, whose Work it returns.
Call = Callable[[int, bool], Any]


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[Buffers, dist.ProcessGroup], Call]
    bus: float = 1.0  # bytes on a link per byte and share of the others: nccl-tests' bus bandwidth
    messages: int = 1  # of which one call consists: figures are per message
    synchronous: bool = False  # has no asynchronous form

    def bus_factor(self, ranks: int) -> float:
        return self.bus * (ranks - 1) / ranks


def _all_reduce(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    return lambda turn, lazy: dist.all_reduce(buffers.large[turn % len(buffers)], group=group, async_op=lazy)


def _all_gather(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    def call(turn: int, lazy: bool) -> Any:
        i = turn % len(buffers)
        return dist.all_gather_into_tensor(buffers.large[i], buffers.small[i], group=group, async_op=lazy)

    return call


def _reduce_scatter(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    def call(turn: int, lazy: bool) -> Any:
        i = turn % len(buffers)
        return dist.reduce_scatter_tensor(buffers.small[i], buffers.large[i], group=group, async_op=lazy)

    return call


def _all_to_all(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    def call(turn: int, lazy: bool) -> Any:
        i = turn % len(buffers)
        return dist.all_to_all_single(buffers.second[i], buffers.large[i], group=group, async_op=lazy)

    return call


def _broadcast(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    size = dist.get_world_size(group)

    # The root moves on, or it would run ahead of the others and no call would be seen whole.
    def call(turn: int, lazy: bool) -> Any:
        return dist.broadcast(buffers.large[turn % len(buffers)], src=turn % size, group=group, async_op=lazy)

    return call


def _send_recv(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    """There and back between ranks 0 and 1, 2 and 3, ...: two messages a call."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    peer = rank ^ 1

    def call(turn: int, lazy: bool) -> None:
        if peer >= size:
            return
        i = turn % len(buffers)
        if rank < peer:
            dist.send(buffers.large[i], peer, group=group)
            dist.recv(buffers.second[i], peer, group=group)
        else:
            dist.recv(buffers.second[i], peer, group=group)
            dist.send(buffers.large[i], peer, group=group)

    return call


def _barrier(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    return lambda turn, lazy: dist.barrier(group=group, async_op=lazy)


CASES = {
    case.name: case
    for case in (
        Case("all_reduce", _all_reduce, bus=2.0),
        Case("all_gather", _all_gather),
        Case("reduce_scatter", _reduce_scatter),
        Case("all_to_all", _all_to_all),
        Case("broadcast", _broadcast),
        Case("send_recv", _send_recv, messages=2, synchronous=True),
        Case("barrier", _barrier),
    )
}


def check(case: Case, buffers: Buffers, group: dist.ProcessGroup) -> None:
    """One call on known values; raises when the result is wrong. A benchmark of wrong results is worth nothing."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    buffers.dirty()
    large, small, second = buffers.large[0], buffers.small[0], buffers.second[0]
    shares = torch.arange(1, size + 1, device=large.device).to(large.dtype).repeat_interleave(buffers.share)
    if case.name == "all_gather":
        small.fill_(rank + 1)
    elif case.name in ("all_to_all", "reduce_scatter"):
        large.copy_(shares)
    elif case.name != "barrier":
        large.fill_(rank + 1)
    case.make(buffers, group)(0, False)

    total = size * (size + 1) // 2
    peer = rank ^ 1
    result, expected = {
        "all_reduce": (large, torch.full_like(large, total)),
        "all_gather": (large, shares),
        "reduce_scatter": (small, torch.full_like(small, size * (rank + 1))),
        "all_to_all": (second, torch.full_like(second, rank + 1)),
        "broadcast": (large, torch.ones_like(large)),
        "send_recv": (second, torch.full_like(second, peer + 1 if peer < size else 1)),
        "barrier": (large, large),
    }[case.name]
    if not torch.equal(result, expected):
        raise AssertionError(f"{case.name} gave a wrong result on rank {rank}: {result[:4].tolist()} ...")
