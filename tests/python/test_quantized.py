# SPDX-License-Identifier: BSD-3-Clause
"""altorch.ops.all_reduce_quantized on CPU tensors, against the bound of its error, and DDP with it."""

from __future__ import annotations

import math

import pytest
import quantized_reference as ref
import torch
import torch.distributed as dist
from harness import on_ranks
from torch.nn.parallel import DistributedDataParallel

import altorch.ops

BITS = pytest.mark.parametrize("bits", [8, "fp8"], ids=str)


def check_all(world, bits, group=None, sizes=ref.SIZES):
    for dtype in ref.TYPES:
        for count in sizes:
            for kind in ("normal", "outliers", "spread"):
                world.case = f"{count} {dtype}, {kind}"
                parts = ref.inputs(world, dtype, count, kind)
                before = parts[world.rank].clone()
                got = altorch.ops.all_reduce_quantized(parts[world.rank], bits, group)
                ref.check(world, got, parts, bits)
                assert parts[world.rank].equal(before), "the input has changed"
                world.identical(got)


@on_ranks(2, 3, 4)
@BITS
def test_the_error_is_below_the_bound(world, bits):
    check_all(world, bits)


@on_ranks(3)
def test_means_views_and_groups(world):
    parts = ref.inputs(world, torch.float32, 600, "normal")
    world.case = "mean"
    ref.check(world, altorch.ops.all_reduce_quantized(parts[world.rank], mean=True), parts, 8, mean=True)
    world.case = "transposed"
    matrix = parts[world.rank].view(20, 30).t()
    got = altorch.ops.all_reduce_quantized(matrix)
    assert got.shape == matrix.shape
    ref.check(world, got.reshape(-1), [part.view(20, 30).t().reshape(-1) for part in parts], 8)
    world.case = "group"
    pair = dist.new_group([0, 2])
    if world.rank != 1:
        two = [parts[0], parts[2]]
        ref.check(world, altorch.ops.all_reduce_quantized(parts[world.rank], group=pair), two, 8)
    world.case = "negative bit"
    negative = [-part for part in parts]
    ref.check(world, altorch.ops.all_reduce_quantized(torch._neg_view(parts[world.rank])), negative, 8)
    world.case = "nothing"
    assert altorch.ops.all_reduce_quantized(torch.zeros(0, 3)).shape == (0, 3)


@on_ranks(1)
def test_one_rank_gets_its_values(world):
    x = torch.randn(100)
    got = altorch.ops.all_reduce_quantized(x)
    assert got.equal(x) and got.data_ptr() != x.data_ptr()


@on_ranks(2, 3)
@BITS
def test_what_is_no_number_stays_within_its_pack(world, bits):
    """Also what is too small for a scale, which becomes zero."""
    packs = ref.unpacked(2)
    x = torch.zeros(2 * ref.UNIT)
    x[packs == 2] = 1
    first = [int((packs == pack).nonzero()[3]) for pack in range(6)]
    x[first[0]] = math.nan if world.rank == 0 else 1
    x[first[1]] = math.inf
    x[first[3]] = 1e-42
    x[first[5]] = 3e38 / world.size
    got = altorch.ops.all_reduce_quantized(x, bits)
    assert got[packs < 2].isnan().all()
    assert got[packs == 2].sub(world.size).abs().max() <= 0.07 * world.size
    assert got[packs == 3].eq(0).all() and got[packs == 4].eq(0).all() and got[packs > 5].eq(0).all()
    torch.testing.assert_close(got[first[5]], torch.tensor(3e38), rtol=0.07, atol=0)


@on_ranks(2)
def test_refusals(world):
    with pytest.raises(ValueError, match="bits is 4, and may be 8"):
        altorch.ops.all_reduce_quantized(torch.ones(3), 4)
    with pytest.raises(ValueError, match="takes float16, bfloat16 and float32, and not int64; convert"):
        altorch.ops.all_reduce_quantized(torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"takes dense tensors, and not torch\.sparse_coo"):
        altorch.ops.all_reduce_quantized(torch.ones(3).to_sparse())
    for call in (
        altorch.ops.all_reduce_quantized,
        torch.compile(altorch.ops.all_reduce_quantized, backend="aot_eager"),
    ):
        with pytest.raises(NotImplementedError, match="no gradient"):
            call(torch.ones(3, requires_grad=True))
    assert altorch.ops.all_reduce_quantized(torch.ones(3)).sub(2).abs().max() < 0.02


@on_ranks(2, 3)
def test_ranks_that_differ_are_told(world):
    """Of the same rows, but another type, number of elements, code, or a mean."""
    group = dist.new_group()
    whole = torch.ones(300)
    others = {
        "the sum of 299 float32 in int8": lambda: altorch.ops.all_reduce_quantized(whole[1:], group=group),
        "the sum of 300 bfloat16 in int8": lambda: altorch.ops.all_reduce_quantized(
            whole.bfloat16(), group=group
        ),
        "the sum of 300 float32 in float8": lambda: altorch.ops.all_reduce_quantized(whole, "fp8", group),
        "the mean of 300 float32 in int8": lambda: altorch.ops.all_reduce_quantized(
            whole, 8, group, mean=True
        ),
    }
    for text, call in others.items():
        last = world.size - 1
        with pytest.raises(RuntimeError, match=f"rank 0 asks for the sum of 300 .* rank {last} for {text}"):
            call() if world.rank == last else altorch.ops.all_reduce_quantized(whole, group=group)
        assert altorch.ops.all_reduce_quantized(whole, group=group).sub(world.size).abs().max() < 0.1


@on_ranks(2)
def test_torch_compile_keeps_it(world):
    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(x):
        return altorch.ops.all_reduce_quantized(x * 2, "fp8") + 1

    parts = [part * 2 for part in ref.inputs(world, torch.float32, 300, "normal")]
    got = compiled(parts[world.rank] / 2)
    ref.check(world, got - 1, parts, "fp8")


@on_ranks(2)
@BITS
def test_ddp_trains_as_without_it(world, bits):
    torch.manual_seed(0)
    data = torch.randn(64, 20)
    labels = (data[:, :3].sum(1) > 0).long()
    losses = []
    for quantizes in (False, True):
        torch.manual_seed(1)
        model = DistributedDataParallel(
            torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
        )
        if quantizes:
            model.register_comm_hook(None, altorch.ops.quantized_ddp_hook(bits))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for _ in range(40):
            loss = torch.nn.functional.cross_entropy(model(data[world.rank :: 2]), labels[world.rank :: 2])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        losses.append(float(whole) / 2)
        for parameter in model.parameters():
            world.identical(parameter.detach())
    assert losses[0] < 0.2 and abs(losses[1] - losses[0]) < 0.02, losses
