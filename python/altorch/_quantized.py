# SPDX-License-Identifier: BSD-3-Clause
"""altorch.ops.all_reduce_quantized, for eager calls, over any backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_NAME = "altorch.ops.all_reduce_quantized"
_UNIT = 840  # a chunk's elements are a multiple (csrc/reduction/quantized.h)
_TYPES = (torch.float16, torch.bfloat16, torch.float32)


def is_float8(bits: int | str) -> bool:
    """Whether `bits` means float8_e4m3fn. Raises ValueError if it is neither 8 nor "fp8"."""
    if bits not in (8, "fp8"):
        raise ValueError(f'{_NAME}: bits is {bits!r}, and may be 8 (int8) or "fp8" (float8_e4m3fn)')
    return bits == "fp8"


def all_reduce_quantized(tensor: Tensor, float8: bool, group: ProcessGroup, mean: bool) -> Tensor:
    check(tensor)
    ranks = group.size()
    if ranks == 1:
        return tensor.resolve_neg().clone(memory_format=torch.contiguous_format)
    if (result := _in_one_kernel(tensor, float8, mean, group)) is not None:
        return result
    reduce = _one_shot if ranks == 2 else _two_shot
    return reduce(tensor, float8, mean, group)


def _in_one_kernel(tensor: Tensor, float8: bool, mean: bool, group: ProcessGroup) -> Tensor | None:
    """The result, or None if no single kernel serves this tensor and group."""
    from altorch import _backend
    from altorch._extension import extension

    if not tensor.is_cuda:
        return None
    backend = _backend.carrying(group._get_backend(tensor.device))
    if not isinstance(backend, extension().Backend):
        return None
    return backend.all_reduce_quantized(tensor, float8, mean)


def check(tensor: Tensor) -> None:
    """Raises ValueError or NotImplementedError on this rank only."""
    if tensor.layout != torch.strided:
        raise ValueError(f"{_NAME} takes dense tensors, and not {tensor.layout}; call to_dense() before")
    if tensor.dtype not in _TYPES:
        raise ValueError(
            f"{_NAME} takes float16, bfloat16 and float32, and not {str(tensor.dtype).removeprefix('torch.')}; "
            "convert the tensor, or call all_reduce"
        )
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise NotImplementedError(
            f"{_NAME} has no gradient, and its tensor requires one; call it under torch.no_grad()"
        )


def _one_shot(tensor: Tensor, float8: bool, mean: bool, group: ProcessGroup) -> Tensor:
    """Between two ranks: an all_gather of packs, then each rank sums them all."""
    from altorch._extension import extension

    engine = extension()
    values = tensor.resolve_neg().contiguous()
    own = engine.quantize(values, 1, float8, mean)
    chunks = own.new_empty(group.size(), own.shape[1])
    dist.all_gather_into_tensor(chunks, own, group=group)
    result = torch.empty_like(values)
    engine.sum_quantized(chunks, result, _factor(group, mean), float8)
    return result


def _two_shot(tensor: Tensor, float8: bool, mean: bool, group: ProcessGroup) -> Tensor:
    """Among more ranks: an all_to_all of packs, a sum of one chunk on each rank, and an all_gather of packed sums."""
    from altorch._extension import extension

    engine = extension()
    values = tensor.resolve_neg().contiguous()
    own = engine.quantize(values, group.size(), float8, mean)
    chunks = torch.empty_like(own)
    dist.all_to_all_single(chunks, own, group=group)
    size = -(-values.numel() // (group.size() * _UNIT)) * _UNIT
    sums = torch.empty(size, dtype=torch.float32, device=values.device)
    engine.sum_quantized(chunks, sums, _factor(group, mean), float8)
    packed_sums = engine.quantize(sums, 1, float8, mean)
    chunks = packed_sums.new_empty(group.size(), packed_sums.shape[1])
    dist.all_gather_into_tensor(chunks, packed_sums, group=group)
    result = torch.empty_like(values)
    engine.dequantize(chunks, result, float8)
    return result


def _factor(group: ProcessGroup, mean: bool) -> float:
    return 1 / group.size() if mean else 1.0


def ddp_hook(
    reduce: Callable[[Tensor, ProcessGroup | None], Tensor],
) -> Callable[[Any, dist.GradBucket], torch.futures.Future[Tensor]]:
    """A communication hook of DDP, which calls reduce(bucket, group) on a stream of its own."""
    streams: dict[torch.device, torch.cuda.Stream] = {}

    def hook(state: ProcessGroup | None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        gradients = bucket.buffer()
        if not gradients.is_cuda:
            done: torch.futures.Future[Tensor] = torch.futures.Future()
            done.set_result(reduce(gradients, state))
            return done
        device = gradients.device
        if device not in streams:
            streams[device] = torch.cuda.Stream(device)
        stream = streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        done = torch.futures.Future(devices=[device])
        with torch.cuda.stream(stream):
            gradients.record_stream(stream)
            done.set_result(reduce(gradients, state))
        return done

    # DDP checks the annotations, and `from __future__ import annotations` makes strings of them.
    hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]}
    return hook
