# SPDX-License-Identifier: BSD-3-Clause
"""altorch.make_backend(): groups that torch.distributed does not manage, as torchft makes them."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, on_ranks
from test_healthy_end import run_ranks

import altorch

# As in docs/frameworks.md.
WITHOUT_A_DEFAULT_GROUP = """
import os, torch, torch.distributed as dist, altorch
from datetime import timedelta
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0)
alive = list(range(size))
for life in range(3):  # the last rank leaves, life after life
    if rank not in alive:
        break
    backend = altorch.make_backend(
        dist.PrefixStore(f"life{life}", store), alive.index(rank), len(alive), name=f"life {life}", global_ranks=alive
    )
    group = dist.ProcessGroup(dist.PrefixStore(f"torch{life}", store), alive.index(rank), len(alive))
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    x = torch.full((1000,), float(rank + 1))
    group.allreduce([x]).wait()
    assert x.eq(sum(each + 1 for each in alive)).all()
    parts = [torch.empty(3) for _ in alive]
    group.allgather([parts], [torch.full((3,), float(rank))]).wait()
    assert [int(part[0]) for part in parts] == alive
    backend.shutdown()
    alive.pop()
assert not dist.is_initialized()
store.set(f"left{rank}", "1")
if rank == 0:
    store.wait([f"left{each}" for each in range(size)])
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_groups_are_made_and_made_again_without_a_default_group(nodes):
    program = WITHOUT_A_DEFAULT_GROUP
    if nodes == 2:
        program = (
            "import os; os.environ['ALTORCH_NODE'] = 'node' + str(int(os.environ['RANK']) % 2)\n" + program
        )
    codes, said = run_ranks(program, 4)
    assert codes == [0] * 4, said
    assert said == [""] * 4


@on_ranks(2)
def test_beside_a_default_group(world):
    store = dist.PrefixStore(f"beside {world.size}", dist.distributed_c10d._get_default_store())
    seconds = timedelta(seconds=60 * PATIENCE)
    made = altorch.make_backend(store, world.rank, world.size, timeout=seconds, name="mine")
    x = torch.ones(7)
    made.allreduce([x]).wait()
    assert x.tolist() == [2.0] * 7
    with pytest.raises((ValueError, RuntimeError), match="'mine'"):
        made.allgather([[torch.ones(1)]], [torch.ones(1)])
    dist.all_reduce(x)
    assert x.tolist() == [4.0] * 7
    made.shutdown()


@on_ranks(1)
def test_what_is_no_rank_is_refused(world):
    store = dist.PrefixStore("refused", dist.distributed_c10d._get_default_store())
    for rank, size, ranks in ((1, 1, None), (-1, 2, None), (0, 2, [0]), (0, 2, [3, 3]), (0, 0, None)):
        with pytest.raises(ValueError, match="make_backend"):
            altorch.make_backend(store, rank, size, global_ranks=ranks)
    with pytest.raises(TypeError, match=r"altorch\.Options"):
        altorch.make_backend(store, 0, 1, options=7)
    made = altorch.make_backend(dist.PrefixStore("alone", store), 0, 1)
    x = torch.ones(2)
    made.allreduce([x]).wait()
    assert x.tolist() == [1.0, 1.0]


@on_ranks(2)
def test_a_rank_that_does_not_come_is_named(world):
    if world.rank == 0:
        store = dist.PrefixStore("absent", dist.distributed_c10d._get_default_store())
        with pytest.raises(RuntimeError, match=r"rank 1|1 of 2"):
            altorch.make_backend(store, 0, 2, timeout=timedelta(seconds=2 * PATIENCE), name="absent")
    dist.barrier()
