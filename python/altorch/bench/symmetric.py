# SPDX-License-Identifier: BSD-3-Clause
"""torch's own kernels over symmetric memory, as contenders: all_reduce of buffers that all ranks have registered.

A floor rather than a peer: the tensors lie where the kernels want them, and no process group is asked. Source: torch's
torch.distributed._symmetric_memory and the operators of torch.ops.symm_mem.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from altorch.bench.cases import Buffers, Call

CHOICES = ("one_shot", "two_shot")


def unsupported_reason(device: torch.device) -> str | None:
    if device.type != "cuda":
        return "torch's symmetric memory is memory of GPUs"
    if not hasattr(torch.ops.symm_mem, "two_shot_all_reduce_"):
        return f"torch {torch.__version__} has no operators over symmetric memory"
    return None


def call(choice: str, buffers: Buffers, group: dist.ProcessGroup) -> Call:
    """all_reduce of as many buffers of the same size, in memory of their own. Collective. Checked on known values."""
    from torch.distributed import _symmetric_memory as symmetric

    like = buffers.large[0]
    tensors = []
    for _ in buffers.large:
        tensor = symmetric.empty(like.shape, dtype=like.dtype, device=like.device)
        symmetric.rendezvous(tensor, group=group)
        tensors.append(tensor)
    name = group.group_name

    def reduce(turn: int, lazy: bool) -> Any:
        tensor = tensors[turn % len(tensors)]
        if choice == "one_shot":
            return torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", name)
        return torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", name)

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    tensors[0].fill_(rank + 1)
    torch.cuda.synchronize()
    dist.barrier(group=group)
    result = reduce(0, False)
    if not torch.equal(result, torch.full_like(result, size * (size + 1) // 2)):
        raise AssertionError(f"symm:{choice} gave a wrong result on rank {rank}: {result[:4].tolist()} ...")
    for tensor in tensors:
        tensor.zero_()
    return reduce
