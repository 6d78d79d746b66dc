# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face Accelerate names its backends itself: altorch serves the name "gloo"."""

from __future__ import annotations

import pytest

pytest.importorskip("accelerate")

TRAIN = """
import os, torch
from accelerate import Accelerator, InitProcessGroupKwargs
from program import report, time_steps
torch.manual_seed(7)
accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend=os.environ["BACKEND"])])
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randn(64, 4))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loader)

def step(x, y):
    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
    optimizer.zero_grad()

for _ in range(3):
    for x, y in loader:
        step(x, y)
weights = accelerator.gather(torch.cat([p.detach().flatten() for p in model.parameters()])[None])
assert torch.equal(weights[0], weights[1])
report(weights=weights[0].double().sum().item(),
       objects=accelerator.gather_for_metrics([accelerator.process_index], use_gather_object=True))
time_steps(lambda: step(x, y))
accelerator.end_training()
"""


def test_a_model_is_trained_as_over_gloo(compare):
    figures = compare(TRAIN, name="Accelerate", al=False)
    assert figures["objects"] == [0, 1]


def test_the_name_al_is_refused(compare):
    """docs/upstream/ has the patch that accepts it; this fails once Accelerate does, and `al=False` above can go."""
    with pytest.raises(pytest.fail.Exception, match="assigned backend al is not available"):
        compare(TRAIN)
