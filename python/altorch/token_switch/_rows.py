# SPDX-License-Identifier: BSD-3-Clause
"""The all_gather of rows: tokens, weights and scales of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Up to so many bytes a rank, the copy into one buffer takes less time than a second collective.
PACKED = 1 << 20
ALIGNMENT = 128  # of a part: strides of 16 elements let kernels move 16 bytes at once


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
