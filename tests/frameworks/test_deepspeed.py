# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed passes the backend on: deepspeed.init_distributed(dist_backend="al"), with its accelerator for CPUs."""

from __future__ import annotations

import pytest

pytest.importorskip("deepspeed")

TRAIN = """
import os, torch, deepspeed
from program import report, time_steps, total
from torch import nn
deepspeed.init_distributed(dist_backend=os.environ["BACKEND"], verbose=False)
rank, stage = deepspeed.comm.get_rank(), int(os.environ["STAGE"])
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
config = {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0,
          "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
          "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

def step(number=0):
    g = torch.Generator().manual_seed(10 * number + rank)
    x, y = torch.randn(4, 32, generator=g), torch.randn(4, 8, generator=g)
    loss = nn.functional.mse_loss(engine(x), y)
    engine.backward(loss)
    engine.step()
    return loss.item()

losses = [step(each) for each in range(5)]
with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
    weights = total(model.parameters())
report(losses=losses, weights=weights)
time_steps(step)
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("stage", range(4))
def test_a_model_is_trained_as_over_gloo(compare, stage):
    compare(TRAIN, name=f"DeepSpeed ZeRO {stage}", rel=1e-5, STAGE=str(stage), DS_ACCELERATOR="cpu")
