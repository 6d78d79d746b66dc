# SPDX-License-Identifier: BSD-3-Clause
"""Exact sums (docs/exact.md) against fractions: bit by bit, over every carrier, and what the mode refuses."""

from __future__ import annotations

import exact_reference as ref
import pytest
import torch
import torch.distributed as dist
from harness import CARRIERS, Cluster, on_ranks

import altorch
import altorch.ops

TYPES = {str(dtype).removeprefix("torch."): dtype for dtype in ref.TYPES}


def check_all_operations(world, dtype, group=None):
    count = 360 * world.size
    parts, wants = ref.parts_and_results(world, dtype, count)
    mine = parts[world.rank]
    each = count // world.size
    cuts = [each + (1 if rank == 0 else 0) - (1 if rank == 1 else 0) for rank in range(world.size)]
    begin = sum(cuts[: world.rank])
    for op, mean in ref.OPS:
        world.case = f"{dtype} {op}"
        want = wants[mean]
        got = mine.clone()
        dist.all_reduce(got, op, group=group)
        ref.check(world, got, want)
        got = mine.clone()
        dist.reduce(got, world.size - 1, op, group=group)
        if world.rank == world.size - 1:
            ref.check(world, got, want)
        got = torch.empty(each, dtype=dtype)
        dist.reduce_scatter_tensor(got, mine, op, group=group)
        ref.check(world, got, want[each * world.rank : each * (world.rank + 1)])
        got = torch.empty(cuts[world.rank], dtype=dtype)
        dist.reduce_scatter(got, list(mine.split(cuts)), op, group=group)
        ref.check(world, got, want[begin : begin + cuts[world.rank]])


@on_ranks(2, 3, 4)
@pytest.mark.parametrize("name", TYPES)
def test_sums_against_fractions(world, name):
    if not world.is_al:
        pytest.skip("only altorch has exact sums")
    group = dist.new_group(pg_options=altorch.Options(deterministic="exact"))
    check_all_operations(world, TYPES[name], group)
    dist.destroy_process_group(group)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_every_carrier_gives_these_bits(carrier):
    with Cluster(4, env={**ref.EXACT, **CARRIERS[carrier]}) as cluster:
        cluster.check(every_type)


def every_type(world):
    for dtype in (*ref.TYPES, *ref.FLOAT8):
        check_all_operations(world, dtype)


@on_ranks(2, 3, 4, 5)
@pytest.mark.parametrize("dtype", ref.FLOAT8, ids=str)
def test_float8_in_every_group(world, dtype):
    """Also MIN and MAX, which round nothing, and outside of groups."""
    if not world.is_al:
        pytest.skip("Gloo does not reduce float8")
    check_all_operations(world, dtype)
    parts = ref.difficult(world.generator(0), dtype, 1000, world.size)
    values = torch.stack([part.double() for part in parts])
    for op, want in ((dist.ReduceOp.MIN, values.amin(0)), (dist.ReduceOp.MAX, values.amax(0))):
        world.case = f"{dtype} {op}"
        got = parts[world.rank].clone()
        dist.all_reduce(got, op)
        torch.testing.assert_close(got.double(), want, rtol=0, atol=0, equal_nan=True)
    got = altorch.ops.exact_sum(torch.stack([part.view(torch.uint8) for part in parts]).view(dtype))
    ref.check(world, got, ref.exact_sums(parts))


@on_ranks(3, env=ref.EXACT)
def test_large_and_coalesced_sums(world):
    """Large: in pieces, and a sample of the elements against fractions."""
    for dtype in ref.TYPES:
        generator = world.generator(0)
        parts = [
            torch.randn(300_001, dtype=torch.float64, generator=generator).to(dtype)
            for _ in range(world.size)
        ]
        world.case = f"large {dtype}"
        some = torch.randint(0, 300_001, (500,), generator=generator)
        got = parts[world.rank].clone()
        work = dist.all_reduce(got, async_op=True)
        work.wait()
        ref.check(world, got[some], ref.exact_sums([part[some] for part in parts]))
        world.identical(got)
        pieces = [parts[world.rank][:100].clone(), parts[world.rank][100:300].clone()]
        with dist._coalescing_manager():
            for piece in pieces:
                dist.all_reduce(piece)
        ref.check(world, torch.cat(pieces), got[:300])
    whole = torch.full((5,), 3, dtype=torch.int64)
    dist.all_reduce(whole)
    assert whole.eq(9).all()
    dist.all_reduce(whole, dist.ReduceOp.MAX)


@on_ranks(4, env=ref.EXACT)
def test_the_number_and_order_of_ranks_do_not_matter(world):
    """The values of two ranks, placed on other ranks of larger groups, beside ranks that bring zeros."""
    groups = [dist.new_group(list(range(size))) for size in (2, 3, 4)]
    for dtype in ref.TYPES:
        values = [
            part[torch.isfinite(part)][:400] for part in ref.difficult(world.generator(0), dtype, 500, 2)
        ]
        shortest = min(len(part) for part in values)
        values = [part[:shortest] for part in values]
        want = ref.exact_sums(values) + 0.0  # a rank that brings +0 makes -0 of two -0 +0
        for size, group in zip((2, 3, 4), groups, strict=True):
            for first in range(size):
                second = (first + 1 + first % (size - 1)) % size
                mine = torch.zeros(shortest, dtype=dtype)
                if world.rank == first:
                    mine = values[0].clone()
                elif world.rank == second:
                    mine = values[1].clone()
                world.case = f"{dtype}, values on ranks {first} and {second} of {size}"
                if world.rank < size:
                    dist.all_reduce(mine, group=group)
                    ref.check(world, mine + 0.0, want)
    for group in groups:
        dist.destroy_process_group(group)


@on_ranks(2, env=ref.EXACT)
def test_what_depends_on_the_order_is_refused(world):
    """And the group goes on."""
    halves = dist._make_nccl_premul_sum(0.5)
    for tensor, op, hint in (
        (torch.ones(3), dist.ReduceOp.PRODUCT, "without that mode"),
        (torch.ones(3), halves, "multiply the tensor before"),
    ):
        with pytest.raises(NotImplementedError, match=f"deterministic='exact'.*{hint}"):
            dist.all_reduce(tensor, op)
    with pytest.raises(NotImplementedError, match="order of the ranks"):
        altorch.ops.scan(torch.ones(3))
    with pytest.raises(NotImplementedError, match="to_dense"):
        dist.all_reduce(torch.eye(3).to_sparse())
    window = altorch.new_window(torch.zeros(4))
    with pytest.raises(NotImplementedError, match="order of the ranks"):
        window.accumulate(torch.ones(4), 0)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.eq(2).all()
    y = torch.tensor([complex(1, world.rank)])
    dist.all_reduce(y)  # torch passes real and imaginary parts
    assert y.item() == 2 + 1j


def splits_and_shrinks(world):
    """What is made of an exact group is exact."""
    dist.init_process_group("al", pg_options=altorch.Options(deterministic="exact"))
    refused = pytest.raises(NotImplementedError, match="order of the ranks")
    part = dist.group.WORLD.split_group([0, 1], group_name="part")
    if world.rank < 2:
        with refused:
            part.allreduce([torch.ones(3)], c10d_options(dist.ReduceOp.PRODUCT))
    ordinary = dist.new_group()
    dist.all_reduce(torch.ones(3), dist.ReduceOp.PRODUCT, group=ordinary)
    if world.rank == 1:
        return
    dist.shrink_group([1])
    with refused:
        dist.all_reduce(torch.ones(3), dist.ReduceOp.PRODUCT)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.eq(2).all()
    dist.destroy_process_group()


def c10d_options(op):
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


def test_groups_made_of_an_exact_group_are_exact():
    with Cluster(3, group=False, launcher="torchrun") as cluster:
        cluster.check(splits_and_shrinks)


def test_the_option_is_checked():
    assert altorch.Options(deterministic="exact").deterministic == "exact"
    assert altorch.Options().deterministic is None
    with pytest.raises(ValueError, match="deterministic is 'yes', and may be 'exact' or None"):
        altorch.Options(deterministic="yes")


def test_sums_of_one_rank():
    """altorch.ops.exact_sum: without a group."""
    generator = torch.Generator().manual_seed(5)
    for dtype in ref.TYPES:
        parts = ref.difficult(generator, dtype, 500, 7)
        for mean in (False, True):
            got = altorch.ops.exact_sum(torch.stack(parts).reshape(7, 50, 10), mean=mean)
            want = ref.exact_sums(parts, 7 if mean else 1).reshape(50, 10)
            assert torch.equal(ref.bits_of(got), ref.bits_of(torch.where(want.isnan(), torch.nan, want)))
    assert altorch.ops.exact_sum(torch.ones(1, 3)).tolist() == [1, 1, 1]
    assert altorch.ops.exact_sum(torch.ones(3, 0)).shape == (0,)
    assert altorch.ops.exact_sum(torch.arange(12.0).reshape(3, 4).T).tolist() == [6, 22, 38]  # not contiguous
    assert altorch.ops.exact_sum(torch._neg_view(torch.ones(2, 3))).tolist() == [-2, -2, -2]
    with pytest.raises(NotImplementedError, match="no gradient"):
        altorch.ops.exact_sum(torch.ones(2, 3, requires_grad=True))
    compiled = torch.compile(altorch.ops.exact_sum, backend="eager", fullgraph=True)
    assert compiled(torch.ones(3, 2)).tolist() == [3, 3]
    for wrong, text in (
        (torch.ones(3, dtype=torch.int32), "not int32"),
        (torch.ones(3, dtype=torch.complex64), "not complex64"),
        (torch.tensor(1.0), "no first dimension"),
        (torch.ones(0, 3), "nothing in it"),
        (torch.ones(8193, 1), "up to 8192"),
        (torch.eye(3).to_sparse(), "to_dense"),
    ):
        with pytest.raises(ValueError, match=text):
            altorch.ops.exact_sum(wrong)
