# SPDX-License-Identifier: BSD-3-Clause
"""all_reduce of sparse tensors: against dense sums, over types and shapes, in order with other calls, its errors."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"]
# Sizes, sparse dimensions, elements (with duplicates) on the ranks in turn.
SHAPES = {
    "vector": ((50,), 1, (9, 30)),
    "matrix": ((7, 5), 2, (6, 12)),
    "hybrid": ((20, 3), 1, (8, 11)),
    "very hybrid": ((6, 5, 2, 3), 2, (7, 10)),
    "empty on some": ((20, 3), 1, (0, 5)),
    "empty on all": ((20, 3), 1, (0, 0)),
    "one row": ((1, 4), 1, (3, 2)),
    "no dense elements": ((5, 0), 1, (2, 3)),
}


def make(world, shape, dtype, rank):
    sizes, sparse, counts = SHAPES[shape]
    generator = world.generator(rank)
    count = counts[rank % 2]
    indices = torch.stack([torch.randint(0, n, (count,), generator=generator) for n in sizes[:sparse]])
    values = torch.randint(0, 4, (count, *sizes[sparse:]), generator=generator).to(getattr(torch, dtype))
    return torch.sparse_coo_tensor(indices, values, sizes, check_invariants=True)


def dense_sum(tensors):
    total = sum(tensor.to_dense().to(torch.complex128) for tensor in tensors)
    if tensors[0].dtype == torch.bool:
        return total != 0
    return total.to(tensors[0].dtype) if tensors[0].is_complex() else total.real.to(tensors[0].dtype)


@on_ranks(1, 2, 3)
@pytest.mark.parametrize("shape", SHAPES)
def test_sum(world, shape):
    for dtype in TYPES:
        world.case = f"{shape} {dtype}"
        inputs = [make(world, shape, dtype, rank) for rank in range(world.size)]
        for asynchronous in (False, True):
            tensor = inputs[world.rank].clone()
            if (
                tensor.is_complex()
            ):  # dist.all_reduce makes a copy of a sparse complex tensor, for every backend
                dist.group.WORLD.allreduce([tensor]).wait()
            else:
                work = dist.all_reduce(tensor, async_op=asynchronous)
                if asynchronous:
                    work.wait()
            assert tensor.is_sparse and tensor.is_coalesced() and tensor.dtype == inputs[0].dtype
            assert tensor.sparse_dim() == inputs[0].sparse_dim() and tensor.shape == inputs[0].shape
            assert torch.equal(tensor.to_dense(), dense_sum(inputs)), tensor
            world.identical(tensor.indices())
            world.identical(tensor.values())


@on_ranks(2, 3)
def test_half_types_are_rounded_once(world):
    """1 + 2^-11 - 1 is 0 when float16 rounds in between; the same on one rank's own duplicates."""
    tiny = 2.0**-11
    parts = ([1.0, tiny], [-1.0, 0.0], [0.0, 0.0])[world.rank]
    tensor = torch.sparse_coo_tensor([[3, 3]], torch.tensor(parts, dtype=torch.float16), (5,))
    dist.all_reduce(tensor)
    assert tensor.to_dense()[3].item() == tiny


@on_ranks(2, 3)
def test_futures_and_results(world):
    tensor = torch.sparse_coo_tensor([[world.rank, 4]], torch.ones(2, 2), (5, 2))
    work = dist.all_reduce(tensor, async_op=True)
    halved = work.get_future().then(lambda future: future.value()[0] / 2)
    want = torch.zeros(5, 2)
    want[: world.size] = 1
    want[4] = world.size
    assert torch.equal(halved.wait().to_dense(), want / 2)
    work.wait()
    assert work.is_completed() and work.is_success()
    assert work.result()[0] is tensor or torch.equal(work.result()[0].to_dense(), want)
    assert torch.equal(tensor.to_dense(), want)


@on_ranks(2, 3)
def test_other_calls_do_not_come_between(world):
    """A dense call follows at once; on one rank it is made when the first half is long done, on another before."""
    for step in range(10):
        sparse = torch.sparse_coo_tensor([[world.rank]], torch.ones(1), (8,))
        first = dist.all_reduce(sparse, async_op=True)
        if step % world.size == world.rank:
            first.wait()
        dense = torch.full((3,), float(step))
        second = dist.all_reduce(dense, async_op=True)
        dist.barrier()
        first.wait()
        second.wait()
        assert torch.equal(dense, torch.full((3,), float(step * world.size)))
        assert sparse.to_dense().sum() == world.size


@on_ranks(2)
def test_inside_a_callback(world):
    """The sum is made on the thread that runs callbacks: one that waits for it there must not wait for itself."""
    done = []

    def reduce_another(future):
        sparse = torch.sparse_coo_tensor([[world.rank]], torch.ones(1), (4,))
        dist.all_reduce(sparse, async_op=True).wait()
        done.append(sparse.to_dense().sum().item())
        return future.value()[0]

    for _ in range(5):
        work = dist.all_reduce(torch.ones(3), async_op=True)
        assert torch.equal(work.get_future().then(reduce_another).wait(), torch.full((3,), 2.0))
    assert done == [2.0] * 5


@on_ranks(2)
def test_gradients_and_inference(world):
    leaf = torch.ones(4, 2, requires_grad=True)
    nn.functional.embedding(torch.tensor([world.rank, 3]), leaf, sparse=True).sum().backward()
    dist.all_reduce(leaf.grad)
    assert torch.equal(leaf.grad.to_dense()[:, 0], torch.tensor([1.0, 1.0, 0.0, 2.0]))
    with torch.inference_mode():
        tensor = torch.sparse_coo_tensor([[1]], torch.ones(1), (3,))
        work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert tensor.to_dense()[1] == 2


@on_ranks(2, 3, deadline=60)
@pytest.mark.parametrize("wrong", ["shape", "dtype", "sparse dims", "dense dims"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_ranks_that_disagree(world, wrong, asynchronous):
    last = world.rank == world.size - 1
    indices, values, sizes = [[0, 1]], torch.ones(2, 3), (5, 3)
    if last and wrong == "shape":
        sizes = (6, 3)
    elif last and wrong == "dtype":
        values = values.double()
    elif last and wrong == "sparse dims":
        indices, values = [[0, 1], [1, 1]], torch.ones(2)
    elif last and wrong == "dense dims":
        values, sizes = torch.ones(2, 3, 1), (5, 3, 1)
    tensor = torch.sparse_coo_tensor(indices, values, sizes)
    with pytest.raises(RuntimeError, match=r"(?s)all_reduce.*rank 0 of the group has.*rank \d has") as caught:
        work = dist.all_reduce(tensor, async_op=asynchronous)
        work.wait()
    if not world.is_al:
        return
    assert f"rank {world.size - 1} has" in str(caught.value)
    check = torch.sparse_coo_tensor([[0]], torch.ones(1), (2,))
    dist.all_reduce(check)
    assert check.to_dense()[0] == world.size


@on_ranks(2, deadline=60)
def test_what_is_refused(world):
    indices = torch.tensor([[0, 1]])
    for op in (dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        with pytest.raises(ValueError, match="SUM"):
            dist.all_reduce(torch.sparse_coo_tensor(indices, torch.ones(2), (5,)), op)
    tensor = torch.sparse_coo_tensor(indices, torch.ones(2).to(torch.float8_e5m2), (5,))
    with pytest.raises(ValueError, match="Float8"):
        dist.all_reduce(tensor)
    with pytest.raises(ValueError, match="dimensions"):
        dist.all_reduce(torch.sparse_coo_tensor(indices, torch.ones(2, *[1] * 20), (5, *[1] * 20)))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == world.size


class Bag(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(5)
        self.bag = nn.EmbeddingBag(30, 4, mode="sum", sparse=sparse)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.bag(x))


@on_ranks(1, 2, 3)
@pytest.mark.parametrize("unused", [False, True])
def test_ddp_with_sparse_embeddings(world, unused):
    """The weights of one process that sees all of the batch, with dense gradients."""
    model, reference = Bag(sparse=True), Bag(sparse=False)
    ddp = DistributedDataParallel(copy.deepcopy(model), find_unused_parameters=unused)
    parameters = [ddp.parameters(), reference.parameters()]
    optimizers = [torch.optim.SGD(each, lr=0.1) for each in parameters]
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        x = torch.randint(0, 30, (world.size * 4, 5), generator=generator)
        for optimizer in optimizers:
            optimizer.zero_grad()
        ddp(x.chunk(world.size)[world.rank]).square().mean().backward()
        reference(x).square().mean().backward()
        assert ddp.module.bag.weight.grad.is_sparse
        for optimizer in optimizers:
            optimizer.step()
    for got, want in zip(ddp.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        world.identical(got)
