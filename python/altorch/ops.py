# SPDX-License-Identifier: BSD-3-Clause
"""Operations beyond torch.distributed: a collective, and what follows it, in one call.

    import altorch.ops

    normed, x = altorch.ops.all_reduce_rms_norm(part, x, weight)

They are custom operators (`torch.ops.altorch`), so that torch.compile takes them, and work on groups of every backend:
over "al" a GPU does all of it in one kernel where that is quicker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
import torch.fx
from torch import Tensor
from torch.nn import Parameter, functional
from torch.utils._python_dispatch import _get_current_dispatch_mode

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["all_reduce_rms_norm"]


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
    plain = all(tensor is None or type(tensor) in (Tensor, Parameter) for tensor in (part, residual, weight))
    if torch.compiler.is_compiling() or not plain or _get_current_dispatch_mode() is not None:
        normed, summed = torch.ops.altorch.all_reduce_rms_norm(part, residual, weight, eps, chosen.group_name)
        return normed, summed
    return _run(part, residual, weight, eps, chosen)


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
# Other ranks wait in this call, so a compiler must keep it even if its result is not used here.
torch.fx.node.has_side_effect(torch.ops.altorch.all_reduce_rms_norm.default)
