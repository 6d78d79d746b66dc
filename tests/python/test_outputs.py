# SPDX-License-Identifier: BSD-3-Clause
"""Outputs that cannot be written, or not by another thread."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks


@on_ranks(2)
@pytest.mark.parametrize("mode", ["sync", "async", "poll"])
def test_elements_that_share_memory_are_refused(world, mode):
    if not world.is_al:
        pytest.skip("what Gloo says here is Gloo's affair")
    group = dist.new_group()
    if world.rank == 0:
        dist.broadcast(torch.ones(4), 0, group=group)
        time.sleep(0.5)
    else:
        tensor = torch.zeros(1).expand(4)
        with pytest.raises(ValueError, match="share memory"):
            work = dist.broadcast(tensor, 0, group=group, async_op=mode != "sync")
            if mode == "poll":
                time.sleep(1)  # the progress thread ends it
            if work is not None:
                work.wait()
        with pytest.raises(ValueError, match="share memory"):
            dist.irecv(tensor, 0, group=group)
    got = torch.zeros(4)
    dist.broadcast(got if world.rank else torch.zeros(1).expand(4), 0)  # the root's is read only
    assert got.eq(0).all()


@on_ranks(2)
def test_results_in_inference_mode(world):
    """Stored by whichever thread ends the operation: that mode holds on the caller's thread alone."""
    with torch.inference_mode():
        out = [torch.zeros(4) for _ in range(world.size)]
        if world.rank == 0:
            time.sleep(0.2)
        work = dist.all_gather(out, torch.full((4,), float(world.rank)), async_op=True)
        time.sleep(0.7)
        work.wait()
    for rank, tensor in enumerate(out):
        assert tensor.eq(rank).all() and tensor.is_inference()


@on_ranks(2)
def test_inference_tensors_outside_of_inference_mode(world):
    if not world.is_al:
        pytest.skip("Gloo copies as the caller's mode is")
    with torch.inference_mode():
        out = [torch.zeros(4) for _ in range(world.size)]
    dist.all_gather(out, torch.full((4,), float(world.rank)))
    assert [int(tensor[0]) for tensor in out] == list(range(world.size))
