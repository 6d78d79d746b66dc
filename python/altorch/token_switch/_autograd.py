# SPDX-License-Identifier: BSD-3-Clause
"""Gradients: the backward of dispatch is a combine, and that of combine a dispatch; both are collective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from altorch.token_switch import _reference
from altorch.token_switch._routing import Handle, Routing

if TYPE_CHECKING:
    from altorch.token_switch._switch import TokenSwitch


class Dispatch(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, switch: TokenSwitch, routing: Routing, tokens: Tensor, *rest: Any) -> Any:
        ctx.switch, ctx.routing = switch, routing
        weights, scales, room = rest
        out = switch._new_outputs(routing, tokens, weights, scales, room)
        switch._run_dispatch(routing, tokens, weights, scales, out)
        needed = (*ctx.needs_input_grad[2:4], False, False)
        ctx.mark_non_differentiable(
            *(each for each, needs in zip(out, needed, strict=False) if each is not None and not needs)
        )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_of_weights: Tensor | None = None, *_: Any) -> Any:
        of_tokens, of_weights = None, None
        if ctx.needs_input_grad[2]:
            of_tokens = Combine.apply(ctx.switch, ctx.routing, grad)
        if ctx.needs_input_grad[3]:
            spread = _by_column(ctx.routing.handle, grad_of_weights)
            of_weights = Combine.apply(ctx.switch, ctx.routing, spread)
        return None, None, of_tokens, of_weights, None, None


class Combine(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, switch: TokenSwitch, routing: Routing, expert_tokens: Tensor) -> Tensor:
        ctx.switch, ctx.routing, ctx.room = switch, routing, len(expert_tokens)
        return switch._run_combine(routing, expert_tokens, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, Dispatch.apply(ctx.switch, ctx.routing, grad, None, None, ctx.room)[0]


def _by_column(handle: Handle, grad: Tensor) -> Tensor:
    """[rows, columns]: gradients of out_topk_weights in the columns of topk_weights, and zeros elsewhere."""
    mask = _reference.columns_of_rows(handle, len(grad))
    return torch.where(mask, grad if handle.flat else grad[:, None], 0)
