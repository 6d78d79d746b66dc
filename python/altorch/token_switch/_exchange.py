# SPDX-License-Identifier: BSD-3-Clause
"""The all_gather of the indices of all ranks. All ranks see the same headers, so all of them raise the same error."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from altorch.token_switch import _arguments, _host, _native, _reference
from altorch.token_switch._routing import (
    COUNTS,
    FIRST_BAD,
    HEADER,
    NONE_BAD,
    PROBLEM,
    RECEIVED,
    TOKENS,
    Handle,
    SwitchConfig,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

INT32_MAX = 2**31 - 1
POISON = -(2**31)  # in int32 results of an aborted call on a GPU: docs/errors.md


def local_steps(tensor: Tensor) -> ModuleType:
    """The module whose functions carry out the local steps."""
    if not tensor.is_cuda:
        return _host
    return _reference if _native.unsupported_reason(tensor.get_device()) else _native


def capturing(tensor: Tensor) -> bool:
    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def exchange(
    indices: Tensor, problem: int, config: SwitchConfig, group: ProcessGroup, columns: int, flat: bool
) -> Handle:
    """The handle of a routing. `columns`: those of the last call, 0 before the first.

    The columns of all ranks must be known before their indices can be gathered. So a call with
    other columns than the last one gathers twice.
    """
    tokens, given = (indices.shape[0], indices.shape[1]) if indices.dim() == 2 else (0, 0)
    received = min(config.max_received or 0, INT32_MAX)
    header = [problem, tokens, given, config.max_tokens, config.experts, config.capacity, received, 0]
    if capturing(indices):
        _arguments.check_headers([header], [group.rank()], _arguments.names_of(group))
        columns = given
    steps = local_steps(indices)
    sent = tokens if given == columns and not problem else 0
    packed = steps.pack(indices, header, sent, config, columns)
    gathered = packed.new_empty(config.ranks * len(packed))
    dist.all_gather_into_tensor(gathered, packed, group=group)
    gathered = gathered.view(config.ranks, -1)
    known = (flat, tokens, indices.device, steps)
    if capturing(indices):
        row_map, summary = steps.map_rows(gathered, config, columns, flat)
        return Handle(config, gathered, row_map, summary, columns, config.max_tokens, None, *known)
    row_map, summary = None, None
    if columns:
        row_map, summary = steps.map_rows(gathered, config, columns, flat)
        words = summary.tolist()
        headers = words[COUNTS + config.local :]
    else:
        words, headers = [], gathered.reshape(-1).tolist()
    rows_of = [headers[at : at + HEADER] for at in range(0, len(headers), HEADER)]
    if any(row[PROBLEM] == POISON for row in rows_of):
        _raise_failure(packed, group)
    _arguments.check_headers(rows_of, list(range(config.ranks)), _arguments.names_of(group))
    if given != columns:
        return exchange(indices, problem, config, group, given, flat)
    if words[FIRST_BAD] != NONE_BAD:
        _raise_out_of_range(gathered, words[FIRST_BAD], config, columns, group)
    max_rows = max(row[TOKENS] for row in rows_of)
    return Handle(config, gathered, row_map, summary, columns, max_rows, words[RECEIVED], *known)  # type: ignore[arg-type]


def _raise_failure(packed: Tensor, group: ProcessGroup) -> None:
    """The error of an all_gather that failed comes with the next call."""
    dist.all_reduce(packed.new_zeros(1), group=group)
    raise RuntimeError("altorch.TokenSwitch: the indices of all ranks were not gathered")


def _raise_out_of_range(gathered: Tensor, entry: int, config: SwitchConfig, columns: int, group: Any) -> None:
    rank, within = divmod(entry, config.max_tokens * columns)
    index = int(gathered[rank, HEADER + within])
    raise ValueError(
        f"altorch.TokenSwitch: rank {_arguments.names_of(group)[rank]} routes its token {within // columns} to expert "
        f"{index} (column {within % columns} of topk_idx); experts are 0 to {config.experts - 1}, and -1 is none"
    )


def received_by_rank(handle: Handle) -> list[int]:
    """How many rows each rank receives, without dropped entries; waits for a GPU."""
    config = handle.config
    indices = handle.indices
    valid = (indices >= 0) & (indices < config.experts)
    owner = torch.where(valid, indices // config.local, config.ranks)
    return [
        int(count)
        for count in torch.stack(
            [
                (owner == rank).any(2).sum() if handle.flat else (owner == rank).sum()
                for rank in range(config.ranks)
            ]
        ).tolist()
    ]
