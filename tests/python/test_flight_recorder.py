"""What torch's flight recorder says of a job in which nothing is wrong."""

from __future__ import annotations

import json

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks


def entries():
    recorder = torch._C._distributed_c10d
    return json.loads(recorder._dump_fr_trace_json(includeCollectives=True, backend="al")).get("entries", [])


@on_ranks(2, env={"TORCH_FR_BUFFER_SIZE": "200"})
def test_a_healthy_job_does_not_look_hung(world):
    if not world.is_al or not getattr(dist.distributed_c10d, "FlightRecorderHook", None):
        pytest.skip("this torch does not record what al carries")
    before = len(entries())
    tensor, peer = torch.ones(4), 1 - world.rank
    for asynchronous in (False, True):
        for call in (
            lambda: dist.all_reduce(tensor, async_op=asynchronous),  # noqa: B023
            lambda: dist.broadcast(tensor, 0, async_op=asynchronous),  # noqa: B023
            lambda: dist.all_gather_into_tensor(torch.ones(8), tensor, async_op=asynchronous),  # noqa: B023
            lambda: dist.barrier(async_op=asynchronous),  # noqa: B023
        ):
            work = call()
            if work is not None:
                work.wait()
    dist.all_reduce_coalesced([tensor, tensor])
    for work in (dist.isend(tensor, peer), dist.irecv(torch.ones(4), peer)):
        work.wait()
    found = entries()[before:]
    assert len(found) >= 11
    hung = [entry for entry in found if entry["state"] != "completed" and not entry["retired"]]
    assert not hung, hung
