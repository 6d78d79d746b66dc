# SPDX-License-Identifier: BSD-3-Clause
"""What altorch.ops.all_reduce_quantized promises (docs/quantized.md): the bound of its error, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from worker import World

TYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCK = 128
SIZES = (1, 127, 128, 129, 1000, 4096, 70_001)


def inputs(world: World, dtype: torch.dtype, count: int, kind: str) -> list[torch.Tensor]:
    """Every rank's. `kind`: normal numbers, outliers among small numbers, or exponents of the whole range."""
    generator = world.generator(0)
    parts = []
    for _ in range(world.size):
        values = torch.randn(count, generator=generator, dtype=torch.float64)
        if kind == "outliers":
            values = torch.where(
                torch.rand(count, generator=generator) < 1 / BLOCK, values * 1000, values / 1000
            )
        if kind == "spread":
            values *= torch.pow(2.0, torch.randint(-12, 12, (count,), generator=generator).double())
        parts.append(values.to(dtype))
    return parts


def largest_near(values: torch.Tensor) -> torch.Tensor:
    """For each value the largest absolute value of its block."""
    padded = torch.nn.functional.pad(values.abs(), (0, -len(values) % BLOCK))
    return padded.view(-1, BLOCK).amax(1).repeat_interleave(BLOCK)[: len(values)]


def step_error(values: torch.Tensor, bits: int | str) -> torch.Tensor:
    """How far a value may be from the code that it becomes."""
    largest = largest_near(values)
    if bits == 8:
        return largest / 254 * (1 + 1e-6)
    return values.abs() / 16 * (1 + 1e-6) + largest / 448 * 2.0**-10


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
