"""The operations that are measured: their buffers, one call, and a check of what the call gave.

Bytes are those of the larger buffer of a rank, as in nccl-tests: the output of all_gather, the input of
reduce_scatter. Buffers rotate from call to call and are written before each batch, so that no call finds its data
in the cache only because the benchmark is a benchmark.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

ROTATED_BYTES = 64 << 20  # more than the last-level cache of most machines
FEWEST_BUFFERS, MOST_BUFFERS = 2, 16


class Buffers:
    """``count`` elements per rank and larger buffer, rounded up so that every rank has a share."""

    def __init__(self, size: int, dtype: torch.dtype, ranks: int) -> None:
        self.share = -(-size // (dtype.itemsize * ranks))
        self.count = self.share * ranks
        self.bytes = self.count * dtype.itemsize
        many = max(FEWEST_BUFFERS, min(MOST_BUFFERS, ROTATED_BYTES // max(self.bytes, 1)))
        self.large = [torch.ones(self.count, dtype=dtype) for _ in range(many)]
        self.second = [torch.ones(self.count, dtype=dtype) for _ in range(many)]
        self.small = [buffer[: self.share] for buffer in self.second]

    def dirty(self, first: int = 0, calls: int = MOST_BUFFERS) -> None:
        """Writes the buffers that ``calls`` calls from turn ``first`` on will use."""
        for turn in range(first, first + min(calls, len(self))):
            self.large[turn % len(self)].fill_(1)
            self.second[turn % len(self)].fill_(1)

    def __len__(self) -> int:
        return len(self.large)


Call = Callable[[int], None]


def all_reduce(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    def call(turn: int) -> None:
        dist.all_reduce(buffers.large[turn % len(buffers)], group=group)

    return call


def all_gather(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    def call(turn: int) -> None:
        index = turn % len(buffers)
        dist.all_gather_into_tensor(buffers.large[index], buffers.small[index], group=group)

    return call


def reduce_scatter(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    def call(turn: int) -> None:
        index = turn % len(buffers)
        dist.reduce_scatter_tensor(buffers.small[index], buffers.large[index], group=group)

    return call


def all_to_all(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    def call(turn: int) -> None:
        index = turn % len(buffers)
        dist.all_to_all_single(buffers.second[index], buffers.large[index], group=group)

    return call


def broadcast(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    size = dist.get_world_size(group)

    # The root moves on, or it would run ahead of the others and no call would be seen whole.
    def call(turn: int) -> None:
        dist.broadcast(buffers.large[turn % len(buffers)], src=turn % size, group=group)

    return call


def send_recv(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    """There and back between ranks 0 and 1, 2 and 3, ...: two messages a call."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    peer = rank ^ 1

    def call(turn: int) -> None:
        if peer >= size:
            return
        index = turn % len(buffers)
        if rank < peer:
            dist.send(buffers.large[index], peer, group=group)
            dist.recv(buffers.second[index], peer, group=group)
        else:
            dist.recv(buffers.second[index], peer, group=group)
            dist.send(buffers.large[index], peer, group=group)

    return call


def barrier(buffers: Buffers, group: dist.ProcessGroup) -> Call:
    def call(turn: int) -> None:
        dist.barrier(group=group)

    return call


OPERATIONS: dict[str, Callable[[Buffers, dist.ProcessGroup], Call]] = {
    "all_reduce": all_reduce,
    "all_gather_into_tensor": all_gather,
    "reduce_scatter_tensor": reduce_scatter,
    "all_to_all_single": all_to_all,
    "broadcast": broadcast,
    "send_recv": send_recv,
    "barrier": barrier,
}

# Operations of which one call moves two messages: figures are per message.
MESSAGES_PER_CALL = {"send_recv": 2}


def check(operation: str, buffers: Buffers, group: dist.ProcessGroup) -> None:
    """One call on known values; raises when the result is wrong. A benchmark of wrong results is worth nothing."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    buffers.dirty()
    large, small, second = buffers.large[0], buffers.small[0], buffers.second[0]
    shares = torch.arange(1, size + 1, dtype=large.dtype).repeat_interleave(buffers.share)
    if operation == "all_gather_into_tensor":
        small.fill_(rank + 1)
    elif operation in ("all_to_all_single", "reduce_scatter_tensor"):
        large.copy_(shares)
    elif operation != "barrier":
        large.fill_(rank + 1)
    OPERATIONS[operation](buffers, group)(0)

    total = size * (size + 1) // 2
    peer = rank ^ 1
    result, expected = {
        "all_reduce": (large, torch.full_like(large, total)),
        "all_gather_into_tensor": (large, shares),
        "reduce_scatter_tensor": (small, torch.full_like(small, size * (rank + 1))),
        "all_to_all_single": (second, torch.full_like(second, rank + 1)),
        "broadcast": (large, torch.ones_like(large)),
        "send_recv": (second, torch.full_like(second, peer + 1 if peer < size else 1)),
        "barrier": (large, large),
    }[operation]
    if not torch.equal(result, expected):
        raise AssertionError(f"{operation} gave a wrong result on rank {rank}: {result[:4].tolist()} ...")
