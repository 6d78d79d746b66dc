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
def test_what_is_no_number_stays_within_its_block(world, bits):
    """Also what is too small for a scale, which becomes zero."""
    x = torch.zeros(5 * ref.BLOCK)
    x[1] = math.nan if world.rank == 0 else 1
    x[ref.BLOCK] = math.inf
    x[2 * ref.BLOCK : 3 * ref.BLOCK] = 1
    x[3 * ref.BLOCK] = 1e-42
    x[-1] = 3e38 / world.size
    got = altorch.ops.all_reduce_quantized(x, bits)
    assert got[: 2 * ref.BLOCK].isnan().all()
    assert got[2 * ref.BLOCK : 3 * ref.BLOCK].eq(world.size).all()
    assert got[3 * ref.BLOCK : -1].eq(0).all()
    torch.testing.assert_close(got[-1], torch.tensor(3e38), rtol=0.07, atol=0)


@on_ranks(2)
def test_refusals(world):
    with pytest.raises(ValueError, match="bits is 4, and may be 8"):
        altorch.ops.all_reduce_quantized(torch.ones(3), 4)
    with pytest.raises(ValueError, match="takes float16, bfloat16 and float32, and not int64; convert"):
        altorch.ops.all_reduce_quantized(torch.ones(3, dtype=torch.int64))
    with pytest.raises(NotImplementedError, match="no gradient"):
        altorch.ops.all_reduce_quantized(torch.ones(3, requires_grad=True))
    assert altorch.ops.all_reduce_quantized(torch.ones(3)).eq(2).all()


@on_ranks(2)
def test_ranks_that_differ_are_told(world):
    if not world.is_al:
        pytest.skip("Gloo does not compare calls")
    group = dist.new_group()
    with pytest.raises(RuntimeError, match="must make the same calls in the same order"):
        altorch.ops.all_reduce_quantized(torch.ones(3 if world.rank == 0 else 300), group=group)


@on_ranks(2)
def test_torch_compile_keeps_it(world):
    compiled = torch.compile(lambda x: altorch.ops.all_reduce_quantized(x * 2, "fp8") + 1, fullgraph=True)
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
