# SPDX-License-Identifier: BSD-3-Clause
"""The local steps for CPU tensors, in few operators: each takes as long as the rows of a few tokens."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from altorch.token_switch._routing import HEADER, NONE_BAD, TOKENS, Handle, Place

INT32 = torch.iinfo(torch.int32)


@dataclass(frozen=True, slots=True)
class Slots:
    """What this rank receives. An entry is (source rank, token, k), or (source rank, token) in the flat layout.

    entries  which entry each received row is, in the order of rows
    places   the row of each, or None: rows without a gap
    of_bags  the same rows in the order of entries; those of token t begin at offsets[t]
    """

    entries: Tensor
    places: Tensor | None
    of_bags: Tensor
    offsets: Tensor


def pack(indices: Tensor, header: list[int], sent: int, place: Place, columns: int) -> Tensor:
    packed = torch.full((HEADER + place.most * columns,), -1, dtype=torch.int32)
    packed[:HEADER] = torch.tensor(header, dtype=torch.int32)
    if sent:
        packed[HEADER : HEADER + sent * columns] = indices[:sent].reshape(-1).clamp(INT32.min, INT32.max)
    return packed


def find_slots(gathered: Tensor, place: Place, columns: int, flat: bool) -> tuple[Slots, Tensor]:
    headers = gathered[:, :HEADER].reshape(-1).tolist()
    rows = min(place.most, max(headers[TOKENS::HEADER]))
    indices = gathered[:, HEADER : HEADER + rows * columns].reshape(-1)
    experts, order = indices.sort(stable=True)
    first_bad = NONE_BAD
    if len(indices) and (int(experts[0]) < -1 or int(experts[-1]) >= place.experts):
        entry = int(((indices < -1) | (indices >= place.experts)).nonzero()[0])
        rank, within = divmod(entry, rows * columns)
        first_bad = rank * place.most * columns + within
    edges = torch.arange(place.first, place.first + place.local + 1, dtype=torch.int32)
    bounds = torch.searchsorted(experts, edges).tolist()
    counts = [end - begin for begin, end in pairwise(bounds)]
    entries, places, each = order[bounds[0] : bounds[-1]], None, columns
    received = len(entries)
    if flat:
        entries, each = (entries // columns).unique(), 1
        received = len(entries)
    elif place.capacity:
        kept = [min(count, place.capacity) for count in counts]
        entries = torch.cat([order[begin : begin + size] for begin, size in zip(bounds, kept, strict=False)])
        begins = range(0, place.local * place.capacity, place.capacity)
        places = torch.cat([torch.arange(at, at + size) for at, size in zip(begins, kept, strict=True)])
        counts = kept
    in_order, of_bags = entries.sort()
    offsets = torch.searchsorted(in_order, torch.arange(0, place.ranks * rows * each, each))
    if places is not None:
        of_bags = places[of_bags]
    slots = Slots(entries, places, of_bags, offsets)
    return slots, torch.tensor([first_bad, received, *counts, *headers], dtype=torch.int32)


def scatter(
    handle: Handle,
    rows: Tensor,
    out: Tensor,
    weights: Tensor | None = None,
    out_weights: Tensor | None = None,
    out_indices: Tensor | None = None,
) -> None:
    entries, places = handle.slots.entries, handle.slots.places
    source = entries if handle.flat else entries // handle.columns
    _write(out, rows.flatten(0, 1), source, places)
    if weights is None or out_weights is None:
        return
    if out_indices is None:
        _write(out_weights, weights.reshape(-1), entries, places)
        return
    index = handle.indices.reshape(-1, handle.columns).index_select(0, source)
    local = index - handle.place.first
    elsewhere = (local < 0) | (local >= handle.place.local)
    used = len(source)
    out_weights[:used] = weights.flatten(0, 1).index_select(0, source).masked_fill_(elsewhere, 0)
    out_weights[used:] = 0
    out_indices[:used] = index.masked_fill_(elsewhere, -1)
    out_indices[used:] = -1


def _write(out: Tensor, rows: Tensor, source: Tensor, places: Tensor | None) -> None:
    """Rows of `source` to their places in `out`, and zeros to the other rows."""
    if places is not None:
        out.zero_()
        out.index_copy_(0, places, rows.index_select(0, source))
        return
    used = out[: len(source)]
    if used.is_contiguous():
        torch.index_select(rows, 0, source, out=used)
    else:
        used.copy_(rows.index_select(0, source))
    out[len(source) :] = 0


def sum_slots(handle: Handle, expert_rows: Tensor) -> Tensor:
    """embedding_bag adds in float32, and rounds once; of bfloat16, what lies halfway away from zero."""
    slots, ranks, width = handle.slots, handle.place.ranks, expert_rows.shape[1]
    if not len(slots.of_bags):
        return expert_rows.new_zeros(ranks, handle.rows, width)
    total = functional.embedding_bag(slots.of_bags, expert_rows, slots.offsets, mode="sum")
    return total.view(ranks, handle.rows, width)
