# SPDX-License-Identifier: BSD-3-Clause
"""The local steps in torch's operators, without a synchronisation with the host, so that a capture takes them."""

from __future__ import annotations

import torch
from torch import Tensor

from altorch.token_switch._routing import HEADER, NONE_BAD, Handle, Place

INT32 = torch.iinfo(torch.int32)


def pack(indices: Tensor, header: list[int], sent: int, place: Place, columns: int) -> Tensor:
    """The header, the first `sent` rows of indices, and -1."""
    packed = torch.full((HEADER + place.most * columns,), -1, dtype=torch.int32, device=indices.device)
    for at, word in enumerate(header):
        packed[at].fill_(word)
    if sent:
        packed[HEADER : HEADER + sent * columns] = indices[:sent].reshape(-1).clamp(INT32.min, INT32.max)
    return packed


def find_slots(gathered: Tensor, place: Place, columns: int, flat: bool) -> tuple[Tensor, Tensor]:
    """`slots` and `summary` of a Handle."""
    indices = gathered[:, HEADER:].unflatten(1, (place.most, columns))
    local = indices - place.first
    here = (local >= 0) & (local < place.local)
    expert = torch.where(here, local, place.local).reshape(-1).long()
    counts = torch.zeros(place.local + 1, dtype=torch.int64, device=gathered.device)
    counts.scatter_add_(0, expert, torch.ones_like(expert))
    if flat:
        taken = here.any(2)
        slots = torch.where(taken.reshape(-1), taken.reshape(-1).cumsum(0) - 1, -1)
        received = taken.sum()
    else:
        slots, received = _by_expert(expert, counts, place), counts[:-1].sum()
        if place.capacity:
            counts = counts.clamp(max=place.capacity)
    bad = ((indices < -1) | (indices >= place.experts)).reshape(-1)
    first_bad = torch.where(bad, torch.arange(bad.numel(), device=bad.device), NONE_BAD).amin()
    words = [first_bad.view(1), received.view(1), counts[:-1], gathered[:, :HEADER].reshape(-1)]
    summary = torch.cat([word.to(gathered.device, torch.int32) for word in words])
    return slots.int().view(place.ranks, place.most, 1 if flat else columns), summary


def _by_expert(expert: Tensor, counts: Tensor, place: Place) -> Tensor:
    """The slots of all entries, in the order (expert, source rank, token, k)."""
    slots, order = torch.full_like(expert, -1), expert.argsort(stable=True)
    slot, sorted_expert = torch.arange(len(order), device=expert.device), expert[order]
    if place.capacity:
        begins = counts.cumsum(0) - counts
        within = slot - begins[sorted_expert]
        slot = torch.where(within < place.capacity, sorted_expert * place.capacity + within, -1)
    slots[order] = torch.where(sorted_expert < place.local, slot, -1)
    return slots


def scatter(
    handle: Handle,
    rows: Tensor,
    out: Tensor,
    weights: Tensor | None = None,
    out_weights: Tensor | None = None,
    out_indices: Tensor | None = None,
) -> None:
    """Writes each row of `rows` ([ranks, rows, width]) to its slots in `out`, and zeros to unused rows."""
    room, slots = len(out), handle.slots[:, : handle.rows].reshape(-1)
    entry, unused = _entries_of_rows(slots, room)
    row = entry // handle.slots.shape[2]
    if not len(slots):
        out.zero_()
    elif room:
        flat_rows = rows.flatten(0, 1)
        if out.is_contiguous():
            torch.index_select(flat_rows, 0, row, out=out)
        else:
            out.copy_(flat_rows.index_select(0, row))
        if handle.received != room or handle.place.capacity:
            out.masked_fill_(unused[:, None], 0)
    if weights is None or out_weights is None:
        return
    if not len(slots):
        out_weights.zero_()
        if out_indices is not None:
            out_indices.fill_(-1)
    elif out_indices is None:
        out_weights.copy_(weights.reshape(-1)[entry].masked_fill_(unused, 0))
    else:
        index = handle.indices.flatten(0, 1)[row]
        local = index - handle.place.first
        elsewhere = (local < 0) | (local >= handle.place.local) | unused[:, None]
        out_weights.copy_(weights.flatten(0, 1)[row].masked_fill_(elsewhere, 0))
        out_indices.copy_(index.masked_fill_(elsewhere, -1))


def _entries_of_rows(slots: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The entry that each of `room` rows comes from, and which rows are unused. These have entry 0."""
    entry = torch.full((room + 1,), -1, dtype=torch.int64, device=slots.device)
    kept = (slots >= 0) & (slots < room)
    entry[torch.where(kept, slots, room).long()] = torch.arange(len(slots), device=slots.device)
    return entry[:room].clamp(min=0), entry[:room] < 0


def columns_of_rows(handle: Handle, room: int) -> Tensor:
    """[room, columns]: which columns of topk_idx name the experts of a row; for a routing of any module."""
    columns, place = handle.columns, handle.place
    slots = find_slots(handle.gathered, place, columns, handle.flat)[0][:, : handle.rows]
    entry, unused = _entries_of_rows(slots.reshape(-1), room)
    if handle.flat:
        local = handle.indices.flatten(0, 1)[entry] - place.first
        named = (local >= 0) & (local < place.local)
    else:
        named = entry[:, None] % columns == torch.arange(columns, device=entry.device)
    return named & ~unused[:, None]


def sum_slots(handle: Handle, expert_rows: Tensor) -> Tensor:
    """[ranks, rows, width]: the sum of the rows that a token's slots name, added in float32 in the order of k."""
    slots = handle.slots[:, : handle.rows].flatten(0, 1)
    room, width = expert_rows.shape
    kept = (slots >= 0) & (slots < room)
    if not room or not len(slots):
        total = expert_rows.new_zeros(len(slots), width)
    else:
        wide = torch.float64 if expert_rows.dtype == torch.float64 else torch.float32
        adding = torch.zeros(len(slots), width, dtype=wide, device=expert_rows.device)
        for slot, used in zip(slots.clamp(0, room - 1).unbind(1), kept.unbind(1), strict=True):
            adding += expert_rows.index_select(0, slot).to(wide).masked_fill_(~used[:, None], 0)
        total = adding.to(expert_rows.dtype)
    return total.view(handle.place.ranks, handle.rows, width)
