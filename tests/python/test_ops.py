# SPDX-License-Identifier: BSD-3-Clause
"""altorch.ops: a collective and what follows it, on CPU tensors, and against a reference in float64."""

from __future__ import annotations

import os
import re
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from torch.nn import functional

import altorch.ops

TYPES = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=lambda dtype: str(dtype)[6:]
)
SHAPES = ((4, 6), (1, 1), (3, 2, 257), (5,), (0, 8))


def numbers(world, shape, dtype, of, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + of)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def check(world, call, dtype, shape, weighs, device="cpu", seed=0):
    """`call` against the separate operations, and against float64."""
    parts = [numbers(world, shape, dtype, rank, seed) for rank in range(world.size)]
    residual = numbers(world, shape, dtype, 50, seed)
    weight = numbers(world, shape[-1:], dtype, 51, seed) if weighs else None
    there = [
        None if tensor is None else tensor.to(device) for tensor in (parts[world.rank], residual, weight)
    ]
    before = [None if tensor is None else tensor.clone() for tensor in there]
    normed, summed = call(*there)
    for tensor, was in zip(there, before, strict=True):
        assert tensor is None or tensor.equal(was), "an input has changed"
    reduced = parts[world.rank].to(device)
    dist.all_reduce(reduced)
    assert summed.dtype == dtype and normed.dtype == dtype
    assert summed.shape == normed.shape == torch.Size(shape)
    assert summed.equal(there[1] + reduced), "the sums differ from those of all_reduce and +"
    exact = functional.rms_norm(
        summed.cpu().double(), shape[-1:], None if weight is None else weight.double(), 1e-6
    )
    error = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(normed.cpu().double(), exact, rtol=error, atol=error)
    world.identical(normed)


@on_ranks(1, 2, 3)
@TYPES
def test_sums_and_divides_by_the_norm(world, dtype):
    for shape in SHAPES:
        for weighs in (True, False):
            world.case = f"{shape} {dtype}, {weighs=}"
            check(world, altorch.ops.all_reduce_rms_norm, dtype, shape, weighs)


@on_ranks(2)
def test_takes_tensors_that_are_not_contiguous(world):
    part = numbers(world, (6, 4), torch.float32, world.rank).t()
    residual = numbers(world, (8, 6), torch.float32, 9)[::2]
    normed, summed = altorch.ops.all_reduce_rms_norm(part, residual, torch.ones(12)[::2])
    reduced = part.contiguous()
    dist.all_reduce(reduced)
    assert summed.equal(residual + reduced) and summed.is_contiguous()
    torch.testing.assert_close(normed, functional.rms_norm(summed, (6,), None, 1e-6))


@on_ranks(2)
def test_is_compiled_whole(world):
    torch.compiler.reset()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def layer(part, residual, weight):
        normed, summed = altorch.ops.all_reduce_rms_norm(part * 1.0, residual, weight)
        return normed + 0.0, summed + 0.0

    check(world, layer, torch.float32, (3, 8), True)


@on_ranks(2)
def test_works_over_another_backend(world):
    group = dist.new_group(backend="gloo")

    def call(part, residual, weight):
        return altorch.ops.all_reduce_rms_norm(part, residual, weight, group=group)

    check(world, call, torch.float32, (3, 8), True)
    dist.destroy_process_group(group)


BAD = {
    "another shape": (lambda x: (x, x[:2], None), "residual is of shape .*must have the same"),
    "another type": (lambda x: (x, x.double(), None), "residual"),
    "a weight of another width": (lambda x: (x, x, torch.ones(3)), "weight is of shape .*for each column"),
    "integers": (lambda x: (x.int(), x.int(), None), "floating-point"),
    "no rows": (lambda x: (x.sum(), x.sum(), None), "no dimension"),
}


@on_ranks(2)
@pytest.mark.parametrize("what", BAD)
def test_bad_input_of_one_rank_is_an_error_on_both(world, what):
    if not world.is_al:
        pytest.skip("it is altorch that tells the others")
    make, said = BAD[what]
    group = dist.new_group(timeout=timedelta(seconds=20))
    good = torch.ones(4, 8)
    given = make(good) if world.rank == 1 else (good, good, None)
    with pytest.raises((RuntimeError, ValueError, TypeError)) as caught:
        altorch.ops.all_reduce_rms_norm(*given, group=group)
        dist.barrier(group)
    if world.rank == 1:
        assert re.search(said, str(caught.value)), caught.value
    else:
        assert "rank 1" in str(caught.value), caught.value


@on_ranks(2)
def test_another_call_on_the_other_rank_is_an_error_on_both(world):
    if not world.is_al:
        pytest.skip("it is altorch that compares the calls")
    group = dist.new_group(timeout=timedelta(seconds=20))
    x = torch.ones(4, 8)
    with pytest.raises(RuntimeError, match="a norm of rows of 8 behind it"):
        if world.rank == 0:
            altorch.ops.all_reduce_rms_norm(x, x, group=group)
        else:
            dist.all_reduce(x, group=group)
        dist.barrier(group)


@on_ranks(2)
def test_other_rows_on_the_other_rank_are_an_error_on_both(world):
    if not world.is_al:
        pytest.skip("it is altorch that compares the calls")
    group = dist.new_group(timeout=timedelta(seconds=20))
    x = torch.ones(4, 8) if world.rank == 0 else torch.ones(8, 4)
    with pytest.raises(RuntimeError, match=r"a norm of rows of [48] behind it"):
        altorch.ops.all_reduce_rms_norm(x, x, group=group)
        dist.barrier(group)


@on_ranks(2)
def test_a_gradient_on_one_rank_is_an_error_on_both(world):
    if not world.is_al:
        pytest.skip("it is altorch that tells the others")
    group = dist.new_group(timeout=timedelta(seconds=20))
    x = torch.ones(2, 4, requires_grad=world.rank == 1)
    with pytest.raises((RuntimeError, NotImplementedError), match="no_grad"):
        altorch.ops.all_reduce_rms_norm(x, x, group=group)
        dist.barrier(group)


@on_ranks(1)
def test_no_gradient_is_none_where_none_is_wanted(world):
    x = torch.ones(2, 4, requires_grad=True)
    with torch.no_grad():
        altorch.ops.all_reduce_rms_norm(x, x)


@on_ranks(2)
def test_a_compiled_call_stays_where_the_program_does_not_use_its_results(world):
    torch.compiler.reset()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def layer(x, used):
        normed, _ = altorch.ops.all_reduce_rms_norm(x * 1.0, x)
        return normed + 0.0 if used else x + 0.0

    layer(torch.ones(3, 8), world.rank == 0)
    dist.barrier()


@on_ranks(1)
def test_fake_tensors_have_shapes_alone(world):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.ones(3, 8)
        normed, summed = altorch.ops.all_reduce_rms_norm(x, x, torch.ones(8))
        assert normed.shape == summed.shape == (3, 8)


@on_ranks(2)
def test_a_rank_outside_of_the_group_is_told(world):
    group = dist.new_group([0])
    x = torch.ones(2, 4)
    if world.rank == 0:
        assert altorch.ops.all_reduce_rms_norm(x, x, group=group)[1].eq(2).all()
    else:
        with pytest.raises(ValueError, match="not part of the group"):
            altorch.ops.all_reduce_rms_norm(x, x, group=group)


@on_ranks(2)
@pytest.mark.parametrize("what", ["another shape", "another type", "a weight of another width", "no rows"])
def test_bad_input_over_another_backend_reduces_nothing(world, what):
    group = dist.new_group(backend="gloo")
    with pytest.raises(ValueError, match=r"altorch\.ops\.all_reduce_rms_norm: a "):
        altorch.ops.all_reduce_rms_norm(*BAD[what][0](torch.ones(4, 8)), group=group)
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    assert x.eq(2).all()
    dist.destroy_process_group(group)


OPERATORS = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def scanned(parts, op, last):
    """Of the first `last` parts, in float64 where they are floats."""
    wide = [part.double() if part.is_floating_point() else part for part in parts[:last]]
    result = wide[0].clone()
    for part in wide[1:]:
        result = OPERATORS[op](result, part)
    return result


def check_scan(world, dtype, op, shape, exclusive, device="cpu", group=None):
    generator = torch.Generator().manual_seed(7)
    if dtype.is_floating_point:
        parts = [
            torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(world.size)
        ]
    else:
        parts = [torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator).to(dtype)
                 for _ in range(world.size)]  # fmt: skip
    own = parts[world.rank].to(device)
    before = own.clone()
    found = altorch.ops.scan(own, getattr(dist.ReduceOp, op), group, exclusive=exclusive)
    assert own.equal(before), "the input has changed"
    assert (
        found.dtype == dtype and found.shape == own.shape and found.data_ptr() != own.data_ptr()
    ) or not own.numel()
    last = world.rank + (not exclusive)
    if last == 0:
        combined = OPERATORS[op](found, own)
        assert combined.equal(own), f"what rank 0 gets changes {own} to {combined}"
        return
    exact = scanned(parts, op, last)
    if dtype.is_floating_point:
        error = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1.6e-2}[dtype]
        torch.testing.assert_close(found.cpu().double(), exact, rtol=error, atol=error)
    else:
        assert found.cpu().equal(exact)


@on_ranks(1, 2, 3, 4)
def test_scan_reduces_the_ranks_up_to_this_one(world):
    for exclusive in (False, True):
        for shape in ((), (0,), (5,), (3, 257), (200_003,)):
            world.case = f"{shape} {exclusive=}"
            for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int64):
                check_scan(world, dtype, "SUM", shape, exclusive)
        for op in OPERATORS:
            for dtype in (torch.int32, torch.uint8, torch.bool):
                if dtype == torch.bool and op in ("SUM", "PRODUCT", "MIN", "MAX"):
                    continue
                world.case = f"{op} {dtype} {exclusive=}"
                check_scan(world, dtype, op, (19,), exclusive)


@on_ranks(3)
def test_scan_takes_groups_views_and_compilers(world):
    half = dist.new_group([2, 0])
    if world.rank != 1:
        place = dist.get_group_rank(half, world.rank)  # torch orders the ranks
        found = altorch.ops.scan(torch.tensor([world.rank + 1.0]), group=half)
        assert found.tolist() == ([1.0] if place == 0 else [4.0])
    view = torch.arange(12.0).view(3, 4).t()
    assert altorch.ops.scan(view).equal(view * (world.rank + 1))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def begin(count):
        return altorch.ops.scan(count + 0, exclusive=True) * 1

    assert begin(torch.tensor(10)).item() == 10 * world.rank
    functional_scan = torch.func.functionalize(altorch.ops.scan)  # its tensors have no memory
    assert functional_scan(torch.ones(3)).tolist() == [world.rank + 1.0] * 3
    conjugate = torch.tensor([1 + 2j]).conj()
    assert altorch.ops.scan(conjugate).equal(conjugate * (world.rank + 1))
    if world.is_al:
        gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=20))
        check_scan(world, torch.float32, "SUM", (33,), False, group=gloo)
        check_scan(world, torch.int64, "MAX", (33,), True, group=gloo)
        assert altorch.ops.scan(conjugate, group=gloo).equal(conjugate * (world.rank + 1))
        dist.destroy_process_group(gloo)


@on_ranks(2)
def test_what_scan_refuses_is_refused_on_every_rank(world):
    if not world.is_al or os.environ.get("ALTORCH_SHM_BYTES") == "0":
        pytest.skip("it is altorch that tells the others, over shared memory at once")
    x = torch.ones(3)
    cases = {
        "no gradient": lambda group: altorch.ops.scan(x.clone().requires_grad_(world.rank == 1), group=group),
        "scan takes SUM": lambda group: altorch.ops.scan(x, ("AVG", "SUM")[world.rank], group),
        "BXOR is not defined for float32": lambda group: altorch.ops.scan(x, dist.ReduceOp.BXOR, group),
        "scan.SUM. of [34] float32": lambda group: altorch.ops.scan(torch.ones(3 + world.rank), group=group),
        "exscan": lambda group: altorch.ops.scan(x, group=group, exclusive=world.rank == 0),
    }
    for words, call in cases.items():
        world.case = words
        group = dist.new_group(timeout=timedelta(seconds=20))
        with pytest.raises((RuntimeError, ValueError, NotImplementedError), match=words):
            call(group)
            dist.barrier(group)
