# SPDX-License-Identifier: BSD-3-Clause
"""More than 2 GiB and more than INT_MAX elements in one call. Run with --large: about 10 GiB of memory, minutes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks

pytestmark = pytest.mark.large
HUGE = 2**31 + 13  # elements; as uint8 also bytes

STEP = 1 << 24


@cache
def table():
    """It repeats itself after 251 elements, for 7 and 251 have no common factor."""
    return ((torch.arange(251 + STEP) * 7) % 251).to(torch.uint8)


def pattern(rank, count, start=0):
    """At most STEP bytes that differ by rank and position, so that a piece in the wrong place is seen."""
    first = (start + 83 * rank) % 251
    return table()[first : first + count]


def fill(tensor, rank, start=0):
    for begin in range(0, tensor.numel(), STEP):
        part = tensor[begin : begin + STEP]
        part.copy_(pattern(rank, part.numel(), start + begin))


def check(tensor, expected, what):
    """expected(begin, count) gives the right values; compared piece by piece to spare memory."""
    for begin in range(0, tensor.numel(), STEP):
        part = tensor[begin : begin + STEP]
        if not torch.equal(part, expected(begin, part.numel())):
            raise AssertionError(f"{what}: wrong within elements {begin} to {begin + part.numel()}")


@on_ranks(2, deadline=550)
def test_all_reduce(world):
    tensor = torch.empty(HUGE, dtype=torch.uint8)
    fill(tensor, world.rank)
    dist.all_reduce(tensor)
    check(tensor, lambda begin, n: pattern(0, n, begin) + pattern(1, n, begin), "all_reduce")


@on_ranks(2, deadline=550)
def test_broadcast(world):
    tensor = torch.zeros(HUGE, dtype=torch.uint8)
    if world.rank == 1:
        fill(tensor, 1)
    dist.broadcast(tensor, 1)
    check(tensor, lambda begin, n: pattern(1, n, begin), "broadcast")


@on_ranks(2, deadline=550)
def test_send_and_recv(world):
    tensor = torch.zeros(HUGE, dtype=torch.uint8)
    if world.rank == 0:
        fill(tensor, 0)
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
        check(tensor, lambda begin, n: pattern(0, n, begin), "recv")
    dist.barrier()


@on_ranks(2, deadline=550)
def test_two_messages_of_one_tag(world):
    """Each is cut in two where MPI carries it, and both receives are posted before the first piece comes."""
    count = 2**30 + 13
    tensors = [torch.zeros(count, dtype=torch.uint8) for _ in range(2)]
    if world.rank == 0:
        for start, tensor in enumerate(tensors):
            fill(tensor, 0, start)
        dist.barrier()
        works = [dist.isend(tensor, 1, tag=5) for tensor in tensors]
    else:
        works = [dist.irecv(tensor, 0, tag=5) for tensor in tensors]
        dist.barrier()
    for work in works:
        work.wait()
    if world.rank == 1:
        for start, tensor in enumerate(tensors):
            check(tensor, lambda begin, n, start=start: pattern(0, n, start + begin), f"message {start}")
    dist.barrier()


@on_ranks(2, deadline=550)
def test_all_gather_into_tensor(world):
    half = HUGE // 2 + 1
    source, output = torch.empty(half, dtype=torch.uint8), torch.zeros(2 * half, dtype=torch.uint8)
    fill(source, world.rank)
    dist.all_gather_into_tensor(output, source)
    for rank in range(2):
        part = output[rank * half : (rank + 1) * half]
        check(part, lambda begin, n, rank=rank: pattern(rank, n, begin), f"all_gather from {rank}")


@on_ranks(2, deadline=550)
def test_reduce_scatter_tensor(world):
    half = HUGE // 2 + 1
    source, output = torch.empty(2 * half, dtype=torch.uint8), torch.zeros(half, dtype=torch.uint8)
    fill(source, world.rank)
    dist.reduce_scatter_tensor(output, source)
    base = world.rank * half
    check(
        output, lambda begin, n: pattern(0, n, base + begin) + pattern(1, n, base + begin), "reduce_scatter"
    )


@on_ranks(2, deadline=550)
def test_all_to_all_single(world):
    """Uneven, and one part alone is beyond INT_MAX."""
    sends = [5, HUGE] if world.rank == 0 else [3, 7]
    takes = [5, 3] if world.rank == 0 else [HUGE, 7]
    source, output = torch.empty(sum(sends), dtype=torch.uint8), torch.zeros(sum(takes), dtype=torch.uint8)
    fill(source, world.rank)
    dist.all_to_all_single(output, source, takes, sends)
    if world.rank == 1:
        check(output[:HUGE], lambda begin, n: pattern(0, n, 5 + begin), "all_to_all")
        check(output[HUGE:], lambda begin, n: pattern(1, n, 3 + begin), "all_to_all")
    else:
        check(output[:5], lambda begin, n: pattern(0, n, begin), "all_to_all")
        check(output[5:], lambda begin, n: pattern(1, n, begin), "all_to_all")


@on_ranks(2, deadline=550)
def test_more_than_two_gibibytes_of_wider_elements(world):
    """Fewer than INT_MAX elements, more than INT_MAX bytes."""
    count = 2**28 + 3  # 2 GiB of float64
    tensor = torch.full((count,), float(world.rank + 1), dtype=torch.float64)
    tensor[-1] = 10.0 * (world.rank + 1)
    dist.all_reduce(tensor)
    assert tensor[-1].item() == 30.0
    for begin in range(0, count - 1, STEP):
        part = tensor[begin : min(begin + STEP, count - 1)]
        assert (part == 3.0).all(), begin
