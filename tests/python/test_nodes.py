"""Groups that span nodes: what goes through memory on each, and what goes wrong there. ALTORCH_NODE cuts it."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster
from launching import backend_under_test

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al", reason="nodes are cut for backend al: ALTORCH_TEST_BACKEND is another"
)
CARRIERS = pytest.mark.parametrize("carrier", ["mpi", "gloo"])
SECONDS_TO_NOTICE = 10


def env_of(carrier, nodes):
    return {"ALTORCH_TEST_NODES": str(nodes)} | ({"ALTORCH_MPI": "none"} if carrier == "gloo" else {})


def routes(group=None):
    from altorch._extension import extension

    group = group or dist.group.WORLD
    rows = extension().statistics(group._get_backend(torch.device("cpu")))
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
    return routes()


@CARRIERS
@pytest.mark.parametrize(("size", "nodes"), [(3, 2), (4, 2), (5, 3)])
def test_collectives_of_several_nodes(carrier, size, nodes):
    with Cluster(size, launcher="plain", env=env_of(carrier, nodes)) as cluster:
        for taken in cluster.check(everything, deadline=120):
            for operation in ("all_reduce", "all_gather", "barrier"):
                assert taken[operation] == "hierarchical", taken


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
