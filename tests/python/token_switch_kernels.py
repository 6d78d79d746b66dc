# SPDX-License-Identifier: BSD-3-Clause
"""The Triton kernels of the token switch beside the same steps in torch's operators, on random routings.

TRITON_INTERPRET=1 python tests/python/token_switch_kernels.py     # without a GPU, by Triton's interpreter
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from altorch.token_switch import _kernels, _reference
from altorch.token_switch._routing import RECEIVED, Handle, Place

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def gathered_by(
    place: Place, lengths: list[int], columns: int, generator: torch.Generator, bad: bool
) -> Tensor:
    """The packed indices of all ranks, after a comparison."""
    device = generator.device
    packed = []
    for rank, length in enumerate(lengths):
        dtype = (torch.int32, torch.int64)[rank % 2]
        shape = (length, columns)
        indices = torch.randint(-1, place.experts, shape, generator=generator, dtype=dtype, device=device)
        if bad and rank == 1:
            indices[1, 0], indices[2, 0] = 2**40, -7
        header = [0, length, columns, place.most, place.experts, place.capacity, 0, 0]
        ours, want = (steps.pack(indices, header, length, place, columns) for steps in (_kernels, _reference))
        assert ours.equal(want)
        packed.append(ours)
    return torch.stack(packed)


def compare(place: Place, lengths: list[int], columns: int, width: int, dtype: torch.dtype, generator: torch.Generator,
            flat: bool, bad: bool = False) -> None:  # fmt: skip
    device, rows = generator.device, max(lengths)
    gathered = gathered_by(place, lengths, columns, generator, bad)
    found = [steps.find_slots(gathered, place, columns, flat) for steps in (_kernels, _reference)]
    (slots, summary), (want_slots, want_summary) = found
    assert summary.equal(want_summary)
    for rank, length in enumerate(lengths):
        assert slots[rank, :length].equal(want_slots[rank, :length])
    data = torch.randn(place.ranks, rows, width, generator=generator, device=device).to(dtype)
    weights = torch.rand(place.ranks, rows, columns, generator=generator, device=device)
    received = int(summary[RECEIVED])
    rooms = ((received, received), (received + 3, received), (max(received - 2, 0), None))
    for room, known in rooms[1:2] if INTERPRETED else rooms:
        if place.capacity:
            room = place.local * place.capacity
        results = []
        for steps, table in ((_kernels, slots), (_reference, want_slots)):
            handle = Handle(place, gathered, table, summary, columns, rows, known, flat)
            shape = (room, columns) if flat else (room,)
            out = torch.full((room, width), 7.0, device=device).to(dtype)
            out_weights = torch.full(shape, 7.0, device=device)
            out_indices = torch.full(shape, 7, device=device) if flat else None
            steps.scatter(handle, data, out, weights, out_weights, out_indices)
            results.append((out, out_weights, out_indices, steps.sum_slots(handle, out)))
        (out, out_weights, out_indices, total), (want, want_weights, want_indices, want_total) = results
        assert out.equal(want) and out_weights.equal(want_weights)
        assert out_indices is None or out_indices.equal(want_indices)
        for rank, length in enumerate(lengths):
            # The interpreter cuts a float32 off where a GPU rounds it to bfloat16.
            torch.testing.assert_close(total[rank, :length], want_total[rank, :length])


def interpreted() -> None:
    """Few programs: the interpreter takes milliseconds for each."""
    _kernels.ENTRIES, _kernels.COLUMNS = 4, 16
    generator = torch.Generator().manual_seed(int(os.environ.get("ALTORCH_TEST_SEED", "0")))
    for flat, capacity in ((False, 0), (True, 0), (False, 2)):
        place = Place(ranks=2, rank=1, experts=4, most=4, capacity=capacity)
        compare(place, [2, 3], 3, 20, torch.bfloat16, generator, flat, bad=True)


def on_gpu() -> None:
    generator = torch.Generator("cuda").manual_seed(int(os.environ.get("ALTORCH_TEST_SEED", "0")))
    for rank in range(2):
        for flat, capacity in ((False, 0), (True, 0), (False, 3)):
            place = Place(ranks=2, rank=rank, experts=4, most=6, capacity=capacity)
            for dtype in TYPES:
                compare(place, [6, 4], 3, 33, dtype, generator, flat)
            compare(place, [0, 5], 1, 1100, torch.float32, generator, flat)
            compare(place, [0, 0], 2, 8, torch.float32, generator, flat)
            compare(place, [6, 4], 3, 8, torch.float32, generator, flat, bad=True)
    for flat in (False, True):
        place = Place(ranks=2, rank=1, experts=64, most=4096, capacity=0)
        compare(place, [4096, 3000], 8, 7168, torch.bfloat16, generator, flat)


def compiled() -> None:
    """The compiler refuses what the interpreter takes, such as a variable that changes its type."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    def build(kernel: Any, pointers: dict[str, str], **constants: Any) -> None:
        names = kernel.arg_names
        types = {name: pointers.get(name, "constexpr" if name in constants else "i32") for name in names}
        values = {(names.index(name),): value for name, value in constants.items()}
        triton.compile(
            ASTSource(kernel, types, values), GPUTarget("cuda", 90, 32), options=dict(_kernels.OPTIONS)
        )

    words = dict.fromkeys(("gathered", "slots", "summary", "packed"), "*i32")
    build(_kernels._pack, words | {"indices": "*i64"}, SIZE=1024)
    build(_kernels._slots_of_experts, words, WRITES=True, SIZE=256)
    build(_kernels._slots_of_experts, words, WRITES=False, SIZE=256)
    build(_kernels._slots_of_tokens, words, SIZE=32, WIDE=8)
    moved = {"rows": "*bf16", "out": "*bf16"}
    weighing = {"weights": "*fp32", "out_weights": "*fp32", "out_indices": "*i64"}
    for each in (1, 8):
        sizes = {"EACH": each, "SIZE": 1024}
        build(_kernels._scatter, words | moved | weighing, WEIGHTS=True, FLAT=each == 1, WIDE=8, **sizes)
        build(_kernels._sum_slots, words | moved, WIDE_TYPE=triton.language.float32, **sizes)


def main() -> None:
    if sys.argv[1:] == ["compile"]:
        compiled()
        print("compiled")
        return
    interpreted() if INTERPRETED else on_gpu()
    print("the same")


if __name__ == "__main__":
    main()
