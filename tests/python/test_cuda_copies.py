"""Large collectives between GPUs by copy engines: ALTORCH_ROUTE=cuda=peer_copies."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from test_cuda import data, device, kernels_meet, wide

import altorch

pytestmark = pytest.mark.gpu
COPIES = {"ALTORCH_ROUTE": "cuda=peer_copies"}
SIZES = (7, 140_003, 1_000_003, 20_000_001)  # the first goes by peer; the last in many pieces


def needs_kernels_that_meet(world):
    if not kernels_meet(world):
        pytest.skip("ranks share a GPU without MPS, where peer does not serve")


def total(world, count, dtype, seed):
    return sum(wide(data(world, count, dtype, rank, seed)) for rank in range(world.size))


@on_ranks(2, env=COPIES, deadline=180)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_sums(world, dtype, asynchronous):
    needs_kernels_that_meet(world)
    where = device(world)
    for seed, count in enumerate(SIZES):
        tensor = data(world, count, dtype, seed=seed).to(where)
        work = dist.all_reduce(tensor, async_op=asynchronous)
        if asynchronous:
            work.wait()
        expected = total(world, count, dtype, seed)
        torch.testing.assert_close(
            wide(tensor.cpu()), expected, rtol=0.02 if dtype == "bfloat16" else 1e-6, atol=1e-2
        )
        copies = [torch.empty_like(tensor) for _ in range(world.size)]
        dist.all_gather(copies, tensor)
        assert all(torch.equal(copy, tensor) for copy in copies)
    assert "peer_copies" in {row["route"].split(":")[-1] for row in altorch.statistics()}


@on_ranks(2, env=COPIES, deadline=180)
def test_other_collectives(world):
    needs_kernels_that_meet(world)
    where, root = device(world), world.size - 1
    for seed, count in enumerate(SIZES):
        mine = data(world, count, "float32", seed=seed).to(where)
        broadcast = mine.clone()
        dist.broadcast(broadcast, root)
        assert torch.equal(broadcast.cpu(), data(world, count, "float32", root, seed))
        gathered = torch.empty(world.size * count, device=where)
        dist.all_gather_into_tensor(gathered, mine)
        for rank in range(world.size):
            assert torch.equal(
                gathered[rank * count : (rank + 1) * count].cpu(), data(world, count, "float32", rank, seed)
            )
        parts = data(world, world.size * count, "float32", seed=seed).to(where)
        scattered = torch.empty(count, device=where)
        dist.reduce_scatter_tensor(scattered, parts)
        expected = total(world, world.size * count, "float32", seed)[world.rank * count :][:count]
        torch.testing.assert_close(wide(scattered.cpu()), expected, rtol=1e-6, atol=1e-5)
        reduced = mine.clone()
        dist.reduce(reduced, root)
        if world.rank == root:
            torch.testing.assert_close(
                wide(reduced.cpu()), total(world, count, "float32", seed), rtol=1e-6, atol=1e-5
            )


@on_ranks(2, env=COPIES, deadline=180)
def test_order_with_streams_and_other_sizes(world):
    """What comes before and after a call on its stream, and calls of both ways in turns."""
    needs_kernels_that_meet(world)
    where = device(world)
    large, small = torch.empty(4_000_000, device=where), torch.empty(100, device=where)
    for step in range(30):
        torch.cuda._sleep(1_000_000 if world.rank == step % world.size else 0)
        large.fill_(float(step + world.rank))
        small.fill_(float(step * world.rank))
        work = dist.all_reduce(large, async_op=True)
        dist.all_reduce(small)
        work.wait()
        doubled, both = large * 2, small + 1
        ranks = world.size * (world.size - 1) / 2
        assert (doubled == 2 * (world.size * step + ranks)).all()
        assert (both == step * ranks + 1).all()
