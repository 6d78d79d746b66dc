# SPDX-License-Identifier: BSD-3-Clause
"""Training on GPUs as people do it, against the same with torch's own NCCL backend: losses and weights.

Marked gpu, like test_cuda.py, and run over every route by `make test-gpu`; what is compared with needs a GPU per rank.
"""

from __future__ import annotations

import copy
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from test_cuda import device, needs_nccl
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

pytestmark = pytest.mark.gpu
STEPS = 4


class Block(nn.Module):
    """A transformer's layer, small."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def network(here, dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), Block(), Block(), nn.Linear(64, 10)).to(here, dtype)


def batch(world, step, here, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * step + world.rank)
    inputs = torch.randn(16, 32, generator=generator).to(here, dtype)
    return inputs, torch.randint(0, 10, (16,), generator=generator).to(here)


def train(world, here, model, dtype=torch.float32, accumulate=False):
    """Losses of a few steps, and the sum of all weights after them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(STEPS):
        inputs, labels = batch(world, step, here, dtype)
        if accumulate and step % 2 == 0:
            with model.no_sync():
                nn.functional.cross_entropy(model(inputs).float(), labels).backward()
            continue
        loss = nn.functional.cross_entropy(model(inputs).float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    total = sum(_whole(parameter).double().sum().item() for parameter in model.parameters())
    return [*losses, total]


def _whole(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def compare(world, run, tolerance=1e-5):
    """`run(here, group)` over altorch's default group and over one of NCCL's."""
    here = device(world)
    needs_nccl(world)
    nccl = dist.new_group(backend="nccl")
    ours, theirs = run(here, dist.group.WORLD), run(here, nccl)
    assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)
    torch.cuda.synchronize()
    dist.destroy_process_group(nccl)


@on_ranks(2)
@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"bucket_cap_mb": 0.01}],
    ids=["plain", "bucket_view", "static_graph", "small_buckets"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ddp(world, options, dtype):
    kind = getattr(torch, dtype)

    def run(here, group):
        model = DDP(network(here, kind), device_ids=[here.index], process_group=group, **options)
        return train(world, here, model, kind)

    compare(world, run, 1e-5 if dtype == "float32" else 2e-2)


@on_ranks(2)
def test_ddp_no_sync(world):
    def run(here, group):
        return train(
            world, here, DDP(network(here), device_ids=[here.index], process_group=group), accumulate=True
        )

    compare(world, run)


@on_ranks(2)
def test_ddp_communication_hooks(world):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def run(here, group):
        figures = []
        for hook in (default_hooks.bf16_compress_hook, powerSGD_hook.powerSGD_hook):
            model = DDP(network(here), device_ids=[here.index], process_group=group)
            state = group
            if hook is powerSGD_hook.powerSGD_hook:
                state = powerSGD_hook.PowerSGDState(
                    group, matrix_approximation_rank=2, start_powerSGD_iter=2, random_seed=1
                )
            model.register_comm_hook(state, hook)
            figures += train(world, here, model)
        return figures

    compare(world, run, 1e-3)


@on_ranks(2)
@pytest.mark.parametrize("mixed", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("reshard", [True, False], ids=["reshard", "keep"])
def test_fsdp2(world, mixed, reshard):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy()
    if mixed:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def run(here, group):
        mesh = DeviceMesh.from_group(group, "cuda")
        model = network(here)
        for layer in model:
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        model.set_gradient_divide_factor(float(world.size))
        return train(world, here, model)

    compare(world, run, 1e-2 if mixed else 1e-5)


@on_ranks(2)
def test_tensor_parallel(world):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def run(here, group):
        mesh = DeviceMesh.from_group(group, "cuda")
        model = network(here)
        for layer in model:
            if isinstance(layer, Block):
                parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        figures = []
        for step in range(STEPS):
            torch.manual_seed(step)  # the same batch on every rank
            inputs, labels = torch.randn(16, 32).to(here), torch.randint(0, 10, (16,)).to(here)
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.05 * parameter.grad
                    parameter.grad = None
            figures.append(loss.item())
        return figures

    compare(world, run)


@on_ranks(2)
def test_device_mesh_of_two_dimensions(world):
    from torch.distributed.device_mesh import init_device_mesh

    here = device(world)
    mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("replicate", "shard"))
    x = torch.full((5,), world.rank + 1.0, device=here)
    dist.all_reduce(x, group=mesh.get_group("shard"))
    assert x.eq(3).all()
    dist.all_reduce(x, group=mesh.get_group("replicate"))
    assert x.eq(3).all()


@on_ranks(2)
def test_compiled_functional_collectives(world):
    import torch.distributed._functional_collectives as functional

    here = device(world)

    def step(x):
        total = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        parts = functional.all_gather_tensor(x + 1, 0, dist.group.WORLD)
        return functional.reduce_scatter_tensor(parts + total.sum(), "sum", 0, dist.group.WORLD)

    x = torch.arange(6.0, device=here) + world.rank
    want = step(x)
    got = torch.compile(step, backend="aot_eager")(x)
    torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(want))


@on_ranks(2)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["save", "async_save"])
def test_distributed_checkpoints(world, asynchronous):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    here = device(world)
    model = network(here)
    fully_shard(model, mesh=DeviceMesh.from_group(dist.group.WORLD, "cuda"))
    before = {name: copy.deepcopy(value.full_tensor()) for name, value in model.state_dict().items()}
    folder = [tempfile.mkdtemp() if world.rank == 0 else None]
    dist.broadcast_object_list(folder)
    state = {"model": model.state_dict()}
    if asynchronous:
        checkpoint.async_save(state, checkpoint_id=folder[0]).result()
    else:
        checkpoint.save(state, checkpoint_id=folder[0])
    dist.barrier()
    assert any(Path(folder[0]).iterdir())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state = {"model": model.state_dict()}
    checkpoint.load(state, checkpoint_id=folder[0])
    model.load_state_dict(state["model"])
    for name, value in model.state_dict().items():
        assert torch.equal(value.full_tensor(), before[name]), name


@on_ranks(2)
def test_checkpoints_are_saved_while_training_goes_on(world):
    """The checkpoint's thread calls CPU collectives of the default group, whose CUDA collectives the training calls."""
    import torch.distributed.checkpoint as checkpoint

    here = device(world)
    model = DDP(network(here), device_ids=[here.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    folder = [tempfile.mkdtemp() if world.rank == 0 else None]
    dist.broadcast_object_list(folder)
    saved, kept = [], []
    for step in range(30):
        inputs, labels = batch(world, step, here)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if step % 10 == 0:
            kept.append({name: value.clone() for name, value in model.module.state_dict().items()})
            saved.append(
                checkpoint.async_save(model.module.state_dict(), checkpoint_id=f"{folder[0]}/{step}")
            )
            time.sleep(0.05 * world.rank)  # the ranks' two threads fall into different orders
    for number, (future, weights) in enumerate(zip(saved, kept, strict=True)):
        future.result()
        state = {name: torch.zeros_like(value) for name, value in weights.items()}
        checkpoint.load(state, checkpoint_id=f"{folder[0]}/{10 * number}")
        assert all(torch.equal(state[name], value) for name, value in weights.items()), number


@on_ranks(2)
def test_cpu_and_cuda_collectives_have_orders_of_their_own(world):
    """On rank 0 each CPU collective comes before the CUDA collectives, on rank 1 behind them, and some are refused."""
    here = device(world)

    def refused(tensor):
        with pytest.raises((RuntimeError, ValueError), match="rank 7"):
            dist.distributed_c10d._get_default_group().broadcast(tensor, 7).wait()

    def host(tensor, turn):
        work = dist.all_reduce(tensor, async_op=True)
        if turn % 5 == 0:
            refused(tensor)
        return work

    for turn in range(20):
        on_gpu, on_cpu = torch.full((1000,), turn + world.rank, device=here), torch.tensor([turn, world.rank])
        if world.rank == 0:
            work = host(on_cpu, turn)
        for _ in range(3):
            dist.all_reduce(on_gpu)
        if turn % 7 == 0:
            refused(on_gpu)
        if world.rank == 1:
            work = host(on_cpu, turn)
        work.wait()
        assert on_cpu.tolist() == [2 * turn, 1]
        assert on_gpu.eq(4 * (2 * turn + 1)).all()


@on_ranks(2)
def test_threads_call_cpu_and_cuda_collectives_of_one_group(world):
    here = device(world)
    wrong = []

    def on_cpu():
        for turn in range(300):
            tensor = torch.full((turn + 1,), float(world.rank + turn))
            dist.all_reduce(tensor)
            if not tensor.eq(2 * turn + 1).all():
                wrong.append((turn, tensor))
                return

    thread = threading.Thread(target=on_cpu)
    thread.start()
    for turn in range(300):
        tensor = torch.full((100 * turn + 1,), float(world.rank + turn), device=here)
        dist.all_reduce(tensor, async_op=turn % 2 == 0)
        dist.broadcast(tensor, turn % 2, async_op=False)
        assert tensor.eq(2 * turn + 1).all(), turn
    thread.join()
    assert not wrong
