# SPDX-License-Identifier: BSD-3-Clause
"""altorch.ops.all_reduce_quantized on CUDA tensors: by every route, in graphs, against the CPU's bits."""

from __future__ import annotations

import pytest
import quantized_reference as ref
import torch
import torch.distributed as dist
from harness import Cluster, on_ranks
from test_cuda import can_be_captured, co_resident, device

import altorch.ops

pytestmark = pytest.mark.gpu
BITS = (8, "fp8")


def check_all(world):
    here = device(world)
    for bits in BITS:
        for dtype in ref.TYPES:
            for count in (*ref.SIZES, 3_000_001):
                world.case = f"{bits}: {count} {dtype}"
                parts = ref.inputs(world, dtype, count, "outliers")
                mine = parts[world.rank].to(here)
                got = altorch.ops.all_reduce_quantized(mine, bits)
                if count < 100_000:
                    ref.check(world, got, parts, bits)
                cpu = altorch.ops.all_reduce_quantized(parts[world.rank], bits)
                assert got.cpu().equal(cpu), f"{world.case}: the CPU has other bits"
                world.case += ", misaligned"
                odd = torch.cat([mine[:1], mine])[1:]
                assert altorch.ops.all_reduce_quantized(odd, bits).equal(got)
        for factor in (2.0**-120, 2.0**-118, 2.0**-116, 1e34, 1e36):
            world.case = f"{bits}: normal numbers times {factor}"
            part = ref.inputs(world, torch.float32, 70_001, "normal")[world.rank] * factor
            got = altorch.ops.all_reduce_quantized(part.to(here), bits)
            cpu = altorch.ops.all_reduce_quantized(part, bits)
            assert got.cpu().equal(cpu), f"{world.case}: the CPU has other bits"


@on_ranks(2, 3, 4)
def test_the_error_is_below_the_bound_and_the_bits_are_the_cpus(world):
    check_all(world)


@pytest.mark.parametrize("route", ["cuda=host_staged", "cuda=host_relay", "cuda=nccl"])
def test_by_every_route(route):
    with Cluster(2, env={"ALTORCH_ROUTE": route}) as cluster:
        cluster.check(runs_by, deadline=120)


def runs_by(world):
    if not co_resident(world):
        pytest.skip("ranks share a GPU without MPS")
    check_all(world)


@on_ranks(2, 4)
def test_graphs(world):
    here = device(world)
    if not can_be_captured(world):
        pytest.skip("ranks share a GPU, on which no kernel can wait for another")
    x = torch.zeros(5000, dtype=torch.bfloat16, device=here)
    altorch.ops.all_reduce_quantized(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = altorch.ops.all_reduce_quantized(x)
    for _ in range(3):
        parts = ref.inputs(world, torch.bfloat16, 5000, "normal")
        x.copy_(parts[world.rank])
        graph.replay()
        torch.cuda.synchronize()
        ref.check(world, y, parts, 8)


@on_ranks(2)
def test_streams_and_other_calls_between(world):
    here = device(world)
    side = torch.cuda.Stream()
    for turn in range(20):
        parts = ref.inputs(world, torch.float32, 40_000 + turn, "normal")
        mine = parts[world.rank].to(here)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            got = altorch.ops.all_reduce_quantized(mine, mean=True)
        z = torch.full((300_000,), float(world.rank), device=here)
        dist.all_gather_into_tensor(z.new_empty(600_000), z)
        torch.cuda.current_stream().wait_stream(side)
        ref.check(world, got, parts, 8, mean=True)


@on_ranks(2, 3)
def test_ranks_that_differ_are_told(world):
    here = device(world)
    if not world.is_al or not co_resident(world):
        pytest.skip("one kernel does it only where the ranks' kernels run at the same time")
    whole = torch.ones(5000, device=here)
    others = [
        lambda group: altorch.ops.all_reduce_quantized(whole[1:], group=group),
        lambda group: altorch.ops.all_reduce_quantized(whole.half(), group=group),
        lambda group: altorch.ops.all_reduce_quantized(whole, "fp8", group),
        lambda group: altorch.ops.all_reduce_quantized(whole, 8, group, mean=True),
    ]
    for call in others:
        group = dist.new_group()
        altorch.ops.all_reduce_quantized(whole, group=group)
        with pytest.raises(RuntimeError, match="must make the same calls in the same order"):
            call(group) if world.rank == 0 else altorch.ops.all_reduce_quantized(whole, group=group)
            torch.cuda.synchronize()
            dist.barrier(group)
    assert altorch.ops.all_reduce_quantized(whole).sub(world.size).abs().max() < 0.1
