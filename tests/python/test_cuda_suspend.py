# SPDX-License-Identifier: BSD-3-Clause
"""Groups that give the memory of their GPU back for a while: suspend(), resume(), memory_stats()."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from test_cuda import backend_of, device, needs_nccl, route

pytestmark = pytest.mark.gpu
SIZES = (7, 100_003, 5_000_000)


def sums_are_right(world, where, group=None):
    for count in SIZES:
        tensor = torch.full((count,), float(world.rank + 1), device=where)
        dist.all_reduce(tensor, group=group)
        assert (tensor == world.size * (world.size + 1) / 2).all(), count
    blocks = torch.full((world.size,), float(world.rank), device=where)
    taken = torch.empty_like(blocks)
    dist.all_to_all_single(taken, blocks, group=group)
    assert taken.tolist() == list(range(world.size))


def free(where):
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info(where)[0]


@on_ranks(2)
def test_a_group_gives_its_memory_back_and_goes_on(world):
    where = device(world)
    group = dist.new_group()  # no other test has captured calls of it
    backend = backend_of(group)
    sums_are_right(world, where, group)
    for again in range(3):
        before, stats = free(where), backend.memory_stats()
        assert stats["suspended"] == 0 and stats["total"] == stats["suspend"] + stats["persist"]
        backend.suspend()
        dist.barrier(group)  # of the host
        given_back = free(where) - before
        print(f"round {again}: {given_back >> 20} MiB given back of {stats}")
        if "PYTEST_XDIST_WORKER" not in os.environ:  # else other tests take and free memory of the same GPU
            assert given_back >= stats["suspend"] * 0.9
        assert backend.memory_stats()["suspended"] == 1
        with pytest.raises(NotImplementedError, match="every rank calls resume"):
            dist.all_reduce(torch.ones(3, device=where), group=group)
        on_host = torch.ones(3)
        dist.all_reduce(on_host, group=group)
        assert on_host.tolist() == [world.size] * 3
        backend.resume()
        sums_are_right(world, where, group)
    dist.destroy_process_group(group)


@on_ranks(2)
def test_a_suspended_group_can_be_destroyed(world):
    where = device(world)
    group = dist.new_group()
    sums_are_right(world, where, group)
    backend_of(group).suspend()
    dist.destroy_process_group(group)
    sums_are_right(world, where)


@on_ranks(2)
def test_another_group_goes_on_meanwhile(world):
    where = device(world)
    group = dist.new_group()
    sums_are_right(world, where, group)
    sums_are_right(world, where)
    backend_of(group).suspend()
    sums_are_right(world, where)
    backend_of(group).resume()
    sums_are_right(world, where, group)


@on_ranks(2)
def test_what_graphs_need_stays(world):
    """And is replayed right afterwards, or nothing is given back, with the reason."""
    needs_nccl(world)
    if route(world) == "host_relay":
        pytest.skip("this route cannot be captured")
    where = device(world)
    tensor = torch.ones(1000, device=where)
    dist.all_reduce(tensor)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)
    try:
        backend_of().suspend()
    except NotImplementedError as error:
        assert "nothing can be given back" in str(error) and "CUDA graphs use it" in str(error)
    else:
        backend_of().resume()
    tensor.fill_(1)
    graph.replay()
    assert (tensor == world.size).all()
    sums_are_right(world, where)


@on_ranks(2)
def test_a_group_without_cuda_tensors_has_nothing_to_give_back(world):
    backend = backend_of(dist.new_group())
    assert backend.memory_stats() == {"suspend": 0, "suspended": 0, "persist": 0, "total": 0, "host": 0}
    backend.suspend()
    backend.resume()
