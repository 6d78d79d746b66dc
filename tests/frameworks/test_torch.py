# SPDX-License-Identifier: BSD-3-Clause
"""torch's own ways to train over several ranks; tests/python/test_ddp.py and test_functional.py test more of each."""

from __future__ import annotations

import pytest

BEGIN = """
import copy, os, tempfile, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
from program import report, start, time_steps, total
rank, size = start()

def network(width=64):
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8))

def batch(step, own=True):
    g = torch.Generator().manual_seed(100 * step + (rank if own else 0))
    return torch.randn(16, 32, generator=g), torch.randint(0, 8, (16,), generator=g)

def train(model, optimizer, steps=4, own=True):
    for step in range(steps):
        x, y = batch(step, own)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()
"""
END = """
dist.destroy_process_group()
"""

DATA_PARALLEL = """
model = DDP(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = train(model, optimizer)
report(loss=loss, weights=total(model.parameters()))
time_steps(lambda: train(model, optimizer, 1))
"""
FSDP1 = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy as S
figures = {}
mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard")) if size > 2 else None
for strategy in (S.HYBRID_SHARD,) if mesh else (S.SHARD_GRAD_OP, S.FULL_SHARD):
    model = FSDP(network(), sharding_strategy=strategy, device_id=torch.device("cpu"), device_mesh=mesh,
                 use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss = train(model, optimizer)
    with FSDP.summon_full_params(model):
        figures[strategy.name] = [loss, total(model.parameters()), total(model.state_dict().values())]
report(**figures)
time_steps(lambda: train(model, optimizer, 1))
"""
FSDP2 = """
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cpu", (size,))
if size > 2:  # HSDP
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
model = network()
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loss = train(model, optimizer)
norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
report(loss=loss, weights=total(model.parameters()))
time_steps(lambda: train(model, optimizer, 1))
"""
TENSOR_PARALLEL = """
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cpu", (size,))
model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
loss = train(model, optimizer, own=False)
x = distribute_tensor(torch.arange(35.0).view(5, 7), mesh, [Shard(0)])  # uneven
moved = x.redistribute(mesh, [Shard(1)])
product = (x @ moved.t()).redistribute(mesh, [Replicate()]).to_local()
report(loss=loss, weights=total(model.parameters()), moved=total([moved]), product=product.tolist())
time_steps(lambda: train(model, optimizer, 1, own=False))
"""
PIPELINES = """
from torch.distributed.pipelining import PipelineStage, schedules
figures = {}
for name, stages in (("GPipe", 1), ("1F1B", 1), ("Interleaved1F1B", 2), ("LoopedBFS", 2), ("InterleavedZeroBubble", 2),
                     ("ZBVZeroBubble", 2), ("DualPipeV", 2)):
    torch.manual_seed(3)
    parts = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(stages * size)]
    numbers = [rank + size * each for each in range(stages)]
    if name in ("ZBVZeroBubble", "DualPipeV"):
        numbers = [rank, 2 * size - 1 - rank]
    made = [PipelineStage(parts[each], each, len(parts), torch.device("cpu")) for each in numbers]
    kind = getattr(schedules, "Schedule" + name)
    schedule = kind(made[0] if stages == 1 else made, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    mine = [parts[each] for each in numbers]
    optimizer = torch.optim.SGD([p for part in mine for p in part.parameters()], lr=0.1)
    g = torch.Generator().manual_seed(5)
    x, y = torch.randn(8, 16, generator=g), torch.randn(8, 16, generator=g)
    first, last = 0 in numbers, len(parts) - 1 in numbers

    def step():
        losses = []
        schedule.step(*[x] if first else [], **dict(target=y, losses=losses) if last else {})
        optimizer.step()
        optimizer.zero_grad()
        return sum(each.item() for each in losses)

    losses = [step() for _ in range(3)]
    figure = torch.tensor([*losses, total(p for part in mine for p in part.parameters())], dtype=torch.double)
    dist.all_reduce(figure)
    figures[name] = figure.tolist()
report(**figures)
time_steps(step)
"""
RESHARD = """
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)
whole = torch.arange(7 * 6.0).view(7, 6)
state = lambda mesh, places, value: {"w": distribute_tensor(value, mesh, places), "step": 12}
dcp.save(state(init_device_mesh("cpu", (size,)), [Shard(0)], whole), checkpoint_id=folder[0])
mesh = init_device_mesh("cpu", (2, size // 2))
for places in ([Replicate(), Shard(1)], [Shard(0), Shard(1)], [Shard(0), Replicate()]):
    loaded = state(mesh, places, torch.zeros_like(whole))
    dcp.load(loaded, checkpoint_id=folder[0])
    assert torch.equal(loaded["w"].full_tensor(), whole)
few = dist.new_group([0, 1])
if rank < 2:  # fewer ranks than those that saved
    from torch.distributed.device_mesh import DeviceMesh
    loaded = state(DeviceMesh.from_group(few, "cpu"), [Shard(0)], torch.zeros_like(whole))
    dcp.load(loaded, checkpoint_id=folder[0], process_group=few)
    assert torch.equal(loaded["w"].full_tensor(), whole)
dist.barrier()
future = dcp.async_save(state(mesh, [Shard(0), Shard(1)], whole + 1), checkpoint_id=folder[0] + "/again")
future.result()
loaded = state(mesh, [Shard(1), Shard(0)], torch.zeros_like(whole))
dcp.load(loaded, checkpoint_id=folder[0] + "/again")
report(whole=total([loaded["w"]]), step=loaded["step"])
"""
JOIN = """
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer as Zero
model = DDP(network())
optimizer = Zero(model.parameters(), torch.optim.AdamW, lr=0.01)
with Join([model, optimizer]):  # rank 1 has two batches more
    loss = train(model, optimizer, steps=3 + 2 * rank)
joined = total(model.parameters())
optimizer.consolidate_state_dict(to=0)
saved = total(each["exp_avg"] for each in optimizer.state_dict()["state"].values()) if rank == 0 else 0
report(joined=joined, saved=saved)
"""
HOOKS = """
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks as default, post_localSGD_hook as local, powerSGD_hook as power, quantization_hooks as quantization)
figures = {}
group = dist.group.WORLD
for name, hook, state in (
    ("all_reduce", default.allreduce_hook, group), ("fp16", default.fp16_compress_hook, group),
    ("bf16", default.bf16_compress_hook, group),
    ("power", power.powerSGD_hook, power.PowerSGDState(group, 2, start_powerSGD_iter=2, random_seed=1)),
    ("local", local.post_localSGD_hook,
     local.PostLocalSGDState(group, dist.new_subgroups(1)[0], start_localSGD_iter=2)),
    ("fp16 of power", default.fp16_compress_wrapper(power.powerSGD_hook),
     power.PowerSGDState(group, 1, start_powerSGD_iter=2, random_seed=1)),
):
    model = DDP(network())
    model.register_comm_hook(state, hook)
    loss = train(model, torch.optim.SGD(model.parameters(), lr=0.1), 5)
    figures[name] = [loss, total(model.parameters())]
report(**figures)
"""
COMPILE = """
import torch.distributed._functional_collectives as functional
model = torch.compile(DDP(network()), backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = train(model, optimizer)

@torch.compile(fullgraph=True)
def step(x):
    whole = functional.all_gather_tensor(x * 2, 0, dist.group.WORLD)
    return functional.reduce_scatter_tensor(whole.sin(), "sum", 0, dist.group.WORLD) + functional.all_reduce(
        x, "max", dist.group.WORLD)

result = step(torch.arange(24.0).view(4, 6) + rank)
report(loss=loss, weights=total(model.parameters()), result=total([result]))
time_steps(lambda: train(model, optimizer, 1))
"""


@pytest.mark.parametrize(
    ("name", "program", "size", "rel"),
    [
        ("DDP", DATA_PARALLEL, 2, 1e-6),
        ("FSDP1", FSDP1, 2, 1e-5),
        ("FSDP1, hybrid", FSDP1, 4, 1e-5),
        ("FSDP2", FSDP2, 2, 1e-5),
        ("HSDP", FSDP2, 4, 1e-5),
        ("DTensor, tensor parallel", TENSOR_PARALLEL, 2, 1e-5),
        ("pipelines, seven schedules", PIPELINES, 2, 1e-6),
        ("DCP with reshard", RESHARD, 4, 0),
        ("ZeRO and Join", JOIN, 2, 1e-5),
        ("hooks", HOOKS, 2, 1e-3),
        ("torch.compile", COMPILE, 2, 1e-5),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_torch_itself(compare, name, program, size, rel):
    compare(BEGIN + program + END, size, name=f"torch: {name}", rel=rel)
