# SPDX-License-Identifier: BSD-3-Clause
"""Ray Train takes TorchConfig(backend="al"); ray.util.collective takes altorch by examples/ray_altorch.py."""

from __future__ import annotations

from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BEGIN = """
import json, os
os.environ["REPORT"] = os.path.abspath("figures.json")
import ray
ray.init(address="local", num_cpus=3, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False,
         configure_logging=False)
"""
END = """
ray.shutdown()
print()
print(json.dumps(figures))
"""

TRAIN = """
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

def train():
    import torch
    from program import report, time_steps, total
    from torch import nn
    torch.manual_seed(7)
    rank = ray.train.get_context().get_world_rank()
    model = ray.train.torch.prepare_model(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number=0):
        g = torch.Generator().manual_seed(10 * number + rank)
        loss = nn.functional.mse_loss(model(torch.randn(8, 16, generator=g)), torch.randn(8, 4, generator=g))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    losses = [step(each) for each in range(5)]
    report(loss=losses[-1], weights=total(model.parameters()))
    time_steps(step)

trainer = TorchTrainer(train, torch_config=TorchConfig(backend=os.environ["BACKEND"]),
                       scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path=os.getcwd()))
trainer.fit()
figures = json.loads(open(os.environ["REPORT"]).read())
"""

COLLECTIVE = """
from ray.util import collective

@ray.remote
class Worker:
    def setup(self, rank, backend):
        import os, sys
        if backend == "AL":
            sys.path.insert(0, os.environ["EXAMPLES"])
            import ray_altorch
            ray_altorch.register()
        collective.init_collective_group(2, rank, backend, "replicas")
        self.rank = rank

    def run(self):
        import numpy, torch
        from ray.util.collective.types import ReduceOp
        figures, group = [], "replicas"
        for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PRODUCT):
            x = torch.arange(1000.0) + self.rank
            collective.allreduce(x, group, op)
            figures.append(x.sum().item())
        x = numpy.full(5, self.rank + 1.0)
        collective.allreduce(x, group)
        collective.broadcast(y := torch.full((3,), float(self.rank)), 1, group)
        collective.reduce(z := torch.full((3,), self.rank + 1.0), 0, group)
        parts = [torch.empty(2) for _ in range(2)]
        collective.allgather(parts, torch.full((2,), float(self.rank)), group)
        blocks = [torch.full((2,), float(self.rank + each)) for each in range(2)]
        collective.reducescatter(mine := torch.empty(2), blocks, group)
        if self.rank == 0:
            collective.send(torch.full((4,), 7.0), 1, group)
        else:
            collective.recv(w := torch.empty(4), 0, group)
            figures += w.tolist()
        collective.barrier(group)
        for each in (x, y, z, mine, *parts):
            figures += each.tolist()
        return figures

    def made_by(self):
        group = collective.get_group_handle("replicas")
        inner = group._backend if hasattr(group, "_backend") else None
        from program import made_by
        return type(inner).__module__ if inner else made_by(group._pg)

backend = os.environ["BACKEND"].upper()
workers = [Worker.remote() for _ in range(2)]
ray.get([worker.setup.remote(rank, backend) for rank, worker in enumerate(workers)])
figures = {"by": ray.get(workers[0].made_by.remote()), "ranks": ray.get([worker.run.remote() for worker in workers])}
"""


@pytest.mark.parametrize(("name", "program"), [("Ray Train", TRAIN), ("ray.util.collective", COLLECTIVE)])
def test_workers_compute_what_they_do_over_gloo(compare, name, program):
    compare(
        BEGIN + program + END,
        1,
        name=name,
        workers=2,
        EXAMPLES=str(EXAMPLES),
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
        RAY_AUTH_MODE="disabled",
    )
