# SPDX-License-Identifier: BSD-3-Clause
"""Dispatch and combine in torch's operators and c10d's collectives, around the local steps of _host or _reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from altorch.token_switch._routing import Handle

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# As in csrc/backend/cuda/token_gather.cpp, for ranks with GPUs. Up to so many bytes a rank, the
# copy into one buffer takes less time than a second collective.
PACKED = 1 << 20
ALIGNMENT = 128  # of a part: strides of 16 elements let kernels move 16 bytes at once


def dispatch(
    handle: Handle,
    group: ProcessGroup,
    tokens: Tensor,
    weights: Tensor | None,
    scales: Tensor | None,
    out: tuple[Tensor | None, ...],
) -> None:
    parts = [_movable(each) for each in (tokens, weights, scales) if each is not None]
    rows = gather_rows(parts, handle.rows, group)
    wanted = (rows[1], *out[1:3]) if weights is not None and out[1] is not None else ()
    handle.steps.scatter(handle, rows[0], _movable(out[0]), *wanted)
    if scales is not None:
        handle.steps.scatter(handle, rows[-1], _movable(out[3]))


def combine(handle: Handle, group: ProcessGroup, expert_tokens: Tensor, out: Tensor | None) -> Tensor:
    parts = handle.steps.sum_rows(handle, expert_tokens)
    total = out
    if total is None or handle.rows != handle.count or not total.is_contiguous():
        total = parts.new_empty(handle.rows, parts.shape[2])
    if parts.numel():
        dist.reduce_scatter_tensor(total, parts.flatten(0, 1), group=group)
    if out is None:  # no view: autograd lets no caller change a view of a function's in place
        return total.resize_(handle.count, parts.shape[2])
    return out if total is out else out.copy_(total[: handle.count])


def _movable(tensor: Tensor) -> Tensor:
    """In a type that every backend and kernel moves: of float8 its bytes."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


def gather_rows(parts: Sequence[Tensor], rows: int, group: ProcessGroup) -> list[Tensor]:
    """[ranks, rows, width] of each part, which has at most so many rows; the rows behind are undefined."""
    ends, end = [], 0
    for part in parts:
        end += -(-part.shape[1] * part.element_size() // ALIGNMENT) * ALIGNMENT
        ends.append(end)
    if len(parts) == 1 or rows * end > PACKED:
        return [_gather(_padded(part, rows), group) for part in parts]
    packed = torch.empty(rows, end, dtype=torch.uint8, device=parts[0].device)
    begins = [0, *ends[:-1]]
    for part, begin in zip(parts, begins, strict=True):
        width = part.shape[1] * part.element_size()
        packed[: len(part), begin : begin + width].view(part.dtype).copy_(part)
    gathered = _gather(packed, group)
    return [
        gathered[:, :, begin : begin + part.shape[1] * part.element_size()].view(part.dtype)
        for part, begin in zip(parts, begins, strict=True)
    ]


def _padded(part: Tensor, rows: int) -> Tensor:
    if len(part) == rows:
        return part.contiguous()
    padded = part.new_empty(rows, part.shape[1])
    padded[: len(part)] = part
    return padded


def _gather(part: Tensor, group: ProcessGroup) -> Tensor:
    gathered = part.new_empty(group.size() * len(part), part.shape[1])
    if part.numel():
        dist.all_gather_into_tensor(gathered, part, group=group)
    return gathered.unflatten(0, (group.size(), len(part)))
