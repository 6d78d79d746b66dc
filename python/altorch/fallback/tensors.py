# SPDX-License-Identifier: BSD-3-Clause
"""Tensors as the engine takes them: contiguous. Lists of tensors: their elements, one tensor behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def flat_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous()


def joined(tensors: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Their elements, one tensor behind the other."""
    flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=like.dtype)
    place = 0
    for tensor in tensors:
        flat[place : place + tensor.numel()] = tensor.detach().reshape(-1)
        place += tensor.numel()
    return flat


def store_back(tensor: torch.Tensor, flat: torch.Tensor) -> None:
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))


def store_blocks(tensors: Sequence[torch.Tensor], flat: torch.Tensor) -> None:
    place = 0
    for tensor in tensors:
        tensor.detach().copy_(flat[place : place + tensor.numel()].view(tensor.shape))
        place += tensor.numel()
