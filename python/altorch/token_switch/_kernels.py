# SPDX-License-Identifier: BSD-3-Clause
"""The local steps for CUDA tensors, in Triton: what _reference computes, without a synchronisation with the host.

pack            one launch that writes the header and the indices
find_slots      a program for each local expert reads all entries in order, twice: it counts its own and those of lower
                experts, then gives its own their slots. In the flat layout one more program does so for tokens
scatter         a program for each token and block of columns reads the block once, and writes it to each slot; further
                programs write zeros to unused rows
sum_slots       a program for each token and block of columns adds the rows that the token's slots name

Rows behind a rank's last token are neither read nor written.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from altorch.token_switch._routing import COUNTS, HEADER, NONE_BAD, Handle, Place

ENTRIES = 4096  # that a program of find_slots reads at a time
COLUMNS = 1024  # of a row, by one program
OPTIONS = {"enable_fp_fusion": False}  # there is nothing to fuse, and Triton 3.9 warns of a default

_HEADER = tl.constexpr(HEADER)
_TOKENS = tl.constexpr(1)
_COUNTS = tl.constexpr(COUNTS)
_NONE_BAD = tl.constexpr(NONE_BAD)


# A capture must not compile: arguments that differ between its calls and those before are not
# specialized.
@triton.jit(do_not_specialize=["problem", "tokens", "given", "sent"])
def _pack(indices, packed, problem, tokens, given, most, experts, capacity, sent, size, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    entry = at - _HEADER
    word = tl.load(indices + entry, mask=(entry >= 0) & (entry < sent), other=-1)
    # A large int64 stays out of range.
    word = tl.minimum(tl.maximum(word, -2147483648), 2147483647).to(tl.int32)
    word = tl.where(at < _HEADER, 0, word)
    word = tl.where(at == 0, problem, word)
    word = tl.where(at == 1, tokens, word)
    word = tl.where(at == 2, given, word)
    word = tl.where(at == 3, most, word)
    word = tl.where(at == 4, experts, word)
    word = tl.where(at == 5, capacity, word)
    tl.store(packed + at, word, mask=at < size)


@triton.jit
def _slots_of_experts(
    gathered, slots, summary, ranks, most, columns, stride, first, local, experts, capacity,
    WRITES: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(0)
    lower = tl.zeros([SIZE], tl.int32)
    own = tl.zeros([SIZE], tl.int32)
    for rank in range(ranks):
        entries = gathered + rank * stride + _HEADER
        end = tl.minimum(tl.load(gathered + rank * stride + _TOKENS), most) * columns
        for begin in range(0, end, SIZE):
            at = begin + tl.arange(0, SIZE)
            index = tl.load(entries + at, mask=at < end, other=-1)
            lower += ((index >= first) & (index < first + expert)).to(tl.int32)
            own += (index == first + expert).to(tl.int32)
    count = tl.sum(own, 0)
    base = tl.sum(lower, 0)
    total = base + count
    if capacity > 0:
        count = tl.minimum(count, capacity)
        base = expert * capacity
    tl.store(summary + _COUNTS + expert, count)
    if WRITES and expert == local - 1:
        tl.store(summary + 1, total)
    taken = 0
    first_end = tl.where(expert == 0, most * columns, 0)
    worst = tl.full([SIZE], _NONE_BAD, tl.int32)
    if WRITES or expert == 0:
        for rank in range(ranks):
            entries = gathered + rank * stride + _HEADER
            end = tl.minimum(tl.load(gathered + rank * stride + _TOKENS), most) * columns
            for begin in range(0, end, SIZE):
                at = begin + tl.arange(0, SIZE)
                entry = rank * most * columns + at
                index = tl.load(entries + at, mask=at < end, other=-1)
                worst = tl.minimum(worst, tl.where((index < -1) | (index >= experts), entry, _NONE_BAD))
                if WRITES:
                    mine = index == first + expert
                    place = taken + tl.cumsum(mine.to(tl.int32), 0) - 1
                    taken += tl.sum(mine.to(tl.int32), 0)
                    # The first program marks entries of no local expert.
                    elsewhere = ((index < first) | (index >= first + local)) & (at < first_end)
                    slot = tl.where(mine & (place < count), base + place, -1)
                    tl.store(slots + entry, slot, mask=(at < end) & (mine | elsewhere))
    if expert == 0:
        tl.store(summary, tl.min(worst, 0))
        word = tl.arange(0, _HEADER)
        for rank in range(ranks):
            header = tl.load(gathered + rank * stride + word)
            tl.store(summary + _COUNTS + local + rank * _HEADER + word, header)


@triton.jit
def _slots_of_tokens(
    gathered, slots, summary, ranks, most, columns, stride, first, local, SIZE: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    taken = 0
    column = tl.arange(0, WIDE)
    for rank in range(ranks):
        entries = gathered + rank * stride + _HEADER
        end = tl.minimum(tl.load(gathered + rank * stride + _TOKENS), most)
        for begin in range(0, end, SIZE):
            token = begin + tl.arange(0, SIZE)
            inside = (token < end)[:, None] & (column < columns)[None, :]
            index = tl.load(entries + token[:, None] * columns + column[None, :], mask=inside, other=-1)
            here = tl.max(((index >= first) & (index < first + local)).to(tl.int32), 1)
            place = taken + tl.cumsum(here, 0) - 1
            tl.store(slots + rank * most + token, tl.where(here > 0, place, -1), mask=token < end)
            taken += tl.sum(here, 0)
    tl.store(summary + 1, taken)


@triton.jit(do_not_specialize=["count", "sources", "room", "weights_rank_stride", "weights_row_stride"])
def _scatter(
    rows, rank_stride, row_stride, out, out_stride, width, slots, slots_stride, gathered, stride, summary, count,
    sources, room, first, local, columns, capacity, weights, weights_rank_stride, weights_row_stride, out_weights,
    out_indices, WEIGHTS: tl.constexpr, FLAT: tl.constexpr, EACH: tl.constexpr, WIDE: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    source = tl.program_id(0)
    column = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = column < width
    k = tl.arange(0, WIDE)
    if source < sources:
        rank = source // count
        token = source % count
        tokens = tl.load(gathered + rank * stride + _TOKENS)
        if token < tokens:
            mine = slots + rank * slots_stride + token * EACH
            all_slots = tl.load(mine + k, mask=k < EACH, other=-1)
            if tl.max(all_slots, 0) >= 0:
                where = rank.to(tl.int64) * rank_stride + token.to(tl.int64) * row_stride
                row = tl.load(rows + where + column, mask=inside)
                for each in tl.static_range(EACH):
                    slot = tl.load(mine + each).to(tl.int64)
                    end = tl.where((slot >= 0) & (slot < room), width, 0)
                    tl.store(out + slot * out_stride + column, row, mask=column < end)
                if WEIGHTS:  # noqa: SIM102 - known when the kernel is compiled
                    if tl.program_id(1) == 0:
                        at = rank.to(tl.int64) * weights_rank_stride + token * weights_row_stride + k
                        weight = tl.load(weights + at, mask=k < columns, other=0.0)
                        if FLAT:
                            only = tl.max(all_slots, 0)
                            index = tl.load(
                                gathered + rank * stride + _HEADER + token * columns + k,
                                mask=k < columns,
                                other=-1,
                            )
                            here = (index >= first) & (index < first + local)
                            to = only.to(tl.int64) * columns + k
                            fits = k < tl.where(only < room, columns, 0)
                            tl.store(out_weights + to, tl.where(here, weight, 0.0), mask=fits)
                            tl.store(out_indices + to, tl.where(here, index, -1).to(tl.int64), mask=fits)
                        else:
                            tl.store(
                                out_weights + all_slots, weight, mask=(all_slots >= 0) & (all_slots < room)
                            )
    else:
        unused = source - sources
        begins = tl.load(summary + 1)
        if capacity > 0:
            begins = unused - unused % capacity + tl.load(summary + _COUNTS + unused // capacity)
        if unused >= begins:
            nothing = tl.zeros([SIZE], out.dtype.element_ty)
            tl.store(out + unused.to(tl.int64) * out_stride + column, nothing, mask=inside)
            if WEIGHTS:  # noqa: SIM102
                if tl.program_id(1) == 0:
                    if FLAT:
                        to = unused.to(tl.int64) * columns + k
                        tl.store(out_weights + to, tl.zeros([WIDE], tl.float32), mask=k < columns)
                        tl.store(out_indices + to, tl.full([WIDE], -1, tl.int64), mask=k < columns)
                    else:
                        tl.store(out_weights + unused, 0.0)


@triton.jit(do_not_specialize=["count", "room"])
def _sum_slots(
    rows, row_stride, out, width, slots, slots_stride, gathered, stride, count, room,
    WIDE_TYPE: tl.constexpr, EACH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    source = tl.program_id(0)
    column = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = column < width
    rank = source // count
    token = source % count
    if token < tl.load(gathered + rank * stride + _TOKENS):
        total = tl.zeros([SIZE], WIDE_TYPE)
        for each in tl.static_range(EACH):
            slot = tl.load(slots + rank * slots_stride + token * EACH + each).to(tl.int64)
            end = tl.where((slot >= 0) & (slot < room), width, 0)
            total += tl.load(rows + slot * row_stride + column, mask=column < end, other=0.0).to(WIDE_TYPE)
        tl.store(out + source.to(tl.int64) * width + column, total.to(out.dtype.element_ty), mask=inside)


def _on_device_of(step: Any) -> Any:
    """Launches on the device of the first tensor, as torch's operators do, and not on the current one."""

    @functools.wraps(step)
    def launch(first: Any, *rest: Any) -> Any:
        with torch.cuda.device_of(first if isinstance(first, Tensor) else first.gathered):
            return step(first, *rest)

    return launch


@_on_device_of
def pack(indices: Tensor, header: list[int], sent: int, place: Place, columns: int) -> Tensor:
    size = HEADER + place.most * columns
    packed = torch.empty(size, dtype=torch.int32, device=indices.device)
    block = min(1024, triton.next_power_of_2(size))
    _pack[(triton.cdiv(size, block),)](
        indices.contiguous(), packed, *header[:6], sent * columns, size, SIZE=block, **OPTIONS
    )
    return packed


@_on_device_of
def find_slots(gathered: Tensor, place: Place, columns: int, flat: bool) -> tuple[Tensor, Tensor]:
    new = gathered.new_empty
    slots = new(place.ranks, place.most, 1 if flat else columns)
    summary = new(COUNTS + place.local + place.ranks * HEADER)
    about = (place.ranks, place.most, columns, gathered.stride(0), place.first, place.local)
    size = max(4, min(ENTRIES, triton.next_power_of_2(place.most * columns)))
    _slots_of_experts[(place.local,)](
        gathered,
        slots,
        summary,
        *about,
        place.experts,
        place.capacity,
        WRITES=not flat,
        SIZE=size,
        num_warps=8,
        **OPTIONS,
    )
    if flat:
        wide = triton.next_power_of_2(columns)
        size = max(1, size // wide)
        _slots_of_tokens[(1,)](gathered, slots, summary, *about, SIZE=size, WIDE=wide, num_warps=8, **OPTIONS)
    return slots, summary


@_on_device_of
def scatter(
    handle: Handle,
    rows: Tensor,
    out: Tensor,
    weights: Tensor | None = None,
    out_weights: Tensor | None = None,
    out_indices: Tensor | None = None,
) -> None:
    results = [each for each in (out, out_weights, out_indices) if each is not None]
    if not all(each.is_contiguous() for each in results):
        dense = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in results]
        scatter(handle, rows, dense[0], weights, *dense[1:])
        for result, each in zip(results, dense, strict=True):
            result.copy_(each)
        return
    place, room, width = handle.place, len(out), out.shape[1]
    sources = place.ranks * handle.rows
    exact = handle.received == room and not place.capacity
    block = min(COLUMNS, triton.next_power_of_2(max(1, width)))
    grid = (sources + (0 if exact else room), max(1, triton.cdiv(width, block)))
    weighs = weights is not None and out_weights is not None
    strides = weights.stride()[:2] if weights is not None else (0, 0)
    if not grid[0]:
        return
    _scatter[grid](
        rows, *rows.stride()[:2], out, out.stride(0), width, handle.slots, handle.slots.stride(0), handle.gathered,
        handle.gathered.stride(0), handle.summary, max(1, handle.rows), sources, room, place.first, place.local,
        handle.columns, place.capacity, weights if weighs else rows, *strides, out_weights if weighs else rows,
        out_indices if out_indices is not None else rows, WEIGHTS=weighs, FLAT=handle.flat,
        EACH=handle.slots.shape[2], WIDE=triton.next_power_of_2(handle.columns), SIZE=block, **OPTIONS,
    )  # fmt: skip


@_on_device_of
def sum_slots(handle: Handle, expert_rows: Tensor) -> Tensor:
    ranks, width = handle.place.ranks, expert_rows.shape[1]
    expert_rows = expert_rows if expert_rows.stride(1) == 1 else expert_rows.contiguous()
    total = expert_rows.new_empty(ranks, handle.rows, width)
    if not total.numel():
        return total
    block = min(COLUMNS, triton.next_power_of_2(width))
    wide = tl.float64 if expert_rows.dtype == torch.float64 else tl.float32
    _sum_slots[(ranks * handle.rows, triton.cdiv(width, block))](
        expert_rows, expert_rows.stride(0), total, width, handle.slots, handle.slots.stride(0), handle.gathered,
        handle.gathered.stride(0), handle.rows, len(expert_rows), WIDE_TYPE=wide, EACH=handle.slots.shape[2],
        SIZE=block, **OPTIONS,
    )  # fmt: skip
    return total
