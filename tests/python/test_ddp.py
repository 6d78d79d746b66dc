# SPDX-License-Identifier: BSD-3-Clause
"""Training: DDP, ZeRO, FSDP2 and checkpoints on a tiny model, against one process and against Gloo."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 6, 4


def make_model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))


def batches(size):
    generator = torch.Generator().manual_seed(11)
    for _ in range(STEPS):
        x = torch.randn(size * BATCH, 6, generator=generator)
        yield x, (x.sum(1) > 0).long()


def train(model, world, *, distributed, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches(world.size):
        if distributed:
            x, y = x.chunk(world.size)[world.rank], y.chunk(world.size)[world.rank]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def flat(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def reference_weights(world):
    model = make_model()
    train(model, world, distributed=False)
    return flat(model)


@on_ranks(1, 2, 3)
@pytest.mark.parametrize("bucket_cap_mb", [25, 0.0001], ids=["one bucket", "many buckets"])
def test_ddp_equals_one_process(world, bucket_cap_mb):
    model = make_model()
    if world.rank:
        for parameter in model.parameters():  # DDP must broadcast rank 0's weights
            parameter.data.zero_()
    ddp = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    train(ddp, world, distributed=True)
    torch.testing.assert_close(flat(model), reference_weights(world), rtol=1e-4, atol=1e-5)
    world.case = "DDP weights"
    world.identical(flat(model))


@on_ranks(2)
def test_ddp_equals_gloo(world):
    if world.backend == "gloo":
        pytest.skip("compares with Gloo")
    weights = []
    for group in (dist.group.WORLD, dist.new_group(backend="gloo")):
        model = make_model()
        train(DistributedDataParallel(model, process_group=group), world, distributed=True)
        weights.append(flat(model))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-5, atol=1e-6)


@on_ranks(2)
def test_ddp_hooks(world):
    """Half-precision compression and a hook that chains an all_reduce onto another."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    for name, hook, tolerance in (
        ("fp16", default_hooks.fp16_compress_hook, 2e-2),
        ("bf16", default_hooks.bf16_compress_hook, 5e-2),
        ("all_reduce", default_hooks.allreduce_hook, 1e-5),
    ):
        world.case = f"DDP with hook {name}"
        model = make_model()
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(None, hook)
        train(ddp, world, distributed=True)
        torch.testing.assert_close(flat(model), reference_weights(world), rtol=tolerance, atol=tolerance)
        world.identical(flat(model))


@on_ranks(2, 3)
def test_ddp_hook_that_waits_in_a_callback(world):
    """PowerSGD waits for one all_reduce in the callback of another."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = make_model()
    before = flat(model).clone()
    ddp = DistributedDataParallel(model)
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, random_seed=1
    )
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(ddp, world, distributed=True)
    assert not torch.equal(flat(model), before) and flat(model).isfinite().all()
    world.identical(flat(model))


@on_ranks(2)
def test_callbacks_that_wait_for_later_ones(world):
    def chain(depth):
        def follow(future):
            return future.value()[0].sum() + (chain(depth - 1).wait() if depth else 0)

        return dist.all_reduce(torch.ones(2), async_op=True).get_future().then(follow)

    chains = [chain(5) for _ in range(4)]
    assert [int(each.wait()) for each in chains] == [6 * 2 * world.size] * 4


@on_ranks(2, 3)
def test_ddp_with_unused_parameters_and_no_sync(world):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, use_b):
            return self.b(self.a(x)) if use_b else self.a(x)

    model = Branches()
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    for step in range(4):
        x = torch.full((2, 4), float(world.rank + step))
        ddp(x, step % 2 == 0).sum().backward()
    with ddp.no_sync():
        ddp(torch.ones(2, 4), True).sum().backward()
    ddp(torch.ones(2, 4), True).sum().backward()
    world.case = "gradients after no_sync"
    world.identical(model.a.weight.grad)


@on_ranks(2, 3)
def test_ddp_join_with_uneven_inputs(world):
    model = make_model()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    with ddp.join():
        for step in range(2 + 2 * world.rank):
            optimizer.zero_grad()
            ddp(torch.full((2, 6), float(step))).sum().backward()
            optimizer.step()
    dist.barrier()


@on_ranks(2)
def test_sync_batch_norm_statistics_and_buffers(world):
    """DDP broadcasts buffers; rank 0's running statistics win."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    ddp = DistributedDataParallel(model)
    for _ in range(3):
        ddp(torch.randn(8, 3) + world.rank).sum().backward()
    ddp(torch.randn(8, 3))  # the forward broadcasts the buffers first
    got = [None] * world.size
    dist.all_gather_object(got, model[1].num_batches_tracked.item())
    assert len(set(got)) == 1


@on_ranks(2, 3)
def test_zero_redundancy_optimizer(world):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make_model()
    ddp = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    train(ddp, world, distributed=True, optimizer=optimizer)
    torch.testing.assert_close(flat(model), reference_weights(world), rtol=1e-4, atol=1e-5)


@on_ranks(2, 3, deadline=120)
def test_fsdp2(world):
    """fully_shard on CPU: all_gather_into_tensor forward, reduce_scatter_tensor backward."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world.size,))
    model = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    try:
        train(model, world, distributed=True)
    except (RuntimeError, ValueError) as error:
        if world.is_al or "ReduceOp.AVG" not in str(error):
            raise
        pytest.skip(f"{world.backend}: {error}")
    full = torch.cat([parameter.full_tensor().detach().reshape(-1) for parameter in model.parameters()])
    torch.testing.assert_close(full, reference_weights(world), rtol=1e-4, atol=1e-5)


@on_ranks(2, deadline=120)
def test_fsdp2_mixed_precision(world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (world.size,))
    model = make_model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    try:
        train(model, world, distributed=True)
    except (RuntimeError, ValueError) as error:
        if world.is_al or "ReduceOp.AVG" not in str(error):
            raise
        pytest.skip(f"{world.backend}: {error}")
    full = torch.cat([parameter.full_tensor().detach().reshape(-1) for parameter in model.parameters()])
    torch.testing.assert_close(full, reference_weights(world), rtol=0.1, atol=0.05)


@on_ranks(2, 3, deadline=120)
def test_distributed_checkpoint(world):
    """DCP saves a sharded state and loads it back; the plan travels as objects."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    holder = [tempfile.mkdtemp(prefix="altorch-dcp-") if world.rank == 0 else None]
    dist.broadcast_object_list(holder, 0)
    mesh = init_device_mesh("cpu", (world.size,))
    full = torch.arange(4.0 * world.size + 1)
    state = {"sharded": distribute_tensor(full, mesh, [Shard(0)]), "plain": torch.ones(5), "step": 12}
    dcp.save(state, checkpoint_id=holder[0])
    assert list(Path(holder[0]).glob("*.distcp"))
    loaded = {
        "sharded": distribute_tensor(torch.zeros_like(full), mesh, [Shard(0)]),
        "plain": torch.zeros(5),
        "step": 0,
    }
    dcp.load(loaded, checkpoint_id=holder[0])
    torch.testing.assert_close(loaded["sharded"].full_tensor(), full)
    assert torch.equal(loaded["plain"], torch.ones(5)) and loaded["step"] == 12
    future = dcp.async_save(copy.copy(state), checkpoint_id=holder[0] + "/again")
    future.result()
    dist.barrier()
    if world.rank == 0:
        import shutil

        shutil.rmtree(holder[0])
