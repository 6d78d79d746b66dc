# SPDX-License-Identifier: BSD-3-Clause
"""Exact sums of CUDA tensors (docs/exact.md): the bits that fractions give, by every route and protocol, in graphs."""

from __future__ import annotations

import exact_reference as ref
import pytest
import torch
import torch.distributed as dist
from harness import Cluster, on_ranks
from test_cuda import can_be_captured, co_resident, device, shares_gpus

import altorch
import altorch.ops

pytestmark = pytest.mark.gpu
# By what can carry them. The sizes below go through LL, LL128 and the kernels for large vectors.
ROUTES = ("", "cuda=host_relay", "cuda=host_staged", "cuda=peer", "cuda=peer/ll", "cuda=peer/ll128",
          "cuda=peer/one_shot", "cuda=peer/two_shot", "cuda=host_staged/pieces")  # fmt: skip


def check_all_operations(world, here, dtype, count):
    """`count`: of elements whose sums are known, in front of ordinary ones, that fill the tensor."""
    known, each = 360, count // world.size
    parts, wants = ref.parts_and_results(world, dtype, known)
    rest = torch.randn(count - known, generator=world.generator(), dtype=torch.float64).to(dtype)
    mine = torch.cat((parts[world.rank], rest))
    for op, mean in ref.OPS:
        world.case = f"{dtype} {op} of {count}"
        got = mine.to(here)
        dist.all_reduce(got, op)
        ref.check(world, got[:known], wants[mean])
        cpu = mine.clone()
        dist.all_reduce(cpu, op)
        ref.check(world, got, cpu)
        got = mine.to(here)
        dist.reduce(got, 0, op)
        if world.rank == 0:
            ref.check(world, got, cpu)
        got = torch.empty(each, dtype=dtype, device=here)
        dist.reduce_scatter_tensor(got, mine[: each * world.size].to(here), op)
        ref.check(world, got, cpu[each * world.rank : each * (world.rank + 1)])


def every_type_and_size(world):
    here = device(world)
    for dtype in (*ref.TYPES, *ref.FLOAT8):
        for count in (361, 4099, 70_001, 1_500_000):
            check_all_operations(world, here, dtype, count)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("size", [2, 4])
def test_every_route_gives_these_bits(size, route):
    with Cluster(size, env=ref.EXACT | ({"ALTORCH_ROUTE": route} if route else {})) as cluster:
        cluster.check(runs_by, deadline=120, route=route)


def runs_by(world, route):
    if "peer" in route and not co_resident(world):
        pytest.skip("ranks share a GPU without MPS")
    if route.endswith("ll128") and shares_gpus(world):
        pytest.skip("LL128 is for GPUs that NVLink links")
    every_type_and_size(world)


@on_ranks(2, env=ref.EXACT)
def test_graphs(world):
    here = device(world)
    if not can_be_captured(world):
        pytest.skip("ranks share a GPU, on which no kernel can wait for another")
    for dtype in (*ref.TYPES, *ref.FLOAT8):
        parts = ref.difficult(world.generator(0), dtype, 1000, world.size)
        x = torch.zeros(1000, dtype=dtype, device=here)
        dist.all_reduce(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x.clone()
            dist.all_reduce(y)
        for _ in range(3):
            x.copy_(parts[world.rank])
            graph.replay()
            torch.cuda.synchronize()
            ref.check(world, y, ref.exact_sums(parts))


@on_ranks(2, env=ref.EXACT)
def test_nccl_alone_is_refused(world):
    here = device(world)
    with pytest.raises(NotImplementedError, match="order of the ranks"):
        dist.all_reduce(torch.ones(3, device=here), dist.ReduceOp.PRODUCT)
    x = torch.ones(3, device=here)
    dist.all_reduce(x)
    assert x.eq(2).all()


def asks_for_nccl(world):
    here = device(world)
    if shares_gpus(world):
        pytest.skip("ranks share a GPU, which NCCL refuses")
    with pytest.raises(RuntimeError, match=r"(?s)nccl.*exact"):
        dist.all_reduce(torch.ones(3, device=here))
    dist.broadcast(torch.ones(3, device=here), 0)


def test_where_only_nccl_may_carry_the_call_the_error_says_what_can():
    with Cluster(2, env=ref.EXACT | {"ALTORCH_ROUTE": "cuda=nccl"}) as cluster:
        cluster.check(asks_for_nccl)


@on_ranks(1, env=ref.EXACT)
def test_sums_of_one_rank(world):
    """altorch.ops.exact_sum."""
    here = device(world)
    for dtype in (*ref.TYPES, *ref.FLOAT8):
        parts = ref.difficult(world.generator(0), dtype, 1001, 5)
        for mean in (False, True):
            world.case = f"{dtype}, mean {mean}"
            got = altorch.ops.exact_sum(torch.stack(parts).to(here), mean=mean)
            ref.check(world, got, ref.exact_sums(parts, 5 if mean else 1))
    with pytest.raises(NotImplementedError, match="up to 64 summands; copy the tensor to the CPU"):
        altorch.ops.exact_sum(torch.ones(65, 3, device=here))
