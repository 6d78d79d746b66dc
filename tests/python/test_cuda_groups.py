# SPDX-License-Identifier: BSD-3-Clause
"""Calls of two groups that are under way at once on the same GPUs."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from test_cuda import SPIN, device

pytestmark = pytest.mark.gpu
COUNT = 16 << 20


@on_ranks(2)
def test_a_kernel_that_waits_leaves_room_for_what_comes_before_another_groups_call(world):
    """Each rank waits in one group's call, and computes first before it makes the other group's.

    Their computation wants shared memory and registers that a multiprocessor with a block that waits may not have.
    """
    here = device(world)
    other = dist.new_group()
    matrix = torch.ones(2048, 2048, device=here, dtype=torch.bfloat16)
    tensors = [torch.ones(COUNT, device=here) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def compute():
        torch.cuda._sleep(2 * SPIN)
        return (matrix @ matrix).float().sum() + tensors[0].new_ones(1 << 20).amax(0)

    compute()
    for group, tensor in zip((None, other), tensors, strict=True):
        dist.all_reduce(tensor, group=group)
    for turn in range(3):
        for tensor in tensors:
            tensor.fill_(turn + world.rank)
        torch.cuda.synchronize()
        dist.barrier()
        for index, group in enumerate((None, other)):
            with torch.cuda.stream(streams[index]):
                if world.rank != index:
                    compute()
                dist.all_reduce(tensors[index], group=group)
        torch.cuda.synchronize()
        assert all(tensor.eq(2 * turn + 1).all() for tensor in tensors), turn
