# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arguments. A wrong topk_idx is reported in a header, so that all ranks raise the same error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from altorch.token_switch._routing import (
    CAPACITY,
    COLUMNS,
    EXPERTS,
    MAX_RECEIVED,
    MAX_TOKENS,
    PROBLEM,
    TOKENS,
    Handle,
    SwitchConfig,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

LAYOUTS = ("expert_major", "flat")
FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
MOVED = (*FLOATING, torch.float8_e4m3fn, torch.float8_e5m2)
# Texts of header[PROBLEM].
PROBLEMS = {
    1: "passed topk_idx of another type; it must be int32 or int64",
    2: "passed topk_idx of another shape; it must have two dimensions, [tokens, experts of a token], and a column",
    3: "passed topk_idx with {tokens} rows, more than max_dispatch_tokens_per_rank = {max_tokens}; raise that, or "
    "dispatch in parts",
    4: "passed per_expert_token_counts that cannot take the counts; it must be a contiguous int32 vector, on the "
    "device of topk_idx, with an element for each of the {local} local experts",
    5: f"asked for another layout; it must be one of {', '.join(LAYOUTS)}",
    6: "asked for the flat layout of a switch with a capacity, which expert_major alone has",
}


def names_of(group: ProcessGroup) -> list[int]:
    """The ranks as errors name them: those of the whole world."""
    return list(dist.get_process_group_ranks(group))


def positive(name: str, number: int | None) -> int | None:
    """An argument of the constructor; 40.0 is 40, as of a capacity that a factor gives."""
    if number is not None and (number < 1 or number != int(number)):
        raise ValueError(f"altorch.TokenSwitch: {name} = {number} must be a positive integer")
    return None if number is None else int(number)


def problem_of(indices: Tensor, counts: Tensor | None, layout: str, config: SwitchConfig) -> int:
    """A number of PROBLEMS, or 0."""
    if indices.dtype not in (torch.int32, torch.int64):
        return 1
    if indices.dim() != 2 or indices.shape[1] == 0:
        return 2
    if len(indices) > config.max_tokens:
        return 3
    if counts is not None and (
        counts.dtype != torch.int32
        or counts.dim() != 1
        or len(counts) < config.local
        or counts.device != indices.device
        or not counts.is_contiguous()
    ):
        return 4
    if layout not in LAYOUTS:
        return 5
    return 6 if layout == "flat" and config.capacity else 0


def check_headers(headers: Sequence[Sequence[int]], ranks: Sequence[int], names: Sequence[int]) -> None:
    """Raises ValueError for what a rank has passed, and where ranks differ."""
    for rank, header in zip(ranks, headers, strict=True):
        if header[PROBLEM]:
            told = PROBLEMS[header[PROBLEM]].format(
                tokens=header[TOKENS], max_tokens=header[MAX_TOKENS], local=header[EXPERTS] // len(names)
            )
            raise ValueError(f"altorch.TokenSwitch: rank {names[rank]} {told}")
    for what, word in (
        ("max_dispatch_tokens_per_rank", MAX_TOKENS),
        ("num_experts", EXPERTS),
        ("capacity", CAPACITY),
        ("max_recv_tokens_per_rank", MAX_RECEIVED),
        ("experts of a token (columns of topk_idx)", COLUMNS),
    ):
        for rank, header in zip(ranks, headers, strict=True):
            if header[word] != headers[0][word]:
                raise ValueError(
                    f"altorch.TokenSwitch: rank {names[rank]} has {header[word]} {what}, and rank {names[ranks[0]]} "
                    f"has {headers[0][word]}; all ranks must pass the same"
                )


def check_routing(call: str, handle: Handle, config: SwitchConfig) -> None:
    """On this rank only. Results of a routing would have the sizes of another switch."""
    if handle.config is not config:
        raise ValueError(
            f"altorch.TokenSwitch.{call}: the routing is of another switch; pass one of this switch's create_routing"
        )


def check_dispatch(handle: Handle, tokens: Tensor, weights: Tensor, scales: Tensor | None) -> None:
    """On this rank only."""
    count, device = handle.count, handle.device
    if tokens.dim() != 2 or tokens.shape[0] != count:
        raise ValueError(
            f"altorch.TokenSwitch.dispatch: tokens of shape {tuple(tokens.shape)} for a routing of {count} tokens; "
            "they must be [tokens, width]"
        )
    if tokens.dtype not in MOVED:
        raise ValueError(
            f"altorch.TokenSwitch.dispatch: tokens of {tokens.dtype}; they must be one of "
            f"{', '.join(str(dtype) for dtype in MOVED)}"
        )
    if weights.dtype != torch.float32 or weights.shape != (count, handle.columns):
        raise ValueError(
            f"altorch.TokenSwitch.dispatch: topk_weights of {weights.dtype}, {tuple(weights.shape)}; they must be "
            f"float32, {(count, handle.columns)}"
        )
    if scales is not None and (scales.dim() != 2 or scales.shape[0] != count):
        raise ValueError(
            f"altorch.TokenSwitch.dispatch: scales of shape {tuple(scales.shape)}; they must be [{count}, scales of a "
            "token]"
        )
    if (
        tokens.device != device
        or weights.device != device
        or (scales is not None and scales.device != device)
    ):
        for name, tensor in (("tokens", tokens), ("topk_weights", weights), ("scales", scales)):
            if tensor is not None and tensor.device != device:
                raise ValueError(
                    f"altorch.TokenSwitch.dispatch: {name} on {tensor.device}, topk_idx on {device}"
                )


def check_out(handle: Handle, tokens: Tensor, scales: Tensor | None, out: Sequence[Tensor | None]) -> None:
    """`out` of dispatch, on this rank only."""
    names = ("tokens", "topk_weights", "topk_idx", *(("scales",) if scales is not None else ()))
    if len(out) != len(names) or out[0] is None or out[0].dim() != 2:
        raise ValueError(
            f"altorch.TokenSwitch.dispatch: out must be ({', '.join(names)}), tokens [rows, width]"
        )
    if (out[2] is None) == handle.flat or (handle.flat and out[1] is None):
        raise ValueError(
            "altorch.TokenSwitch.dispatch: out has topk_weights and topk_idx in the flat layout, and no topk_idx in "
            "expert_major"
        )
    rows = out[0].shape[0]
    shape = (rows, handle.columns) if handle.flat else (rows,)
    wanted = [(tokens.dtype, (rows, tokens.shape[1])), (torch.float32, shape), (torch.int64, shape)]
    if scales is not None:
        wanted.append((scales.dtype, (rows, scales.shape[1])))
    for name, tensor, (dtype, size) in zip(names, out, wanted, strict=True):
        if tensor is not None:
            _check_result("dispatch", name, tensor, dtype, size, handle)


def check_combine_out(handle: Handle, expert_tokens: Tensor, out: Tensor) -> None:
    """On this rank only."""
    shape = (handle.count, expert_tokens.shape[1])
    _check_result("combine", "the result", out, expert_tokens.dtype, shape, handle)


def _check_result(
    call: str, name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...], handle: Handle
) -> None:
    if tensor.dtype != dtype or tensor.shape != shape or tensor.device != handle.device:
        raise ValueError(
            f"altorch.TokenSwitch.{call}: out for {name} is {tensor.dtype}, {tuple(tensor.shape)} on {tensor.device}; "
            f"it must be {dtype}, {shape} on {handle.device}"
        )


def check_combine(handle: Handle, expert_tokens: Tensor) -> None:
    """On this rank only."""
    if expert_tokens.dim() != 2 or expert_tokens.dtype not in FLOATING:
        raise ValueError(
            f"altorch.TokenSwitch.combine: expert_tokens of {expert_tokens.dtype}, {tuple(expert_tokens.shape)}; they "
            f"must be [rows, width] of {', '.join(str(dtype) for dtype in FLOATING)}"
        )
    if expert_tokens.device != handle.device:
        raise ValueError(
            f"altorch.TokenSwitch.combine: expert_tokens on {expert_tokens.device}, topk_idx on {handle.device}"
        )
    config = handle.config
    wanted = config.local * config.capacity if config.capacity else handle.received
    if wanted is not None and expert_tokens.shape[0] < wanted:
        raise ValueError(
            f"altorch.TokenSwitch.combine: {len(expert_tokens)} rows, and dispatch has given {wanted} that are used"
        )
