# SPDX-License-Identifier: BSD-3-Clause
"""Tensors as the engine takes them: contiguous. Lists of tensors: their elements, one tensor behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` if it is contiguous, else a contiguous copy. Of a sparse one, which issue() refuses: an empty tensor."""
    if tensor.layout != torch.strided:
        return torch.empty(0, dtype=tensor.dtype)
    return tensor.detach().contiguous()


def joined(tensors: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """A new tensor of the type of `like` with the elements of all `tensors`."""
    flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=like.dtype)
    place = 0
    for tensor in tensors:
        flat[place : place + tensor.numel()] = tensor.detach().reshape(-1)
        place += tensor.numel()
    return flat


def store_back(tensor: torch.Tensor, flat: torch.Tensor) -> None:
    """Copies `flat` into `tensor`, unless they are the same memory."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))


def store_blocks(tensors: Sequence[torch.Tensor], flat: torch.Tensor) -> None:
    """Copies consecutive parts of `flat` into `tensors`."""
    place = 0
    for tensor in tensors:
        tensor.detach().copy_(flat[place : place + tensor.numel()].view(tensor.shape))
        place += tensor.numel()
