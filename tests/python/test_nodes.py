# SPDX-License-Identifier: BSD-3-Clause
"""Groups that span nodes: what goes through memory on each, and what goes wrong there. ALTORCH_NODE cuts it."""

from __future__ import annotations

import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster

from tests.ranks.launch import backend_under_test

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al", reason="nodes are cut for backend al: ALTORCH_TEST_BACKEND is another"
)
CARRIERS = pytest.mark.parametrize("carrier", ["mpi", "gloo"])
SECONDS_TO_NOTICE = 10


# The node of each rank: one rank alone, in turns, two alone, all numbers different and none in a
# row.
UNEVEN = ["0,0,0,1", "0,1,0,1", "0,0,1,2", "0,1,2,1,2,2"]


def env_of(carrier, nodes):
    return {"ALTORCH_TEST_NODES": str(nodes)} | ({"ALTORCH_MPI": "none"} if carrier == "gloo" else {})


def routes(group=None):
    from altorch._extension import extension

    group = group or dist.group.WORLD
    rows = extension().stats(group._get_backend(torch.device("cpu")))
    return {row["operation"]: row["route"].partition(":")[2] for row in rows}


def everything(world):
    """Random data against float64, on every size class, in place and not; and what carried it."""
    for size in (0, 1, 1000, 20_000, 300_001):
        inputs = [torch.randn(size, generator=world.generator(rank)) for rank in range(world.size)]
        expected = torch.stack(inputs).double().sum(0)
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
            tensor = inputs[world.rank].to(dtype, copy=True)
            dist.all_reduce(tensor)
            assert torch.allclose(tensor.double(), expected, rtol=tolerance, atol=tolerance * world.size), (
                size,
                dtype,
            )
            world.identical(tensor)
            mean = inputs[world.rank].to(dtype, copy=True)
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            assert torch.allclose(
                mean.double(), expected / world.size, rtol=tolerance, atol=tolerance * world.size
            )
        for root in range(world.size):
            shown = inputs[world.rank].clone()
            dist.broadcast(shown, root)
            assert torch.equal(shown, inputs[root])
            reduced = inputs[world.rank].clone()
            dist.reduce(reduced, root)
            if world.rank == root:
                assert torch.allclose(reduced.double(), expected, rtol=1e-5, atol=1e-5 * world.size)
            else:
                assert torch.equal(reduced, inputs[world.rank])
        gathered = torch.empty(world.size * size)
        dist.all_gather_into_tensor(gathered, inputs[world.rank])
        assert torch.equal(gathered, torch.cat(inputs))
    dist.barrier()
    for each in (0, 1, 5, 3000, 100_003):
        blocks(world, [each] * world.size)
        blocks(world, [each * rank // 2 for rank in range(world.size)])
    return routes()


def blocks(world, counts):
    """Every operation with a block for each rank; `counts`: elements of those that a rank has, or gets."""
    rank, size = world.rank, world.size
    all_ranks = [torch.randn(sum(counts), generator=world.generator(each)) for each in range(size)]
    own, own_count = list(all_ranks[rank].split(counts)), counts[rank]
    contributions = [all_ranks[each][: counts[each]] for each in range(size)]
    gathered = [torch.empty(count) for count in counts]
    dist.all_gather(gathered, contributions[rank])
    assert torch.equal(torch.cat(gathered), torch.cat(contributions))
    sums = torch.stack(all_ranks).double().sum(0).split(counts)[rank]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        for op, scale in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, size)):
            result = torch.empty(own_count, dtype=dtype)
            dist.reduce_scatter(result, [block.to(dtype) for block in own], op)
            limits = {"rtol": tolerance, "atol": tolerance * size}
            assert torch.allclose(result.double(), sums / scale, **limits), (counts, dtype, op)
    received = [torch.empty(own_count) for _ in counts]
    dist.all_to_all(received, own)
    for each in range(size):
        assert torch.equal(received[each], all_ranks[each].split(counts)[rank]), (counts, each)
    for root in range(size):
        dist.gather(contributions[rank], gathered if rank == root else None, root)
        assert rank != root or torch.equal(torch.cat(gathered), torch.cat(contributions))
        mine = torch.empty(own_count)
        dist.scatter(mine, own if rank == root else None, root)
        assert torch.equal(mine, all_ranks[root].split(counts)[rank])
    if len(set(counts)) == 1:
        single = torch.empty(own_count)
        dist.reduce_scatter_tensor(single, all_ranks[rank].clone())
        assert torch.allclose(single.double(), sums, rtol=1e-5, atol=1e-5 * size)
        crossed = torch.empty(sum(counts))
        dist.all_to_all_single(crossed, all_ranks[rank])
        assert torch.equal(crossed, torch.cat(received))


HIERARCHICAL = ("all_reduce", "all_gather", "reduce_scatter", "barrier")


@CARRIERS
@pytest.mark.parametrize(
    ("size", "nodes"), [(3, 2), (4, 2), (5, 3), *((n.count(",") + 1, n) for n in UNEVEN)]
)
def test_collectives_of_several_nodes(carrier, size, nodes):
    with Cluster(size, launcher="plain", env=env_of(carrier, nodes)) as cluster:
        for taken in cluster.check(everything, deadline=120):
            for operation in HIERARCHICAL:
                assert taken[operation] == "hierarchical", taken
            for operation in ("all_to_all", "gather", "scatter"):
                assert taken[operation] != "hierarchical", taken


def parts_of_nodes(world):
    """Groups on one node, of one rank of each, and of some of both."""
    taken = {}
    for name, ranks in (("one node", [0, 1]), ("one of each", [1, 3]), ("three", [0, 2, 3])):
        group = dist.new_group(ranks)
        if world.rank in ranks:
            tensor = torch.full((70_000,), float(world.rank + 1))
            dist.all_reduce(tensor, group=group)
            assert (tensor == sum(rank + 1 for rank in ranks)).all()
            taken[name] = routes(group)["all_reduce"]
    return taken


@CARRIERS
def test_groups_of_some_ranks(carrier):
    with Cluster(4, launcher="plain", env=env_of(carrier, 2)) as cluster:
        for taken in cluster.check(parts_of_nodes, deadline=120):
            assert taken.get("one node", "shm") == "shm"
            assert taken.get("one of each") != "hierarchical"
            assert taken.get("three", "hierarchical") == "hierarchical"


def test_rules_are_for_numbers_of_nodes():
    rules = "all_reduce@4/2=ring,all_reduce@4/1=pairwise,all_reduce@2/1=rabenseifner,all_reduce@3/3=ring"
    with Cluster(4, launcher="plain", env=env_of("gloo", 2) | {"ALTORCH_ROUTE": rules}) as cluster:
        for taken in cluster.check(parts_of_nodes):
            assert taken.get("one node", "rabenseifner") == "rabenseifner"
            assert taken.get("one of each") != "rabenseifner"
            assert taken.get("three", "hierarchical") == "hierarchical"
        assert all(taken["all_reduce"] == "ring" for taken in cluster.check(everything, deadline=120))


def reduce_until_error(world, size):
    while True:
        try:
            dist.all_reduce(torch.ones(size))
        except Exception as error:
            return str(error)


def meet(world):
    dist.barrier()


@CARRIERS
@pytest.mark.parametrize("size", [16, 4_000_000])
@pytest.mark.parametrize("victim", [2, 3], ids=["leader", "follower"])
def test_a_rank_killed_inside_a_collective(carrier, size, victim):
    with Cluster(4, launcher="plain", env=env_of(carrier, 2)) as cluster:
        cluster.check(meet)
        killed_at = 0.0

        def kill():
            nonlocal killed_at
            time.sleep(0.5)
            cluster.kill(victim)
            killed_at = time.monotonic()

        outcomes = cluster.run(reduce_until_error, deadline=45, size=size, before_wait=kill)
        noticed = time.monotonic() - killed_at
        statuses = [outcome.status for outcome in outcomes]
        assert statuses == ["died" if rank == victim else "ok" for rank in range(4)], [
            o.report() for o in outcomes
        ]
        assert noticed < SECONDS_TO_NOTICE * PATIENCE, f"noticed after {noticed:.1f} s"
        for outcome in outcomes:
            assert outcome.status == "died" or f"{victim}" in outcome.value, outcome.value


def another_call(world):
    with pytest.raises(Exception, match=r"mismatch|another rank|called"):
        dist.all_reduce(torch.ones(1000 if world.rank < 2 else 1001))


@CARRIERS
def test_nodes_that_make_different_calls(carrier):
    with Cluster(4, launcher="plain", env=env_of(carrier, 2)) as cluster:
        cluster.check(another_call, deadline=60)


DEADLINE = 2


def wait_for(path):
    while not path.exists():
        time.sleep(0.02)


def one_is_late(world, late, folder):
    """How long the others wait for it, and what they are told."""
    group = dist.new_group(timeout=timedelta(seconds=DEADLINE))
    for _ in range(3):
        dist.all_reduce(torch.ones(100), group=group)
    Path(folder, f"rank {world.rank} is ready").touch()
    if world.rank == late:
        wait_for(Path(folder, "over"))
        return None
    wait_for(Path(folder, "call"))
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError) as missed:
        dist.all_reduce(torch.ones(100), group=group)
    took = time.monotonic() - began
    Path(folder, f"rank {world.rank} is told").touch()
    return took, str(missed.value)


def told_of(cluster, late, folder, stopped=None):
    """What each of four ranks was told."""

    def time_passes():
        for rank in range(4):  # none may be stopped while another still waits for its part of a call
            wait_for(folder / f"rank {rank} is ready")
        if stopped is not None:
            cluster.kill(stopped, signal.SIGSTOP)
        Path(folder, "call").touch()
        end = time.monotonic() + 20 * PATIENCE
        while len(list(folder.glob("*is told"))) < 3 - (stopped not in (None, late)):
            assert time.monotonic() < end
            time.sleep(0.02)
        if stopped is not None:
            cluster.kill(stopped, signal.SIGCONT)
        Path(folder, "over").touch()

    cluster.check(meet)
    return cluster.check(one_is_late, late=late, folder=str(folder), before_wait=time_passes)


def say_where_it_is(told, late):
    for rank, each in enumerate(told):
        if rank == late:
            continue
        took, message = each
        assert f"ranks not waiting in this group: {late}; rank {late}: in no call; last was " in message, (
            message
        )
        assert "last was all_reduce #3 (float32, 400 B), done " in message
        assert f"; its program is at {__file__}:" in message, message
        assert " in wait_for; this rank's call is all_reduce" in message
        assert DEADLINE <= took < DEADLINE + 2 * PATIENCE, took


@CARRIERS
@pytest.mark.parametrize("late", [0, 2, 3], ids=["coordinator", "leader", "follower"])
def test_a_late_rank_says_to_other_nodes_where_it_is(carrier, late, tmp_path):
    with Cluster(4, launcher="plain", env=env_of(carrier, 2)) as cluster:
        say_where_it_is(told_of(cluster, late, tmp_path), late)


@pytest.mark.parametrize("late", [0, 3])
def test_a_late_rank_says_so_over_a_network(nodes, late, tmp_path):
    """Where the numbers of its processes are the other node's own."""
    prefixes = [list(node.prefix) for node in nodes]
    env = {"MASTER_ADDR": nodes[0].address, "ALTORCH_MPI": "none"}
    with Cluster(4, launcher="torchrun", env=env, node_prefixes=prefixes) as cluster:
        say_where_it_is(told_of(cluster, late, tmp_path), late)


@pytest.mark.parametrize("stopped", [0, 1, 2, 3])
def test_a_late_rank_whose_node_cannot_be_reached(stopped, tmp_path):
    """The store and the coordinator are rank 0's; rank 2 is the one that is linked to it, for rank 3 too."""
    with Cluster(4, launcher="plain", env=env_of("gloo", 2)) as cluster:
        told, pids = told_of(cluster, 3, tmp_path, stopped), cluster.pids
    for rank, each in enumerate(told):
        if rank in (stopped, 3):
            continue
        took, message = each
        assert took < DEADLINE + 2 * PATIENCE, (took, message)
        if stopped == 3:
            assert f"; rank 3: its process {pids[3]} is stopped; this rank's call" in message
        elif stopped == 1:
            assert f"; its program is at {__file__}:" in message, message
        elif stopped == 2:
            assert "ranks not waiting in this group: 2, 3; this rank's call" in message, message
