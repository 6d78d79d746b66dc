# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face Accelerate names its backends itself: altorch serves the name "gloo"."""

from __future__ import annotations

import pytest

pytest.importorskip("accelerate")

TRAIN = """
import json, torch
from accelerate import Accelerator
torch.manual_seed(7)
accelerator = Accelerator(cpu=True)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randn(64, 4))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loader)
for _ in range(3):
    for x, y in loader:
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
weights = accelerator.gather(torch.cat([p.detach().flatten() for p in model.parameters()])[None])
assert torch.equal(weights[0], weights[1])
backend = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
print(json.dumps({"by": type(backend).__module__, "weights": weights[0].double().sum().item(),
                  "objects": accelerator.gather_for_metrics([accelerator.process_index], use_gather_object=True)}))
accelerator.end_training()
"""


def test_a_model_is_trained_as_over_gloo(ranks):
    ours, theirs = ranks(TRAIN, ALTORCH_SERVES="gloo"), ranks(TRAIN)
    assert ours.pop("by") == "altorch._C" and not theirs.pop("by").startswith("altorch")
    assert ours["objects"] == theirs["objects"] == [0, 1]
    assert ours["weights"] == pytest.approx(theirs["weights"], rel=1e-6)
