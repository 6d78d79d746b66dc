# SPDX-License-Identifier: BSD-3-Clause
"""Lightning passes the backend on: DDPStrategy(process_group_backend="al")."""

from __future__ import annotations

import pytest

pytest.importorskip("lightning")

TRAIN = """
import logging, os, torch, lightning as L
from lightning.pytorch.strategies import DDPStrategy
from program import report, time_steps
logging.getLogger("lightning").setLevel(logging.ERROR)
L.seed_everything(7, verbose=False)

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 2)
    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def on_train_end(self):
        weights = self.all_gather(torch.cat([p.detach().flatten() for p in self.net.parameters()]))
        assert torch.equal(weights[0], weights[1])
        report(weights=weights[0].double().sum().item(), loss=float(self.trainer.callback_metrics["loss"]))
        batch, optimizer = (torch.ones(8, 8), torch.ones(8, 2)), self.trainer.optimizers[0]
        self.log = lambda *_, **__: None  # not outside of the loop
        def step():
            self.trainer.strategy.training_step(batch, 0).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.enable_grad():
            time_steps(step)

data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 2))
strategy = DDPStrategy(process_group_backend=os.environ["BACKEND"])
trainer = L.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, logger=False,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
model = Model()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8))
"""


def test_a_model_is_trained_as_over_gloo(compare):
    compare(TRAIN, name="Lightning")
