# SPDX-License-Identifier: BSD-3-Clause
"""The local steps in torch's operators, without a synchronisation with the host, so that a capture takes them."""

from __future__ import annotations

import torch
from torch import Tensor

from altorch.token_switch._routing import HEADER, NONE_BAD, Handle, SwitchConfig

INT32 = torch.iinfo(torch.int32)


def pack(indices: Tensor, header: list[int], sent: int, config: SwitchConfig, columns: int) -> Tensor:
    """The header, the first `sent` rows of indices, and -1."""
    packed = torch.full((HEADER + config.max_tokens * columns,), -1, dtype=torch.int32, device=indices.device)
    for at, word in enumerate(header):
        packed[at].fill_(word)
    if sent:
        packed[HEADER : HEADER + sent * columns] = indices[:sent].reshape(-1).clamp(INT32.min, INT32.max)
    return packed


def map_rows(gathered: Tensor, config: SwitchConfig, columns: int, flat: bool) -> tuple[Tensor, Tensor]:
    """`row_map` and `summary` of a Handle."""
    indices = gathered[:, HEADER:].unflatten(1, (config.max_tokens, columns))
    local = indices - config.first
    here = (local >= 0) & (local < config.local)
    expert = torch.where(here, local, config.local).reshape(-1).long()
    counts = torch.zeros(config.local + 1, dtype=torch.int64, device=gathered.device)
    counts.scatter_add_(0, expert, torch.ones_like(expert))
    if flat:
        taken = here.any(2)
        row_map = torch.where(taken.reshape(-1), taken.reshape(-1).cumsum(0) - 1, -1)
        received = taken.sum()
    else:
        row_map, received = _by_expert(expert, counts, config), counts[:-1].sum()
        if config.capacity:
            counts = counts.clamp(max=config.capacity)
    bad = ((indices < -1) | (indices >= config.experts)).reshape(-1)
    first_bad = torch.where(bad, torch.arange(bad.numel(), device=bad.device), NONE_BAD).amin()
    words = [first_bad.view(1), received.view(1), counts[:-1], gathered[:, :HEADER].reshape(-1)]
    summary = torch.cat([word.to(gathered.device, torch.int32) for word in words])
    return row_map.int().view(config.ranks, config.max_tokens, 1 if flat else columns), summary


def _by_expert(expert: Tensor, counts: Tensor, config: SwitchConfig) -> Tensor:
    """The output row of each entry, in the order (expert, source rank, token, k)."""
    row_map, order = torch.full_like(expert, -1), expert.argsort(stable=True)
    row, sorted_expert = torch.arange(len(order), device=expert.device), expert[order]
    if config.capacity:
        begins = counts.cumsum(0) - counts
        within = row - begins[sorted_expert]
        row = torch.where(within < config.capacity, sorted_expert * config.capacity + within, -1)
    row_map[order] = torch.where(sorted_expert < config.local, row, -1)
    return row_map


def scatter(
    handle: Handle,
    rows: Tensor,
    out: Tensor,
    weights: Tensor | None = None,
    out_weights: Tensor | None = None,
    out_indices: Tensor | None = None,
) -> None:
    """Writes each row of `rows` ([ranks, rows, width]) to its output rows in `out`, and zeros to unused rows."""
    room, row_map = len(out), handle.row_map[:, : handle.rows].reshape(-1)
    entry, unused = _entries_of_rows(row_map, room)
    row = entry // handle.row_map.shape[2]
    if not len(row_map):
        out.zero_()
    elif room:
        flat_rows = rows.flatten(0, 1)
        if out.is_contiguous():
            torch.index_select(flat_rows, 0, row, out=out)
        else:
            out.copy_(flat_rows.index_select(0, row))
        if handle.received != room or handle.config.capacity:
            out.masked_fill_(unused[:, None], 0)
    if weights is None or out_weights is None:
        return
    if not len(row_map):
        out_weights.zero_()
        if out_indices is not None:
            out_indices.fill_(-1)
    elif out_indices is None:
        out_weights.copy_(weights.reshape(-1)[entry].masked_fill_(unused, 0))
    else:
        index = handle.indices.flatten(0, 1)[row]
        local = index - handle.config.first
        elsewhere = (local < 0) | (local >= handle.config.local) | unused[:, None]
        out_weights.copy_(weights.flatten(0, 1)[row].masked_fill_(elsewhere, 0))
        out_indices.copy_(index.masked_fill_(elsewhere, -1))


def _entries_of_rows(row_map: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The entry that each of `room` rows comes from, and which rows are unused. These have entry 0."""
    entry = torch.full((room + 1,), -1, dtype=torch.int64, device=row_map.device)
    kept = (row_map >= 0) & (row_map < room)
    entry[torch.where(kept, row_map, room).long()] = torch.arange(len(row_map), device=row_map.device)
    return entry[:room].clamp(min=0), entry[:room] < 0


def columns_of_rows(handle: Handle, room: int) -> Tensor:
    """[room, columns]: which columns of topk_idx name the experts of a row; for a routing of any module."""
    columns, config = handle.columns, handle.config
    row_map = map_rows(handle.gathered, config, columns, handle.flat)[0][:, : handle.rows]
    entry, unused = _entries_of_rows(row_map.reshape(-1), room)
    if handle.flat:
        local = handle.indices.flatten(0, 1)[entry] - config.first
        named = (local >= 0) & (local < config.local)
    else:
        named = entry[:, None] % columns == torch.arange(columns, device=entry.device)
    return named & ~unused[:, None]


def sum_rows(handle: Handle, expert_rows: Tensor) -> Tensor:
    """[ranks, rows, width]: the sum of a token's output rows, added in float32 in the order of k."""
    row_map = handle.row_map[:, : handle.rows].flatten(0, 1)
    room, width = expert_rows.shape
    kept = (row_map >= 0) & (row_map < room)
    if not room or not len(row_map):
        total = expert_rows.new_zeros(len(row_map), width)
    else:
        wide = torch.float64 if expert_rows.dtype == torch.float64 else torch.float32
        adding = torch.zeros(len(row_map), width, dtype=wide, device=expert_rows.device)
        for row, used in zip(row_map.clamp(0, room - 1).unbind(1), kept.unbind(1), strict=True):
            adding += expert_rows.index_select(0, row).to(wide).masked_fill_(~used[:, None], 0)
        total = adding.to(expert_rows.dtype)
    return total.view(handle.config.ranks, handle.rows, width)
