# SPDX-License-Identifier: BSD-3-Clause
"""Memory for NCCL: an allocator for torch.cuda.MemPool, and the registration of what a pool holds."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from altorch._extension import extension

if TYPE_CHECKING:
    import torch


@functools.cache
def mem_allocator() -> Any:
    """Allocates by ncclMemAlloc: `torch.cuda.MemPool(backend.mem_allocator)`."""
    from torch.cuda.memory import CUDAPluggableAllocator

    compiled = extension()
    if reason := compiled.nccl_allocator_unsupported_reason():
        raise RuntimeError(f"altorch: {reason}")
    return CUDAPluggableAllocator(compiled.__file__, "altorch_nccl_allocate", "altorch_nccl_free").allocator()


def register_mem_pool(backend: Any, pool: torch.cuda.MemPool, symmetric: bool) -> None:
    for segment in pool.snapshot():
        backend.add_buffer(segment["address"], segment["total_size"], symmetric)


def deregister_mem_pool(backend: Any, pool: torch.cuda.MemPool) -> None:
    for segment in pool.snapshot():
        backend.remove_buffer(segment["address"])
