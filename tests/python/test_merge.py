# SPDX-License-Identifier: BSD-3-Clause
"""Groups that become one: torch's merge_remote_group()."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import CARRIERS, PATIENCE, Cluster
from test_survivors import use

import altorch

pytestmark = pytest.mark.skipif(
    not hasattr(dist.ProcessGroup, "merge_remote_group"), reason=f"torch {torch.__version__} merges no groups"
)


def two_groups_become_one(world, twice):
    """Halves of the world, each with a group of its own, meet in a store of which only they know."""
    use(world)
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = halves[world.rank // 2]
    place = dist.PrefixStore("rendezvous", dist.distributed_c10d._get_default_store())
    merged = own.merge_remote_group(place, 4, timedelta(seconds=20 * PATIENCE), "both")
    assert merged.size() == 4
    assert merged.group_name == "both"
    ranks = torch.zeros(4)
    ranks[merged.rank()] = world.rank
    merged.allreduce([ranks]).wait()
    assert sorted(ranks.tolist()) == [0, 1, 2, 3]
    if twice:  # disjoint ones, of one name, at the same time
        place = dist.PrefixStore(f"again {world.rank % 2}", dist.distributed_c10d._get_default_store())
        pair = own.merge_remote_group(place, 2, timedelta(seconds=20 * PATIENCE), "pair")
        x = torch.full((5,), float(world.rank))
        pair.allreduce([x]).wait()
        assert torch.equal(x, torch.full((5,), 2.0 + 2 * (world.rank % 2)))
    use(world)
    use(world, dist.new_group([3, 1, 0, 2]))
    return altorch.stats()[0]["route"].split(":")[0]


@pytest.mark.parametrize("route", ["shm", "mpi", "gloo", "nodes"])
def test_groups_are_merged(route):
    with Cluster(4, launcher="plain", env=CARRIERS[route]) as cluster:
        assert cluster.check(two_groups_become_one, twice=True) == [{"nodes": "mpi"}.get(route, route)] * 4


def a_rank_does_not_come(world):
    use(world)
    own = dist.new_group([world.rank], use_local_synchronization=True)
    place = dist.PrefixStore("rendezvous", dist.distributed_c10d._get_default_store())
    began = time.monotonic()
    if world.rank == 0:
        with pytest.raises(dist.DistBackendError, match="rank 2 has not come to make group"):
            own.merge_remote_group(place, 3, timedelta(seconds=1.5), "three")
        with pytest.raises(ValueError, match="more of them have come"):
            dist.PrefixStore("full", place).add("mergeGroupRank", 7)
            own.merge_remote_group(dist.PrefixStore("full", place), 3, timedelta(seconds=1), "three")
    if world.rank == 1:
        with pytest.raises(dist.DistBackendError, match="has not come"):
            own.merge_remote_group(place, 3, timedelta(seconds=1.5), "three")
    assert time.monotonic() - began < 10 * PATIENCE
    use(world)


def test_a_rank_that_does_not_come_to_a_merge_is_named():
    with Cluster(3, launcher="plain") as cluster:
        cluster.check(a_rank_does_not_come)
