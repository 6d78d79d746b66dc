# SPDX-License-Identifier: BSD-3-Clause
"""Groups of GPUs that span nodes, by the route `hierarchical`: ALTORCH_NODE cuts this machine into nodes.

On two GPUs the ranks of nodes 0,0,1,1 reach each other by `peer`, those of nodes 0,1,0,1 by `host_staged`, for they
share a GPU. The rails go by NCCL where each rank has a GPU of its own: NCCL_HOSTID, which differs by node here, makes
that one of each node. Else, and with the same NCCL_HOSTID on all ranks, they go by `host_relay`.
"""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster
from test_cuda import GPUS, all_ranks, close, device, wide

import altorch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")]
SIZES = (0, 1, 7, 1003, 70_001, 3_000_001)
NODES = ["0,0,1,1", "0,1,0,1", "0,0,1", "1,0,0,1,0"]


RAILS: dict[str, dict[str, str]] = {"nccl": {}, "host_relay": {"NCCL_HOSTID": "one"}}


def on_nodes(nodes: str, rails: str) -> Cluster:
    env = {"ALTORCH_TEST_NODES": nodes, "ALTORCH_ROUTE": "cuda=hierarchical"} | RAILS[rails]
    return Cluster(nodes.count(",") + 1, launcher="plain", env=env)


def calls(world, dtype):
    here = device(world)
    kind = getattr(torch, dtype)
    for count in SIZES:
        world.case = f"{count} {dtype}"
        parts = all_ranks(world, count, dtype)
        total = sum(wide(part) for part in parts)
        x = parts[world.rank].to(here)
        dist.all_reduce(x)
        close(x, total, dtype)
        for root in (0, world.size - 1):
            x = parts[world.rank].to(here)
            dist.broadcast(x, root)
            assert torch.equal(x.cpu(), parts[root])
        gathered = torch.empty(world.size * count, dtype=kind, device=here)
        dist.all_gather_into_tensor(gathered, parts[world.rank].to(here))
        assert torch.equal(gathered.cpu(), torch.cat(parts))
        lengths = [count + rank for rank in range(world.size)]
        uneven = [torch.empty(length, dtype=kind, device=here) for length in lengths]
        dist.all_gather(uneven, torch.full((lengths[world.rank],), world.rank, dtype=kind, device=here))
        assert all(part.eq(rank).all() for rank, part in enumerate(uneven))
        blocks = all_ranks(world, count * world.size, dtype, seed=1)
        out = torch.empty(count, dtype=kind, device=here)
        dist.reduce_scatter_tensor(out, blocks[world.rank].to(here))
        close(out, sum(wide(block) for block in blocks)[count * world.rank :][:count], dtype)
        exchanged = torch.empty(world.size * count, dtype=kind, device=here)
        dist.all_to_all_single(exchanged, blocks[world.rank].to(here))
        want = [block[count * world.rank :][:count] for block in blocks]
        assert torch.equal(exchanged.cpu(), torch.cat(want))
        splits_and_lists(world, [block.to(here) for block in want], blocks[world.rank].to(here))


def splits_and_lists(world, want, blocks):
    """By another route: a rank does not know the other ranks' splits."""
    count = want[0].numel()
    lists = [torch.empty_like(block) for block in want]
    dist.all_to_all(lists, [blocks[count * peer :][:count] for peer in range(world.size)])
    assert all(torch.equal(got, block) for got, block in zip(lists, want, strict=True))
    sent = [world.rank + 2 * peer for peer in range(world.size)]
    taken = [peer + 2 * world.rank for peer in range(world.size)]
    x = torch.full((sum(sent),), world.rank, dtype=blocks.dtype, device=blocks.device)
    out = torch.empty(sum(taken), dtype=blocks.dtype, device=blocks.device)
    dist.all_to_all_single(out, x, taken, sent)
    assert out.tolist() == [peer for peer, count in enumerate(taken) for _ in range(count)]


def means(world, dtype):
    """By another route where a rank is alone on its node."""
    for count in SIZES:
        parts = all_ranks(world, count, dtype)
        x = parts[world.rank].to(device(world))
        dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True).wait()
        close(x, sum(wide(part) for part in parts) / world.size, dtype)


def calls_by_the_route(world, dtype):
    from altorch import stats

    calls(world, dtype)
    for operation in ("all_reduce", "broadcast", "all_gather", "reduce_scatter"):
        routes = {row["route"] for row in stats() if row["operation"] == operation}
        assert routes == {"cuda:hierarchical"}, operation
    nodes = os.environ["ALTORCH_TEST_NODES"].split(",")
    even = len({nodes.count(node) for node in nodes}) == 1
    routes = {row["route"] for row in stats() if row["operation"] == "all_to_all"}
    assert ("cuda:hierarchical" in routes) == even and len(routes) == 1 + even, routes
    if getattr(torch, dtype).is_floating_point:
        means(world, dtype)
    dist.barrier()


@pytest.mark.parametrize("rails", RAILS)
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_each_operation(nodes, dtype, rails):
    with on_nodes(nodes, rails) as cluster:
        cluster.check(calls_by_the_route, dtype=dtype, deadline=120)


def a_graph(world):
    here = device(world)
    x = torch.zeros(300_000, device=here)
    blocks, exchanged = torch.zeros_like(x), torch.zeros_like(x)
    dist.all_reduce(x)
    dist.all_to_all_single(exchanged, blocks)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
        dist.all_to_all_single(exchanged, blocks)
    for turn in range(5):
        parts = all_ranks(world, 300_000, "float32", seed=turn)
        x.copy_(parts[world.rank])
        blocks.copy_(x)
        graph.replay()
        close(x, sum(wide(part) for part in parts), "float32")
        want = [part.chunk(world.size)[world.rank] for part in parts]
        assert torch.equal(exchanged.cpu(), torch.cat(want))


@pytest.mark.skipif(GPUS < 2, reason="two GPUs are needed: graphs hold `peer`, and not `host_staged`")
def test_graphs():
    with on_nodes("0,0,1,1", "nccl") as cluster:
        cluster.check(a_graph, deadline=60)


def a_window(world, count):
    here = device(world)
    tensor = altorch.empty(world.size, count, dtype=torch.int64, device=here).zero_()
    torch.cuda.synchronize()
    window = altorch.new_window(tensor)
    assert window.route == "host_relay"
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for turn in range(3):
        mine = torch.arange(count, device=here) + 1000 * world.rank + turn
        window.put_signal(mine, after, world.rank * count)
        window.wait_signal(before)
        assert torch.equal(tensor[before], mine + 1000 * (before - world.rank))
        back = torch.empty_like(mine)
        window.get(back, after, world.rank * count)
        assert torch.equal(back, mine)
        window.fence()
    tensor[world.rank].zero_()
    window.fence()
    for rank in range(world.size):
        window.accumulate(torch.ones_like(mine), rank, rank * count)
    drawn = window.fetch_add(0, world.size * count - 1, 1)
    window.fence()
    assert tensor[world.rank][: count - 1].eq(world.size).all()
    window.tensor_deregister()
    return drawn


@pytest.mark.parametrize("nodes", ["0,1", "0,0,1"])
@pytest.mark.parametrize("count", [3, 100_001])
def test_windows(nodes, count):
    with on_nodes(nodes, "host_relay") as cluster:
        drawn = cluster.check(a_window, count=count, deadline=60)
        assert len(set(drawn)) == len(drawn), "two ranks have drawn one number"


def waits_for_rank_1(world):
    here = device(world)
    tensor = altorch.empty(1000, device=here).zero_()
    torch.cuda.synchronize()
    window = altorch.new_window(tensor)
    window.fence()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"rank 1 .*(lost|ended)"):
        for _ in range(1000):
            window.put(tensor, 1)
            window.wait_signal(1)
            torch.cuda.synchronize()
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
    return time.monotonic() - began


def test_windows_end_with_their_peer():
    with on_nodes("0,1", "host_relay") as cluster:
        waited, died = cluster.run(waits_for_rank_1, deadline=60)
        assert died.status == "died"
        assert waited.ok, waited.report()
        assert waited.value < 5 * PATIENCE


def loses_rank_3(world):
    here = device(world)
    x = torch.ones(3_000_001, device=here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if world.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        for _ in range(1000):
            dist.all_reduce(x)
            torch.cuda.synchronize()
    return time.monotonic() - began


@pytest.mark.parametrize("rails", RAILS)
@pytest.mark.parametrize("nodes", NODES[:2])
def test_a_lost_rank_is_an_error_on_the_others(nodes, rails):
    with on_nodes(nodes, rails) as cluster:
        outcomes = cluster.run(loses_rank_3, deadline=60)
        assert outcomes[3].status == "died"
        for outcome in outcomes[:3]:
            assert outcome.ok, outcome.report()
            assert outcome.value < 5 * PATIENCE
