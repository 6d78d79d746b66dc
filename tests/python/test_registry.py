# SPDX-License-Identifier: BSD-3-Clause
"""torch's registry of works that no caller has waited for yet."""

from __future__ import annotations

import torch
import torch.distributed as dist
from harness import on_ranks
from torch.distributed import _functional_collectives as funcol


@on_ranks(1, 2)
def test_works_leave_the_registry_when_waited_for(world):
    size = torch._C._distributed_c10d._get_work_registry_size
    before = size()
    with funcol.allow_inflight_collective_as_graph_input_ctx():
        for _ in range(3):
            tensor = torch.ones(4)
            dist.all_reduce(tensor, async_op=True).wait()
            assert size() == before
        dist.all_reduce(tensor, async_op=True)
        torch.ops.c10d_functional.wait_tensor(tensor)
        assert tensor.eq(world.size**2).all()
        assert size() == before


@on_ranks(1, 2)
def test_tensors_of_synchronous_calls_can_be_waited_for(world):
    """Such a call may give torch no Work, and torch registers what it is given."""
    size = torch._C._distributed_c10d._get_work_registry_size
    before = size()
    with funcol.allow_inflight_collective_as_graph_input_ctx():
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        torch.ops.c10d_functional.wait_tensor(tensor)
        dist.broadcast(tensor, 0)
        torch.ops.c10d_functional.wait_tensor(tensor)
    assert tensor.eq(world.size).all()
    assert size() == before
