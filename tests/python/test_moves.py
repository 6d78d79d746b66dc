# SPDX-License-Identifier: BSD-3-Clause
"""Operations that move data: what the conformance matrix (test_matrix.py) does not vary."""

from __future__ import annotations

import pytest
import reference as ref
import torch
import torch.distributed as dist
from harness import on_ranks

WORLDS = (1, 2, 3, 4)


def inputs_of(world, dtype, shape):
    return [ref.random_tensor(world, dtype, shape, rank) for rank in range(world.size)]


def finish(work):
    if work is not None:
        work.wait()


@on_ranks(2, 3)
def test_all_gather_with_aliased_outputs(world):
    """Outputs that are slices of one tensor, and an input that is one of the outputs."""
    inputs = inputs_of(world, torch.float32, 7)
    joined = torch.zeros(world.size * 7)
    outputs = list(joined.split(7))
    outputs[world.rank].copy_(inputs[world.rank])
    world.case = "all_gather into slices of one tensor, input among them"
    dist.all_gather(outputs, outputs[world.rank])
    ref.check_equal(world, joined, torch.cat(inputs))


@on_ranks(2, 3)
def test_all_gather_coalesced(world):
    shapes = [(3,), (2, 5), (1,)]
    per_rank = []
    for rank in range(world.size):
        parts = ref.random_tensor(world, torch.float32, 14, rank).split([3, 10, 1])
        per_rank.append([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])
    outputs = [[torch.empty(shape) for shape in shapes] for _ in range(world.size)]
    finish(dist.all_gather_coalesced(outputs, per_rank[world.rank], async_op=True))
    for got, want in zip(outputs, per_rank, strict=True):
        for a, b in zip(got, want, strict=True):
            ref.check_equal(world, a, b)


@on_ranks(2, 3)
def test_all_to_all_single_of_rows(world):
    """Splits count rows of a matrix, not elements."""
    world.case = "all_to_all_single rows"
    rows = [[sender + receiver for receiver in range(world.size)] for sender in range(world.size)]
    mine = rows[world.rank]
    source = torch.cat([torch.full((n, 5), 10.0 * world.rank + r) for r, n in enumerate(mine)])
    takes = [row[world.rank] for row in rows]
    output = torch.empty(sum(takes), 5)
    dist.all_to_all_single(output, source, takes, mine)
    want = torch.cat([torch.full((n, 5), 10.0 * sender + world.rank) for sender, n in enumerate(takes)])
    ref.check_equal(world, output, want)


@pytest.mark.parametrize("length", [5, 9000, 300_000])
@on_ranks(2, 3)
def test_outputs_that_lie_where_blocks_leave(world, length):
    """The output is the block of another rank, so that what arrives comes where something has still to be read."""
    other = (world.rank + 1) % world.size
    blocks = [
        ref.random_tensor(world, torch.float32, world.size * length, rank) for rank in range(world.size)
    ]

    world.case = "all_to_all_single, both the same tensor"
    both = blocks[world.rank].clone()
    dist.all_to_all_single(both, both)
    ref.check_equal(world, both, torch.cat([each.chunk(world.size)[world.rank] for each in blocks]))

    world.case = "all_gather_into_tensor, the input is another rank's slice"
    joined = blocks[world.rank].clone()
    dist.all_gather_into_tensor(joined, joined.chunk(world.size)[other])
    owners = [(rank + 1) % world.size for rank in range(world.size)]
    ref.check_equal(
        world, joined, torch.cat([blocks[r].chunk(world.size)[owners[r]] for r in range(world.size)])
    )

    world.case = "reduce_scatter_tensor, the output is another rank's slice"
    source = blocks[world.rank].clone()
    dist.reduce_scatter_tensor(source.chunk(world.size)[other], source)
    parts = [each.chunk(world.size)[world.rank] for each in blocks]
    ref.check_reduced(world, source.chunk(world.size)[other], parts, "SUM")

    world.case = "scatter, the root's output is another rank's slice"
    source = blocks[world.rank].clone()
    output = source.chunk(world.size)[other]
    dist.scatter(output, list(source.chunk(world.size)) if world.rank == 1 else None, src=1)
    ref.check_equal(world, output, blocks[1].chunk(world.size)[world.rank])

    world.case = "gather, the root's input is another rank's slice"
    joined = blocks[world.rank].clone()
    dist.gather(
        joined.chunk(world.size)[other], list(joined.chunk(world.size)) if world.rank == 1 else None, dst=1
    )
    if world.rank == 1:
        ref.check_equal(
            world, joined, torch.cat([blocks[r].chunk(world.size)[owners[r]] for r in range(world.size)])
        )


@on_ranks(2, 3)
def test_strided_and_zero_dimensional_tensors(world):
    """A view that is not contiguous is moved rightly or refused by name; nothing outside it is written."""
    if not world.is_al:
        pytest.skip("Gloo moves a strided view as if it were contiguous, and so gives wrong numbers")
    world.case = "broadcast of a 0-dim tensor"
    scalar = torch.tensor(3.5 if world.rank == 0 else 0.0)
    dist.broadcast(scalar, 0)
    assert scalar.item() == 3.5 and scalar.dim() == 0

    base = torch.full((6, 4), -1.0)
    column = base[:, 1]
    column.fill_(float(world.rank))
    world.case = "broadcast of a column"
    try:
        dist.broadcast(column, 1)
    except (RuntimeError, ValueError) as error:
        assert "contiguous" in str(error), error
    else:
        assert torch.equal(column, torch.full((6,), 1.0)), f"{world.case}: {column}"
        assert torch.equal(base[:, 0], torch.full((6,), -1.0)), "wrote outside the view"
        assert torch.equal(base[:, 2:], torch.full((6, 2), -1.0)), "wrote outside the view"

    world.case = "all_gather of a transposed matrix"
    source = torch.arange(6.0).reshape(2, 3).t() + 100 * world.rank
    outputs = [torch.zeros(3, 2) for _ in range(world.size)]
    try:
        dist.all_gather(outputs, source)
    except (RuntimeError, ValueError) as error:
        assert "contiguous" in str(error), error
    else:
        for rank, output in enumerate(outputs):
            ref.check_equal(world, output, (torch.arange(6.0).reshape(2, 3).t() + 100 * rank).contiguous())
    dist.barrier()


@on_ranks(*WORLDS)
def test_barrier(world):
    for _ in range(20):
        dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.is_completed()


@on_ranks(2, 3, 4)
def test_barrier_holds_everyone_until_the_last(world):
    """No rank leaves before the last rank has come: seen through the clock, which all ranks share."""
    import time

    times = torch.zeros(world.size, dtype=torch.float64)
    for late in range(world.size):
        dist.barrier()
        if world.rank == late:
            time.sleep(0.1)
        came = torch.tensor([time.monotonic()], dtype=torch.float64)
        dist.barrier()
        left = time.monotonic()
        dist.all_gather_into_tensor(times, came)
        assert left >= times.max().item(), f"left {times.max().item() - left:.6f} s before the last rank came"


@on_ranks(1, 2, 3)
def test_single_names_of_newer_torch(world):
    """torch 2.14 gives the *_single functions; they are the same operations."""
    if not hasattr(dist, "all_gather_single"):
        pytest.skip("this torch has no all_gather_single")
    inputs = inputs_of(world, torch.float32, 5)
    output = torch.empty(5 * world.size)
    dist.all_gather_single(output, inputs[world.rank].clone())
    ref.check_equal(world, output, torch.cat(inputs))
    inputs = inputs_of(world, torch.float32, 5 * world.size)
    output = torch.empty(5)
    dist.reduce_scatter_single(output, inputs[world.rank].clone())
    ref.check_reduced(world, output, [tensor.split(5)[world.rank] for tensor in inputs], "SUM")


@on_ranks(2)
def test_gather_single_refuses_wrong_outputs(world):
    if not hasattr(dist, "gather_single") or not world.is_al:
        pytest.skip("new in torch 2.15, and Gloo has none")
    for output, error, words in (
        (torch.zeros(5), ValueError, r"5 elements, expected 6"),
        (torch.zeros(6, dtype=torch.int32), TypeError, "type"),
    ):
        group = dist.new_group()
        if world.rank == 0:
            backend = group._get_backend(torch.device("cpu"))
            with pytest.raises(error, match=words):
                backend.gather_single(output, torch.ones(3), dist.GatherOptions())
        dist.destroy_process_group(group)
