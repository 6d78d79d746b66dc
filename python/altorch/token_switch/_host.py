# SPDX-License-Identifier: BSD-3-Clause
"""The local steps for CPU tensors, in few operators: the overhead of one equals the copy of a few tokens."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from altorch.token_switch._routing import HEADER, NONE_BAD, TOKENS, Handle, SwitchConfig

INT32 = torch.iinfo(torch.int32)


@dataclass(frozen=True, slots=True)
class RowMap:
    """What this rank receives. An entry is (source rank, token, k), or (source rank, token) in the flat layout.

    entries   the entry of each received row, in the order of rows
    out_rows  the output row of each entry, or None if these are 0, 1, 2, ...
    by_token  the output rows in the order of entries
    offsets   where the rows of each token begin in by_token
    """

    entries: Tensor
    out_rows: Tensor | None
    by_token: Tensor
    offsets: Tensor


def pack(indices: Tensor, header: list[int], sent: int, config: SwitchConfig, columns: int) -> Tensor:
    packed = torch.full((HEADER + config.max_tokens * columns,), -1, dtype=torch.int32)
    packed[:HEADER] = torch.tensor(header, dtype=torch.int32)
    if sent:
        packed[HEADER : HEADER + sent * columns] = indices[:sent].reshape(-1).clamp(INT32.min, INT32.max)
    return packed


def map_rows(gathered: Tensor, config: SwitchConfig, columns: int, flat: bool) -> tuple[RowMap, Tensor]:
    headers = gathered[:, :HEADER].reshape(-1).tolist()
    rows = min(config.max_tokens, max(headers[TOKENS::HEADER]))
    indices = gathered[:, HEADER : HEADER + rows * columns].reshape(-1)
    experts, order = indices.sort(stable=True)
    first_bad = NONE_BAD
    if len(indices) and (int(experts[0]) < -1 or int(experts[-1]) >= config.experts):
        entry = int(((indices < -1) | (indices >= config.experts)).nonzero()[0])
        rank, within = divmod(entry, rows * columns)
        first_bad = rank * config.max_tokens * columns + within
    edges = torch.arange(config.first, config.first + config.local + 1, dtype=torch.int32)
    bounds = torch.searchsorted(experts, edges).tolist()
    counts = [end - begin for begin, end in pairwise(bounds)]
    entries, out_rows, per_token = order[bounds[0] : bounds[-1]], None, columns
    received = len(entries)
    if flat:
        entries, per_token = (entries // columns).unique(), 1
        received = len(entries)
    elif config.capacity:
        kept = [min(count, config.capacity) for count in counts]
        entries = torch.cat([order[begin : begin + size] for begin, size in zip(bounds, kept, strict=False)])
        begins = range(0, config.local * config.capacity, config.capacity)
        out_rows = torch.cat([torch.arange(at, at + size) for at, size in zip(begins, kept, strict=True)])
        counts = kept
    in_order, by_token = entries.sort()
    offsets = torch.searchsorted(in_order, torch.arange(0, config.ranks * rows * per_token, per_token))
    if out_rows is not None:
        by_token = out_rows[by_token]
    row_map = RowMap(entries, out_rows, by_token, offsets)
    return row_map, torch.tensor([first_bad, received, *counts, *headers], dtype=torch.int32)


def scatter(
    handle: Handle,
    rows: Tensor,
    out: Tensor,
    weights: Tensor | None = None,
    out_weights: Tensor | None = None,
    out_indices: Tensor | None = None,
) -> None:
    entries, out_rows = handle.row_map.entries, handle.row_map.out_rows
    source = entries if handle.flat else entries // handle.columns
    _write(out, rows.flatten(0, 1), source, out_rows)
    if weights is None or out_weights is None:
        return
    if out_indices is None:
        _write(out_weights, weights.reshape(-1), entries, out_rows)
        return
    index = handle.indices.reshape(-1, handle.columns).index_select(0, source)
    local = index - handle.config.first
    elsewhere = (local < 0) | (local >= handle.config.local)
    used = len(source)
    out_weights[:used] = weights.flatten(0, 1).index_select(0, source).masked_fill_(elsewhere, 0)
    out_weights[used:] = 0
    out_indices[:used] = index.masked_fill_(elsewhere, -1)
    out_indices[used:] = -1


def _write(out: Tensor, rows: Tensor, source: Tensor, out_rows: Tensor | None) -> None:
    """Writes rows `source` of `rows` to `out_rows` of `out`, and zeros to the other rows."""
    if out_rows is not None:
        out.zero_()
        out.index_copy_(0, out_rows, rows.index_select(0, source))
        return
    used = out[: len(source)]
    if used.is_contiguous():
        torch.index_select(rows, 0, source, out=used)
    else:
        used.copy_(rows.index_select(0, source))
    out[len(source) :] = 0


def sum_rows(handle: Handle, expert_rows: Tensor) -> Tensor:
    """embedding_bag adds in float32, and rounds once; of bfloat16, what lies halfway away from zero."""
    row_map, ranks, width = handle.row_map, handle.config.ranks, expert_rows.shape[1]
    if not len(row_map.by_token):
        return expert_rows.new_zeros(ranks, handle.rows, width)
    total = functional.embedding_bag(row_map.by_token, expert_rows, row_map.offsets, mode="sum")
    return total.view(ranks, handle.rows, width)
