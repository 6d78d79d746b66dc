# SPDX-License-Identifier: BSD-3-Clause
"""Sums that are exact and rounded once, computed with fractions, and numbers that make such sums difficult."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from worker import World

EXACT = {"ALTORCH_DETERMINISTIC": "exact"}
# Reductions, and whether they divide.
OPS = ((dist.ReduceOp.SUM, False), (dist.ReduceOp.AVG, True))
TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# Their sums are exact in every group.
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
# Bits of the significand behind its first one, the exponents of the least and the largest normal
# numbers.
FORMATS = {
    torch.float64: (52, -1022, 1023, torch.int64),
    torch.float32: (23, -126, 127, torch.int32),
    torch.bfloat16: (7, -126, 127, torch.int16),
    torch.float16: (10, -14, 15, torch.int16),
    torch.float8_e4m3fn: (3, -6, 8, torch.int8),
    torch.float8_e5m2: (2, -14, 15, torch.int8),
}


def rounded(value: Fraction, dtype: torch.dtype) -> float:
    """The nearest number of the type, ties to even."""
    mantissa, least, _, _ = FORMATS[dtype]
    if value == 0:
        return 0.0
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - mantissa)
    number = round(value / unit) * unit  # Python rounds fractions half to even
    if abs(number) > torch.finfo(dtype).max:
        if dtype == torch.float8_e4m3fn:
            return math.copysign(448.0, value)  # it has no infinity
        return math.inf if value > 0 else -math.inf
    return math.copysign(float(number), value)  # what is too small is a zero of its sign


def exact(values: Sequence[float], dtype: torch.dtype, divisor: int = 1) -> float:
    """The exact sum of the values, divided and rounded once. The rules of docs/exact.md for what is no number."""
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return special[0] if all(value == special[0] for value in special) else math.nan
    total = sum((Fraction(value) for value in values), Fraction(0))
    if total == 0 and all(math.copysign(1, value) < 0 for value in values):
        return -0.0
    return rounded(total / divisor, dtype)


def exact_sums(parts: Sequence[torch.Tensor], divisor: int = 1) -> torch.Tensor:
    """Element by element, of one tensor a rank."""
    dtype = parts[0].dtype
    columns = zip(*(part.double().flatten().tolist() for part in parts), strict=True)
    sums = torch.tensor([exact(values, dtype, divisor) for values in columns], dtype=torch.float64)
    return sums.to(dtype).reshape(parts[0].shape)


def difficult(generator: torch.Generator, dtype: torch.dtype, count: int, parts: int) -> list[torch.Tensor]:
    """`count` elements for each of `parts` ranks: exponents over the whole range or near each other, what cancels,
    ties, subnormal numbers, and a few infinities and NaN. Of float8, any bits."""
    if dtype in FLOAT8:
        some = torch.randint(0, 256, (parts, count), dtype=torch.uint8, generator=generator)
        return list(some.view(dtype))
    mantissa, least, largest, bits = FORMATS[dtype]
    exponents = largest - least + 2
    kinds = torch.randint(0, 6, (count,), generator=generator)
    around = torch.randint(0, exponents, (count,), generator=generator)
    made: list[torch.Tensor] = []
    for part in range(parts):
        spread = torch.randint(0, 2 * mantissa + 4, (count,), generator=generator)
        near = torch.randint(0, 4, (count,), generator=generator)
        whole = torch.randint(0, exponents, (count,), generator=generator)
        exponent = torch.where(kinds < 2, around + near, torch.where(kinds < 4, around + spread, whole))
        exponent = torch.where(kinds == 5, near.clamp(max=2), exponent).clamp(0, exponents - 1)
        fraction = torch.randint(0, 1 << mantissa, (count,), generator=generator)
        few = torch.randint(0, 2, (count,), generator=generator).bool() & (kinds == 3)
        fraction = torch.where(few, fraction & (1 << (mantissa - 1)), fraction)
        number = (exponent << mantissa) | fraction
        sign = torch.randint(0, 2, (count,), generator=generator).bool()
        tensor = number.to(bits).view(dtype)
        tensor = torch.where(sign, -tensor, tensor)
        if part % 2:  # near to the negative of the part before
            cancels = torch.randint(0, 4, (count,), generator=generator) == 0
            tensor = torch.where(cancels, -made[-1], tensor)
        rare = torch.randint(0, 400, (count,), generator=generator)
        for value, place in ((math.inf, 0), (-math.inf, 1), (math.nan, 2), (-0.0, 3), (0.0, 4)):
            tensor = torch.where(rare == place, torch.tensor(value, dtype=dtype), tensor)
        made.append(tensor)
    return made


def parts_and_results(
    world: World, dtype: torch.dtype, count: int
) -> tuple[list[torch.Tensor], dict[bool, torch.Tensor]]:
    """Every rank's part, and by OPS' second column the sum and the mean of all."""
    parts = difficult(world.generator(0), dtype, count, world.size)
    return parts, {mean: exact_sums(parts, world.size if mean else 1) for _, mean in OPS}


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().view(FORMATS[tensor.dtype][3])


def check(world: World, got: torch.Tensor, want: torch.Tensor) -> None:
    """Bit by bit. A NaN is the type's quiet one."""
    quiet = bits_of(torch.tensor(math.nan).to(want.dtype))
    want_bits = torch.where(want.double().isnan(), quiet, bits_of(want))
    wrong = (bits_of(got) != want_bits).flatten().nonzero().flatten()
    assert not len(wrong), (
        f"{world.case}: {len(wrong)} of {got.numel()} differ; element {int(wrong[0])} is "
        f"{got.cpu().flatten()[wrong[0]]!r} and should be {want.flatten()[wrong[0]]!r}"
    )
