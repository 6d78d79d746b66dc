# SPDX-License-Identifier: BSD-3-Clause
"""Operations beyond torch.distributed: all_reduce with a norm behind it, or in 8 bits; prefix and exact sums.

    import altorch.ops

    normed, x = altorch.ops.all_reduce_rms_norm(part, x, weight)
    y = altorch.ops.all_reduce_quantized(x)                                # 4/7 of the bytes of bfloat16
    begin = altorch.ops.scan(torch.tensor(len(mine)), exclusive=True)      # where this rank's part begins
    whole = altorch.ops.exact_sum(torch.stack(shards))                     # rounded once, of this rank's tensors

They are custom operators (`torch.ops.altorch`), so that torch.compile takes them, and work on groups of every backend:
over "al" a GPU does all of a norm in one kernel where that is quicker.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.fx
from torch import Tensor
from torch.nn import Parameter, functional
from torch.utils._python_dispatch import _get_current_dispatch_mode

from altorch import _quantized

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["all_reduce_quantized", "all_reduce_rms_norm", "exact_sum", "quantized_ddp_hook", "scan"]


def all_reduce_rms_norm(
    part: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    group: ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """An all_reduce and the RMS norm after it, as between two layers of a tensor-parallel transformer.

    It sums the `part` of all ranks and this rank's `residual`, and divides the rows of that sum by their root
    mean square. Collective over `group` (default: the whole world).

    `part`, `residual`: floating point, of the same shape, type and device; the last dimension is a row. `weight`: a
    number for each column. `eps` is added to the mean square.

    Returns `(normed, summed)`, new tensors: `summed = residual + all_reduce(part)`, and
    `normed = rms_norm(summed, weight, eps)`. The sums are the same, bit by bit, as those of the separate calls; the
    norm is computed in float32 (in float64 for float64) and rounded once. Without gradients: a tensor that requires
    one raises NotImplementedError, unless under `torch.no_grad()`. Errors are those of all_reduce, on every rank.
    """
    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    if chosen is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("altorch.ops.all_reduce_rms_norm: this rank is not part of the group")
    if not all(tensor is None or _is_plain(tensor) for tensor in (part, residual, weight)):
        normed, summed = torch.ops.altorch.all_reduce_rms_norm(part, residual, weight, eps, chosen.group_name)
        return normed, summed
    return _run(part, residual, weight, eps, chosen)


def all_reduce_quantized(
    x: Tensor, bits: int | str = 8, group: ProcessGroup | None = None, *, mean: bool = False
) -> Tensor:
    """The sum of `x` over all ranks, which send its values in 8 bits: a new tensor, the same bits on every rank.

    Ranks send 57 % of the bytes of bfloat16, or 29 % of those of float32. docs/quantized.md has the bound of the error:
    with `bits=8` (int8) at most 1/252 of the largest of the 14 values that share a scale, for each rank and once more
    for the sum; with `bits="fp8"` (float8_e4m3fn) about 1/16 of each value. Values are added in float32. A NaN or an
    infinity turns its 14 values into NaN. `mean`: the sum divided by the number of ranks.

    Collective over `group` (default: the whole world). `x`: float16, bfloat16 or float32, of one shape and type on all
    ranks; another type or another `bits` raises ValueError. Over "al", GPUs with NVLink run one kernel. Otherwise it
    calls all_to_all and all_gather of the group's backend, or all_gather alone between two ranks, and raises their
    errors; a CUDA graph can capture it if it can capture those. It is synchronous, in the order of the current stream,
    and has no gradient: a tensor that requires one raises NotImplementedError, unless under `torch.no_grad()`.
    """
    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    if chosen is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("altorch.ops.all_reduce_quantized: this rank is not part of the group")
    float8 = _quantized.is_float8(bits)
    if not _is_plain(x):
        _quantized.check(x)  # while a compiler traces: its own error would not say why
        result: Tensor = torch.ops.altorch.all_reduce_quantized(x, float8, mean, chosen.group_name)
        return result
    return _quantized.all_reduce_quantized(x, float8, chosen, mean)


def _all_reduce_quantized(x: Tensor, float8: bool, mean: bool, group_name: str) -> Tensor:
    group = dist.distributed_c10d._resolve_process_group(group_name)
    return _quantized.all_reduce_quantized(x, float8, group, mean)


def _shape_of_quantized(x: Tensor, float8: bool, mean: bool, group_name: str) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def quantized_ddp_hook(
    bits: int | str = 8,
) -> Callable[[Any, dist.GradBucket], torch.futures.Future[Tensor]]:
    """A communication hook for DDP: gradients are averaged by all_reduce_quantized.

    `model.register_comm_hook(group, altorch.ops.quantized_ddp_hook())`, as torch's own hooks: `group` is that of the
    model, None the whole world. On GPUs it runs on its own stream, concurrently with the backward pass; on CPUs it is
    part of that pass.
    """
    _quantized.is_float8(bits)  # raises before training begins
    return _quantized.ddp_hook(
        lambda gradients, group: all_reduce_quantized(gradients, bits, group, mean=True)
    )


# By torch's enumerators: how two parts are combined, and what changes none.
_SCANS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[torch.dtype], Any]]] = {
    "SUM": (torch.add, lambda dtype: 0),
    "PRODUCT": (torch.mul, lambda dtype: 1),
    "MIN": (torch.minimum, lambda dtype: _bounds(dtype).max),
    "MAX": (torch.maximum, lambda dtype: _bounds(dtype).min),
    "BAND": (torch.bitwise_and, lambda dtype: True if dtype == torch.bool else -1),
    "BOR": (torch.bitwise_or, lambda dtype: 0),
    "BXOR": (torch.bitwise_xor, lambda dtype: 0),
}


def exact_sum(stacked: Tensor, *, mean: bool = False) -> Tensor:
    """The exact sum of `stacked[0]`, `stacked[1]`, ..., rounded once: a new tensor. Needs no group.

    It is what `all_reduce` gives in a group with `deterministic="exact"` whose ranks have one of these tensors each,
    bit by bit (docs/exact.md). `stacked`: float64, float32, bfloat16, float16, float8_e4m3fn or float8_e5m2, with a
    first dimension of 1 to 8192; on a GPU up to 64, in the order of the current stream. `mean`: the exact mean. Without
    gradients: a tensor that requires one raises NotImplementedError, unless under `torch.no_grad()`, and so does a
    device that cannot. ValueError: another type or shape.
    """
    if not _is_plain(stacked):
        result: Tensor = torch.ops.altorch.exact_sum(stacked, mean)
        return result
    return _run_exact_sum(stacked, mean)


def _run_exact_sum(stacked: Tensor, mean: bool) -> Tensor:
    from altorch._extension import extension

    result: Tensor = extension().exact_sum(stacked, mean)
    return result


def _summed_shape(stacked: Tensor, mean: bool) -> Tensor:
    return torch.empty_like(stacked[0], memory_format=torch.contiguous_format)


def _bounds(dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return SimpleNamespace(min=False, max=True)
    if dtype.is_floating_point:
        return SimpleNamespace(min=-math.inf, max=math.inf)
    return torch.iinfo(dtype)


def scan(
    tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: ProcessGroup | None = None, *, exclusive: bool = False
) -> Tensor:
    """The reduction of the ranks up to this one (MPI_Scan), or below it (`exclusive`, MPI_Exscan): a new tensor.

    Collective over `group` (default: the whole world): all ranks give a tensor of the same shape, type and device.
    `op`: SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR. Rank 0 of an exclusive scan has no rank below it, and gets what
    changes nothing: zeros for a SUM, ones for a PRODUCT, the largest number for MIN. Half types are added in float32.

    Over "al" it takes log2(ranks) messages, or shared memory on one node; CUDA tensors go through the host, so that it
    cannot be captured in a graph. Over other backends, by way of an all_gather. Synchronous, without gradients: a
    tensor that requires one raises NotImplementedError, unless under `torch.no_grad()`. ValueError: another `op`; other
    errors are those of all_reduce. By messages a rank waits for the ranks below it only, and hears of an error of a
    rank above in its next call that waits for all.
    """
    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    if chosen is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("altorch.ops.scan: this rank is not part of the group")
    kind = getattr(op, "op", op)
    name = kind.name if hasattr(kind, "name") else str(kind)  # torch 2.11's compiler cannot trace str() of it
    if not _is_plain(tensor):
        result: Tensor = torch.ops.altorch.scan(tensor, name, exclusive, chosen.group_name)
        return result
    return _run_scan(tensor, name, exclusive, chosen)


def _run_scan(tensor: Tensor, op: str, exclusive: bool, group: ProcessGroup) -> Tensor:
    from altorch import _backend
    from altorch._extension import extension

    backend = _backend.carrying(group._get_backend(tensor.device))
    if isinstance(backend, extension().Backend):
        number = int(getattr(dist.ReduceOp.RedOpType, op)) if op in _SCANS else -1  # refused, on every rank
        result: Tensor = backend.scan(tensor, number, exclusive)
    elif op not in _SCANS:
        raise ValueError(f"altorch.ops.scan takes {', '.join(_SCANS)}, and not {op}")
    elif torch.is_grad_enabled() and tensor.requires_grad:
        raise NotImplementedError(
            "altorch.ops.scan has no gradient, and its tensor requires one; call it under torch.no_grad()"
        )
    else:
        own = tensor.detach().clone(memory_format=torch.contiguous_format)  # resolves a conjugate, too
        wide = torch.float32 if own.dtype in (torch.float16, torch.bfloat16) else own.dtype
        combine = _SCANS[op][0]
        combine(
            one := torch.zeros(1, dtype=wide), one
        )  # raises on every rank where the type has no such operator
        parts = [torch.empty_like(own) for _ in range(group.size())]
        dist.all_gather(parts, own, group=group)
        up_to = [part.to(wide) for part in parts[: max(1, group.rank() + (not exclusive))]]
        result = functools.reduce(combine, up_to).to(own.dtype, copy=True)
    if exclusive and group.rank() == 0:
        result.fill_(_SCANS[op][1](result.dtype))
    return result


def _scan(tensor: Tensor, op: str, exclusive: bool, group_name: str) -> Tensor:
    return _run_scan(tensor, op, exclusive, dist.distributed_c10d._resolve_process_group(group_name))


def _scanned_shape(tensor: Tensor, op: str, exclusive: bool, group_name: str) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _is_plain(tensor: Tensor) -> bool:
    """Whether the engine may read its memory now: no compiler looks on, it is no subclass or wrapper of torch.func."""
    if torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None:
        return False
    return type(tensor) in (Tensor, Parameter) and not torch._is_functional_tensor(tensor)


def _run(
    part: Tensor, residual: Tensor, weight: Tensor | None, eps: float, group: ProcessGroup
) -> tuple[Tensor, Tensor]:
    from altorch import _backend
    from altorch._extension import extension

    backend = _backend.carrying(group._get_backend(part.device))
    if isinstance(backend, extension().Backend):
        both: tuple[Tensor, Tensor] = backend.all_reduce_rms_norm(part, residual, weight, eps)
        return both
    _check(part, residual, weight)
    summed = part.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(summed, group=group)
    summed += residual
    return functional.rms_norm(summed, summed.shape[-1:], weight, eps), summed


def _check(part: Tensor, residual: Tensor, weight: Tensor | None) -> None:
    """What altorch's own groups check, too, and tell the other ranks of."""
    if torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (part, residual, weight)
    ):
        raise NotImplementedError(
            "altorch.ops.all_reduce_rms_norm has no gradient, and a tensor requires one; call it under torch.no_grad()"
        )
    if part.dim() == 0 or residual.shape != part.shape or residual.dtype != part.dtype:
        raise ValueError(
            f"altorch.ops.all_reduce_rms_norm: a residual of {residual.dtype}, {tuple(residual.shape)}, for a tensor "
            f"of {part.dtype}, {tuple(part.shape)}; they must be alike, and have rows"
        )
    if weight is not None and weight.shape != part.shape[-1:]:
        raise ValueError(
            f"altorch.ops.all_reduce_rms_norm: a weight of {tuple(weight.shape)} for columns of {tuple(part.shape)}"
        )


def _all_reduce_rms_norm(
    part: Tensor, residual: Tensor, weight: Tensor | None, eps: float, group_name: str
) -> tuple[Tensor, Tensor]:
    return _run(part, residual, weight, eps, dist.distributed_c10d._resolve_process_group(group_name))


def _shapes(
    part: Tensor, residual: Tensor, weight: Tensor | None, eps: float, group_name: str
) -> tuple[Tensor, Tensor]:
    normed, summed = (torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(2))
    return normed, summed


torch.library.custom_op("altorch::all_reduce_rms_norm", _all_reduce_rms_norm, mutates_args=()).register_fake(
    _shapes
)
torch.library.custom_op(
    "altorch::all_reduce_quantized", _all_reduce_quantized, mutates_args=()
).register_fake(_shape_of_quantized)
torch.library.custom_op("altorch::scan", _scan, mutates_args=()).register_fake(_scanned_shape)
torch.library.custom_op("altorch::exact_sum", _run_exact_sum, mutates_args=()).register_fake(_summed_shape)
# Other ranks wait in these calls, so a compiler must keep them even if their results are not used
# here.
torch.fx.node.has_side_effect(torch.ops.altorch.all_reduce_rms_norm.default)
torch.fx.node.has_side_effect(torch.ops.altorch.all_reduce_quantized.default)
torch.fx.node.has_side_effect(torch.ops.altorch.scan.default)
