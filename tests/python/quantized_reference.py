# SPDX-License-Identifier: BSD-3-Clause
"""What altorch.ops.all_reduce_quantized promises (docs/quantized.md): the bound of its error, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from worker import World

TYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS, PACKS = 7, 60  # a unit is a matrix of rows of pairs, and a pack a column of pairs
UNIT = ROWS * PACKS * 2
SIZES = (1, 119, 720, 839, 840, 841, 4096, 70_001)


def inputs(world: World, dtype: torch.dtype, count: int, kind: str) -> list[torch.Tensor]:
    """Every rank's. `kind`: normal numbers, outliers among small numbers, or exponents of the whole range."""
    generator = world.generator(0)
    parts = []
    for _ in range(world.size):
        values = torch.randn(count, generator=generator, dtype=torch.float64)
        if kind == "outliers":
            values = torch.where(
                torch.rand(count, generator=generator) < 1 / 14, values * 1000, values / 1000
            )
        if kind == "spread":
            values *= torch.pow(2.0, torch.randint(-12, 12, (count,), generator=generator).double())
        parts.append(values.to(dtype))
    return parts


def unpacked(units: int) -> torch.Tensor:
    """The number of the pack that holds each value."""
    numbers = torch.arange(units * PACKS).view(units, 1, PACKS, 1)
    return numbers.expand(units, ROWS, PACKS, 2).reshape(-1)


def largest_near(values: torch.Tensor) -> torch.Tensor:
    """For each value the largest absolute value of its pack."""
    padded = torch.nn.functional.pad(values.abs(), (0, -len(values) % UNIT)).view(-1, ROWS, PACKS, 2)
    return padded.amax((1, 3), keepdim=True).expand_as(padded).reshape(-1)[: len(values)]


def step_error(values: torch.Tensor, bits: int | str) -> torch.Tensor:
    """How far a value may be from the code that it becomes."""
    largest = largest_near(values) * (1 + 1 / 128) * (1 + 1e-6)
    return largest / 254 if bits == 8 else values.abs() / 16 * (1 + 1e-6) + largest / 448 * 2.0**-10


def bound(parts: list[torch.Tensor], bits: int | str, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact result, and the bound of the error of each element."""
    wide = [part.double() for part in parts]
    exact = torch.stack(wide).sum(0)
    error = torch.stack([step_error(part, bits) for part in wide]).sum(0)
    if len(parts) > 2:
        error = error + step_error(exact.abs() + largest_near(error), bits)
    rounding = torch.finfo(parts[0].dtype)
    added = torch.stack([part.abs() for part in wide]).sum(0)
    error = factor * (error + len(parts) * 2.0**-23 * added) + rounding.eps * factor * (exact.abs() + error)
    return exact * factor, error + rounding.smallest_normal * rounding.eps


def check(
    world: World, got: torch.Tensor, parts: list[torch.Tensor], bits: int | str, mean: bool = False
) -> None:
    want, error = bound(parts, bits, 1 / len(parts) if mean else 1.0)
    assert got.dtype == parts[0].dtype
    off = (got.cpu().double() - want).abs()
    worst = int((off - error).argmax()) if len(off) else 0
    assert bool((off <= error).all()), (
        f"{world.case}: element {worst} is {float(got[worst])}, should be {float(want[worst])}, off by "
        f"{float(off[worst])}, and may be off by {float(error[worst])}"
    )
