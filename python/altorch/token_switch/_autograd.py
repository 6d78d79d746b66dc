# SPDX-License-Identifier: BSD-3-Clause
"""Gradients: the backward of dispatch is a combine, and that of combine a dispatch; both are collective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from altorch.token_switch._routing import Routing

if TYPE_CHECKING:
    from altorch.token_switch._switch import TokenSwitch


class Dispatch(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, switch: TokenSwitch, routing: Routing, tokens: Tensor, *rest: Any) -> Any:
        ctx.switch, ctx.routing = switch, routing
        weights, scales, room = rest
        out = switch._new_outputs(routing, tokens, weights, scales, room)
        switch._run_dispatch(routing, tokens, weights, scales, out)
        ctx.mark_non_differentiable(*(each for each in out[1:] if each is not None))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        return None, None, Combine.apply(ctx.switch, ctx.routing, grad), None, None, None


class Combine(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, switch: TokenSwitch, routing: Routing, expert_tokens: Tensor) -> Tensor:
        ctx.switch, ctx.routing, ctx.room = switch, routing, len(expert_tokens)
        return switch._run_combine(routing, expert_tokens, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, Dispatch.apply(ctx.switch, ctx.routing, grad, None, None, ctx.room)[0]
