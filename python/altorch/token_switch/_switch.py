# SPDX-License-Identifier: BSD-3-Clause
"""TokenSwitch: what callers see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from altorch.token_switch import _arguments, _native, _rows
from altorch.token_switch._autograd import Combine, Dispatch
from altorch.token_switch._exchange import capturing, exchange, received_by_rank
from altorch.token_switch._routing import COUNTS, Routing, SwitchConfig

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

try:
    from torch.distributed._token_switch import TokenSwitch as _Interface
except ImportError:  # torch before 2.15
    _Interface = object


class TokenSwitch(_Interface):  # type: ignore[misc]
    """Dispatches the tokens of all ranks to experts, and combines what these make of them.

    Each rank has `num_experts / ranks` experts, in the order of ranks. All methods are collective over `group`
    (default: the whole world), of any backend; for CPU and CUDA tensors. `max_dispatch_tokens_per_rank`: most tokens
    that a rank passes in a call. `capacity`: rows of an expert; what exceeds it is dropped, in the order (source rank,
    token, k), and the layout is expert_major. `max_recv_tokens_per_rank`: the default of `max_recv_tokens` in
    dispatch. All ranks pass the same arguments. `process_group` and `max_token_bytes` are those of torch's
    TokenSwitchNCCL; the latter is not needed. From torch 2.15 on a subclass of torch's abstract TokenSwitch.
    docs/token-switch.md says more.
    """

    def __init__(
        self,
        group: ProcessGroup | None = None,
        num_experts: int = 0,
        max_dispatch_tokens_per_rank: int = 0,
        max_recv_tokens_per_rank: int | None = None,
        max_token_bytes: int | None = None,
        *,
        capacity: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        chosen = group or process_group or dist.distributed_c10d._get_default_group()
        if chosen is dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError("altorch.TokenSwitch: this rank is not part of the group")
        ranks = chosen.size()
        if num_experts < 1 or num_experts % ranks:
            raise ValueError(
                f"altorch.TokenSwitch: num_experts = {num_experts} must be a positive multiple of the group's {ranks} "
                "ranks"
            )
        self.group: ProcessGroup = chosen
        self._config = SwitchConfig(
            ranks,
            chosen.rank(),
            int(num_experts),
            _arguments.positive("max_dispatch_tokens_per_rank", max_dispatch_tokens_per_rank) or 0,
            _arguments.positive("capacity", capacity) or 0,
            _arguments.positive("max_recv_tokens_per_rank", max_recv_tokens_per_rank),
        )
        self._columns = 0

    def create_routing(
        self, topk_idx: Tensor, per_expert_token_counts: Tensor | None = None, *, layout: str = "expert_major"
    ) -> Routing:
        """Tells all ranks where the tokens go: `topk_idx` [tokens, k], int32 or int64, has their experts, -1 for none.

        `per_expert_token_counts`: int32, an element for each local expert at least; gets how many rows each receives.
        `layout`: of what dispatch returns, "expert_major" or "flat". Waits for a GPU, except in a capture. Raises
        ValueError, the same on all ranks, for an index that is no expert and for arguments that do not fit or differ
        between ranks; in a capture such an index is dropped.
        """
        counts, config = per_expert_token_counts, self._config
        problem = _arguments.problem_of(topk_idx, counts, layout, config)
        handle = exchange(topk_idx.detach(), problem, config, self.group, self._columns, layout == "flat")
        if not capturing(topk_idx):
            self._columns = handle.columns
        if counts is not None:
            counts[: config.local] = handle.summary[COUNTS : COUNTS + config.local]
        return Routing(handle, topk_idx, layout)

    def dispatch(
        self,
        routing: Routing,
        tokens: Tensor,
        topk_weights: Tensor,
        max_recv_tokens: int | None = None,
        *,
        scales: Tensor | None = None,
        out: tuple[Any, ...] | None = None,
    ) -> Any:
        """The tokens of all ranks for this rank's experts: `(out_tokens, out_topk_weights, out_topk_idx)`.

        `tokens` [tokens, width]: floating point, or float8 with `scales` [tokens, n], which are then a fourth result.
        `topk_weights` [tokens, k]: float32. expert_major: a row for each entry of topk_idx that
        names an expert here, in the order (expert, source rank, token, k); a weight for each row; None. flat: a row
        for each token with an expert here, in the order (source rank, token); [rows, k] weights and int64 experts, 0
        and -1 for those of other ranks.

        `max_recv_tokens`: rows of the results, the same on all ranks, zero behind the last row received. None: as many
        as come, which a capture cannot know. With a capacity they are always local experts * capacity. If a rank
        receives more, all ranks raise ValueError; in a capture the excess is dropped. `out`: tensors for the results,
        without gradients. Otherwise the gradients of `tokens` and `topk_weights` are a collective each, so that all
        ranks must want the same ones.
        """
        handle = routing.handle
        _arguments.check_routing("dispatch", handle, self._config)
        _arguments.check_dispatch(handle, tokens, topk_weights, scales)
        if out is not None:
            _arguments.check_out(handle, tokens, scales, out)
        given = out[0].shape[0] if out is not None else None
        room = self._room(routing, max_recv_tokens, given, capturing(tokens))
        if out is None:
            if torch.is_grad_enabled() and (tokens.requires_grad or topk_weights.requires_grad):
                return Dispatch.apply(self, routing, tokens, topk_weights, scales, room)
            out = self._new_outputs(routing, tokens, topk_weights, scales, room)
        self._run_dispatch(routing, tokens, topk_weights, scales, out)
        return out

    def combine(self, routing: Routing, expert_tokens: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The sum, over all ranks, of the rows of each token of this rank: [tokens, width].

        `expert_tokens`: a row for each row of dispatch's, not fp8. A rank adds its rows of a token in float32 (in
        float64 for float64), in the order of k, and rounds once; a reduce_scatter adds the ranks. Not weighted:
        multiply by dispatch's weights before. `out`: receives the result, without gradients.
        """
        _arguments.check_routing("combine", routing.handle, self._config)
        _arguments.check_combine(routing.handle, expert_tokens)
        if out is not None:
            _arguments.check_combine_out(routing.handle, expert_tokens, out)
        if out is None and torch.is_grad_enabled() and expert_tokens.requires_grad:
            result: Tensor = Combine.apply(self, routing, expert_tokens)
            return result
        return self._run_combine(routing, expert_tokens, out)

    def _room(self, routing: Routing, asked: int | None, given: int | None, captured: bool) -> int:
        """Rows of the results. Raises ValueError if a rank receives more; in a capture the host cannot know."""
        handle, config = routing.handle, self._config
        asked = asked if asked is not None or given is not None else self._config.max_received
        if config.capacity:
            fixed = config.local * config.capacity
            if min(size for size in (asked, given, fixed) if size is not None) < fixed:
                raise ValueError(
                    f"altorch.TokenSwitch.dispatch: with capacity = {config.capacity} the results have {fixed} rows"
                )
            return fixed if given is None else given
        if handle.received is None:
            if asked is None and given is None:
                raise ValueError(
                    "altorch.TokenSwitch.dispatch: pass max_recv_tokens in a capture, or give the switch a capacity"
                )
            return int(asked if given is None else given)  # type: ignore[arg-type]
        if asked is not None and not captured:
            counts = received_by_rank(handle)
            largest = max(counts)
            if largest > asked:
                rank = _arguments.names_of(self.group)[counts.index(largest)]
                raise ValueError(
                    f"altorch.TokenSwitch.dispatch: rank {rank} receives {largest} rows, more than max_recv_tokens = "
                    f"{asked}; pass max_recv_tokens={largest} or more, or None for as many as come"
                )
        if given is not None and given < handle.received:
            raise ValueError(
                f"altorch.TokenSwitch.dispatch: out has {given} rows, and {handle.received} come; make it larger"
            )
        return given if given is not None else asked if asked is not None else handle.received

    def _new_outputs(
        self, routing: Routing, tokens: Tensor, weights: Tensor | None, scales: Tensor | None, room: int
    ) -> tuple[Any, ...]:
        new, flat = tokens.new_empty, routing.layout == "flat"
        columns = (routing.handle.columns,) if flat else ()
        out: list[Any] = [new(room, tokens.shape[1]), None, None]
        if weights is not None:
            out[1] = weights.new_empty(room, *columns)
            out[2] = new(room, *columns, dtype=torch.int64) if flat else None
        if scales is not None:
            out.append(scales.new_empty(room, scales.shape[1]))
        return tuple(out)

    def _run_dispatch(
        self,
        routing: Routing,
        tokens: Tensor,
        weights: Tensor | None,
        scales: Tensor | None,
        out: tuple[Any, ...],
    ) -> None:
        handle = routing.handle
        if handle.steps is _native:
            _native.dispatch(handle, self.group, tokens, weights, scales, out)
            return
        with torch.no_grad():
            _rows.dispatch(handle, self.group, tokens, weights, scales, out)

    def _run_combine(self, routing: Routing, expert_tokens: Tensor, out: Tensor | None) -> Tensor:
        handle = routing.handle
        if handle.steps is _native:
            return _native.combine(handle, self.group, expert_tokens, out)
        with torch.no_grad():
            return _rows.combine(handle, self.group, expert_tokens, out)

    # What torch's abstract class asks for.

    def _alloc_dispatch_outputs(
        self, routing: Routing, tokens: Tensor, topk_weights: Tensor, max_recv_tokens: int, H: int, K: int
    ) -> tuple[Any, ...]:
        return self._new_outputs(routing, tokens, topk_weights, None, max_recv_tokens)

    def _dispatch(
        self,
        routing: Routing,
        tokens: Tensor,
        topk_weights: Tensor,
        out_tokens: Tensor,
        out_topk_weights: Tensor | None,
        out_topk_idx: Tensor | None,
    ) -> None:
        self.dispatch(routing, tokens, topk_weights, out=(out_tokens, out_topk_weights, out_topk_idx))

    def _combine(self, routing: Routing, expert_tokens: Tensor, out_tokens: Tensor) -> None:
        self.combine(routing, expert_tokens, out=out_tokens)
