# SPDX-License-Identifier: BSD-3-Clause
"""The independent reference of the conformance suite: NumPy in float64, int64 or bool, rank after rank.

Every rank generates every rank's input itself (World.generator), so that checking needs no communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from worker import World

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
FLOAT8 = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
]
REDUCIBLE = [*INTEGERS, *UNSIGNED, torch.bool, *FLOATS, *COMPLEX]
MOVABLE = [*REDUCIBLE, *FLOAT8]

PREMUL_FACTOR = 0.5
OPERATORS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
_BITWISE = ("BAND", "BOR", "BXOR")
# What ProcessGroupGloo does not take: the suite runs against Gloo too, to check its own
# expectations.
_GLOO_TYPES = {torch.uint8, torch.int8, torch.int32, torch.int64, *FLOATS, *COMPLEX}
GLOO_MOVABLE = {*_GLOO_TYPES, torch.bool}


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def operators(world: World, dtype: torch.dtype) -> list[str]:
    """The reductions that torch defines for this type (and, under Gloo, that Gloo carries)."""
    return operators_of(dtype, world.is_al)


def operators_of(dtype: torch.dtype, is_al: bool) -> list[str]:
    if is_al:
        if dtype in COMPLEX:
            return ["SUM", "AVG", "PREMUL_SUM"]
        if dtype is torch.bool:
            return ["SUM", "PRODUCT", "MIN", "MAX", *_BITWISE]
        if dtype in FLOATS:
            return ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "PREMUL_SUM"]
        return ["SUM", "AVG", "PRODUCT", "MIN", "MAX", *_BITWISE]
    if dtype not in _GLOO_TYPES:
        return []
    if dtype in COMPLEX:
        return ["SUM"]
    return ["SUM", "PRODUCT", "MIN", "MAX", *(() if dtype in FLOATS else _BITWISE)]


def reduce_op(name: str) -> Any:
    if name == "PREMUL_SUM":
        return dist._make_nccl_premul_sum(PREMUL_FACTOR)
    return getattr(dist.ReduceOp, name)


def random_tensor(
    world: World, dtype: torch.dtype, shape: int | Sequence[int], rank: int | None = None, op: str = "SUM"
) -> torch.Tensor:
    """The input of `rank` in this case. Integers take their whole range, except where AVG would wrap."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    generator = world.generator(rank)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    if dtype in INTEGERS and op == "AVG":
        return torch.randint(0 if dtype is torch.uint8 else -30, 31, shape, generator=generator).to(dtype)
    if dtype in UNSIGNED and op == "AVG":
        return torch.randint(0, 60, shape, generator=generator).to(dtype)
    if dtype in INTEGERS or dtype in UNSIGNED or dtype in FLOAT8:
        size = [*shape[:-1], shape[-1] * dtype.itemsize] if shape else [dtype.itemsize]
        raw = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
        return raw.view(dtype) if shape else raw.view(dtype).reshape(())
    if op == "PRODUCT":
        return (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5).to(dtype)
    real = torch.randn(shape, generator=generator, dtype=torch.float64)
    if dtype in COMPLEX:
        return torch.complex(real, torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
    return real.to(dtype)


def exact_form(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """As NumPy, wide enough to compute the reference: float64, complex128, or the integer type itself."""
    tensor = tensor.detach()
    if tensor.dtype in COMPLEX:
        return tensor.to(torch.complex128).resolve_conj().numpy()
    if tensor.dtype in FLOATS:
        return tensor.to(torch.float64).numpy()
    return tensor.numpy()


def reduced(inputs: Sequence[torch.Tensor], op: str) -> np.ndarray[Any, Any]:
    arrays = [exact_form(tensor) for tensor in inputs]
    result = arrays[0].copy()
    if result.dtype == np.bool_:
        function: Any = {
            "SUM": np.logical_or,
            "MAX": np.logical_or,
            "BOR": np.logical_or,
            "PRODUCT": np.logical_and,
            "MIN": np.logical_and,
            "BAND": np.logical_and,
            "BXOR": np.logical_xor,
        }[op]
    else:
        function = {
            "SUM": np.add,
            "AVG": np.add,
            "PREMUL_SUM": np.add,
            "PRODUCT": np.multiply,
            "MIN": np.minimum,
            "MAX": np.maximum,
            "BAND": np.bitwise_and,
            "BOR": np.bitwise_or,
            "BXOR": np.bitwise_xor,
        }[op]
    for array in arrays[1:]:
        result = function(result, array)
    if op == "AVG":
        if np.issubdtype(result.dtype, np.inexact):
            return result / len(inputs)
        return np.trunc(result / len(inputs)).astype(result.dtype)
    if op == "PREMUL_SUM":
        return result * PREMUL_FACTOR
    return result


def expected(inputs: Sequence[torch.Tensor], op: str) -> tuple[np.ndarray[Any, Any], Any]:
    """The reduction of `inputs` and how far from it a result may be: None, or an array of bounds for floats."""
    want = reduced(inputs, op)
    dtype = inputs[0].dtype
    if dtype not in FLOATS and dtype not in COMPLEX:
        return want, None
    magnitude = np.abs(want) if op == "PRODUCT" else sum(np.abs(exact_form(tensor)) for tensor in inputs)
    finfo = torch.finfo(dtype)
    bound = (len(inputs) + 1) * finfo.eps * magnitude + finfo.tiny
    return want, np.zeros_like(bound) if op in ("MIN", "MAX") else bound


def check_reduced(world: World, got: torch.Tensor, inputs: Sequence[torch.Tensor], op: str) -> None:
    """`got` is the reduction of `inputs`: exact for integers, within p roundings for floats."""
    check_expected(world, got, *expected(inputs, op))


def check_expected(world: World, got: torch.Tensor, want: np.ndarray[Any, Any], bound: Any) -> None:
    have = exact_form(got)
    if have.shape != want.shape:
        raise AssertionError(f"{world.case}: shape {have.shape}, expected {want.shape}")
    wrong = have != want
    if bound is not None:  # floats: within the bound, or NaN where NaN is expected
        wrong = ~((np.abs(have - want) <= bound) | (np.isnan(have) & np.isnan(want)))
    _report(world, wrong, have, want)


def check_equal(world: World, got: torch.Tensor, want: torch.Tensor) -> None:
    """The same dtype, shape and bytes."""
    if got.dtype != want.dtype or got.shape != want.shape:
        raise AssertionError(
            f"{world.case}: got {name_of(got.dtype)}{tuple(got.shape)}, "
            f"expected {name_of(want.dtype)}{tuple(want.shape)}"
        )
    if got.numel() == 0:
        return
    a = got.detach().contiguous().reshape(-1).view(torch.uint8).reshape(got.numel(), -1).numpy()
    b = want.detach().contiguous().reshape(-1).view(torch.uint8).reshape(want.numel(), -1).numpy()
    _report(world, (a != b).any(axis=1), a, b)


def _report(world: World, wrong: Any, have: Any, want: Any) -> None:
    if np.any(wrong):
        where = np.argwhere(np.atleast_1d(wrong))
        first = tuple(int(index) for index in where[0])
        raise AssertionError(
            f"{world.case}: {len(where)} of {wrong.size} elements are wrong on rank {world.rank}; "
            f"first at {first}: got {np.atleast_1d(have)[first]}, expected {np.atleast_1d(want)[first]}"
        )
