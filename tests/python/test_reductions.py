# SPDX-License-Identifier: BSD-3-Clause
"""Operations that reduce: what the conformance matrix (test_matrix.py) does not vary."""

from __future__ import annotations

import exact_reference as exact
import pytest
import reference as ref
import torch
import torch.distributed as dist
from harness import on_ranks

import altorch.ops


def inputs_of(world, dtype, shape, op):
    return [ref.random_tensor(world, dtype, shape, rank, op) for rank in range(world.size)]


@on_ranks(2, 3, 4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=ref.name_of)
def test_all_reduce_of_every_size_class(world, dtype):
    """Sizes around the places where routes change, and one that is cut into several pieces."""
    for size in (5, 63, 64, 65, 255, 1023, 4097, 16383, 65536, 131071, 524289, 2_000_003):
        world.case = f"all_reduce {ref.name_of(dtype)} SUM {size}"
        inputs = inputs_of(world, dtype, size, "SUM")
        tensor = inputs[world.rank].clone()
        dist.all_reduce(tensor)
        ref.check_reduced(world, tensor, inputs, "SUM")
        world.identical(tensor)


@on_ranks(2, 4)
def test_all_reduce_gives_the_same_bits_again(world):
    """Within a route, run to run: same input, same bits."""
    for size in (3, 1000, 300_001):
        world.case = f"repeat all_reduce float32 {size}"
        source = ref.random_tensor(world, torch.float32, size)
        results = []
        for _ in range(3):
            tensor = source.clone()
            dist.all_reduce(tensor)
            results.append(tensor)
        for other in results[1:]:
            ref.check_equal(world, other, results[0])


@on_ranks(1, 2, 3)
def test_bool_sum_is_or_and_average_of_bool_is_refused(world):
    if not world.is_al:
        pytest.skip("Gloo does not reduce bool")
    tensor = torch.tensor([world.rank == 0, True, False])
    dist.all_reduce(tensor)
    ref.check_equal(world, tensor, torch.tensor([True, True, False]))
    with pytest.raises(TypeError, match=r"(?i)AVG.*bool|bool.*AVG"):
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
    dist.all_reduce(tensor)


@on_ranks(2)
def test_bit_operators_of_floats_are_refused(world):
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        with pytest.raises((RuntimeError, ValueError)):
            dist.all_reduce(torch.ones(3), op)
    dist.all_reduce(torch.ones(3))


@on_ranks(2)
def test_complex_product_is_refused(world):
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)complex"):
        dist.all_reduce(torch.ones(3, dtype=torch.complex64), dist.ReduceOp.PRODUCT)


@on_ranks(2)
@pytest.mark.parametrize("dtype", ref.FLOAT8, ids=ref.name_of)
def test_what_float8_does_not_reduce(world, dtype):
    """Products, and scales and formats of other vendors' GPUs at all. Scans would round at each step."""
    tensor = torch.zeros(8, dtype=torch.uint8).view(dtype)
    with pytest.raises((RuntimeError, ValueError, TypeError), match=r"PRODUCT of|PRODUCT is not|Float8"):
        dist.all_reduce(tensor, dist.ReduceOp.PRODUCT)
    if not world.is_al:
        return
    with pytest.raises(
        ValueError, match=r"SUM of .* by scan would be rounded at each step|SUM is not defined"
    ):
        altorch.ops.scan(tensor)
    if dtype not in exact.FLOAT8:
        with pytest.raises(ValueError, match="SUM is not defined for float8"):
            dist.all_reduce(tensor)
    dist.all_reduce(torch.ones(3))


@on_ranks(2, 3)
@pytest.mark.parametrize("dtype", ref.FLOATS, ids=ref.name_of)
def test_nan_and_infinity(world, dtype):
    """NaN on any rank wins in every reduction; infinities follow IEEE."""
    if not world.is_al:
        pytest.skip("Gloo's MIN and MAX do not propagate NaN")
    nan, inf = float("nan"), float("inf")
    rows = torch.tensor([[nan, inf, 1.0, -inf], [1.0, inf, nan, 2.0], [3.0, 1.0, 2.0, 4.0]], dtype=dtype)
    for op in ("SUM", "MIN", "MAX"):
        for repeat in (1, 9, 500):  # short and vectorised paths
            world.case = f"NaN {ref.name_of(dtype)} {op} x{repeat}"
            inputs = [rows[rank % 3].repeat(repeat) for rank in range(world.size)]
            tensor = inputs[world.rank].clone()
            dist.all_reduce(tensor, ref.reduce_op(op))
            want = torch.from_numpy(ref.reduced(inputs, op)).to(dtype)
            torch.testing.assert_close(tensor, want, rtol=0, atol=0, equal_nan=True)


@on_ranks(2, 3)
@pytest.mark.parametrize("count", [1, 1000, 100_003], ids=["one", "small", "large"])
@pytest.mark.parametrize("dtype", [*ref.FLOATS, *ref.COMPLEX], ids=ref.name_of)
def test_the_mean_is_the_quotient(world, dtype, count):
    """To the bit, where the sum is exact: sum / size, rounded once."""
    if not world.is_al:
        pytest.skip("Gloo rounds half types in between")
    inputs = [
        torch.randint(-99, 100, (count,), generator=world.generator(rank)).to(dtype)
        for rank in range(world.size)
    ]
    wide = {
        torch.float64: torch.float64,
        torch.complex64: torch.complex64,
        torch.complex128: torch.complex128,
    }
    total = sum(tensor.to(wide.get(dtype, torch.float32)) for tensor in inputs)
    parts = torch.view_as_real(total) if total.is_complex() else total
    want = parts / world.size
    want = torch.view_as_complex(want) if total.is_complex() else want.to(dtype)
    tensor = inputs[world.rank].clone()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert torch.equal(tensor, want)
    output = torch.empty(count, dtype=dtype)
    rows = [tensor.repeat(world.size) for tensor in inputs]
    dist.reduce_scatter_tensor(output, rows[world.rank], dist.ReduceOp.AVG)
    assert torch.equal(output, want)
    tensor = inputs[world.rank].clone()
    dist.reduce(tensor, 0, dist.ReduceOp.AVG)
    if world.rank == 0:
        assert torch.equal(tensor, want)


@on_ranks(2, 4)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64], ids=ref.name_of
)
def test_premul_sum_takes_a_number_or_a_tensor(world, dtype):
    if not world.is_al:
        pytest.skip("Gloo has no PREMUL_SUM")
    for factor in (0.25, torch.tensor([0.25])):
        world.case = f"PREMUL_SUM {ref.name_of(dtype)} by {type(factor).__name__}"
        inputs = inputs_of(world, dtype, 100, "SUM")
        tensor = inputs[world.rank].clone()
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        ref.check_reduced(world, tensor, [tensor * 0.25 for tensor in inputs], "SUM")
        world.identical(tensor)


@on_ranks(2)
def test_sparse_all_reduce_works_or_says_that_it_does_not(world):
    indices = torch.tensor([[world.rank, 3]])
    tensor = torch.sparse_coo_tensor(indices, torch.ones(2), (5,))
    try:
        dist.all_reduce(tensor)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        assert "sparse" in str(error).lower(), error
    else:
        assert torch.equal(tensor.to_dense(), torch.tensor([1.0, 1.0, 0.0, 2.0, 0.0]))
    dist.all_reduce(torch.ones(3))


@on_ranks(2, 3)
def test_non_contiguous_reductions_work_or_are_refused(world):
    """A strided tensor gives the right result in its own strides, or a clear error and nothing changed."""
    if not world.is_al:
        pytest.skip("Gloo reduces a strided view as if it were contiguous, and so gives wrong numbers")
    for label, view in (
        ("transpose", lambda t: t.t()),
        ("step", lambda t: t[:, ::2]),
        ("row", lambda t: t[2:5]),
    ):
        world.case = f"all_reduce of a {label} view"
        inputs = [view(ref_input(world, rank)).clone() for rank in range(world.size)]
        mine = ref_input(world, world.rank)
        before = mine.clone()
        try:
            dist.all_reduce(view(mine))
        except (RuntimeError, ValueError) as error:
            assert "contiguous" in str(error), error
            ref.check_equal(world, mine, before)
            continue
        ref.check_reduced(world, view(mine), inputs, "SUM")
        outside = torch.ones_like(mine, dtype=torch.bool)
        view(outside).fill_(False)
        assert torch.equal(mine[outside], before[outside]), f"{world.case}: wrote outside the view"
    dist.all_reduce(torch.ones(3))


def ref_input(world, rank):
    return ref.random_tensor(world, torch.float32, (8, 6), rank)


@on_ranks(2, 3)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_coalesced_tensors_that_share_memory(world, asynchronous):
    """Each reduces the values that came in, as if all had been taken before the first was written."""
    total = float(world.size * (world.size + 1) // 2)

    def mine(*shape):
        return torch.full(shape, world.rank + 1.0)

    def check(tensors, whole):
        work = dist.all_reduce_coalesced(tensors, async_op=asynchronous)
        if work is not None:
            work.wait()
        assert whole.eq(total).all(), whole

    tensor = mine(3)
    check([tensor, tensor], tensor)
    base = mine(40_000)
    check([base[:3], base[1:]], base)
    base = mine(40_000)
    check([base[2:], base, base[:3]], base)
    base = mine(40_000)
    check([base[::2], base[1::2]], base)
    square = mine(4, 4)
    check([square.t(), square[1:3], torch.ones(2)], square)


@on_ranks(2, 3)
def test_a_window_s_tensors_that_share_memory(world):
    tensor = torch.full((5,), world.rank + 1.0)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(tensor)
        dist.all_reduce(tensor)
    manager.wait()
    assert tensor.eq(world.size * (world.size + 1) / 2).all(), tensor
