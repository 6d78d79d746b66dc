# SPDX-License-Identifier: BSD-3-Clause
"""Frameworks on two GPUs, unchanged: altorch serves the name "nccl". Run where they are installed; marked gpu."""

from __future__ import annotations

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs are needed, one for each rank"),
]

START = """
import os, torch, torch.distributed as dist
from program import report, time_steps, total
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
here = torch.device("cuda", torch.cuda.current_device())
"""

ACCELERATE = (
    START
    + """
from accelerate import Accelerator
torch.manual_seed(7)
accelerator = Accelerator()
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
data = torch.utils.data.TensorDataset(torch.randn(64, 256), torch.randn(64, 64))
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
report(weights=weights[0].double().sum().item())
time_steps(lambda: step(x, y))
accelerator.end_training()
"""
)

LIGHTNING = (
    START
    + """
import logging, lightning as L
logging.getLogger("lightning").setLevel(logging.ERROR)
L.seed_everything(7, verbose=False)

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(256, 64)
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
        batch, optimizer = (torch.ones(8, 256, device=here), torch.ones(8, 64, device=here)), self.trainer.optimizers[0]
        self.log = lambda *_, **__: None  # not outside of the loop
        def step():
            self.trainer.strategy.training_step(batch, 0).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.enable_grad():
            time_steps(step)

data = torch.utils.data.TensorDataset(torch.randn(64, 256), torch.randn(64, 64))
trainer = L.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=8))
"""
)

TRAINER = (
    START
    + """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
set_seed(7)
config = BertConfig(vocab_size=100, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification(config)
g = torch.Generator().manual_seed(3)
data = [{"input_ids": torch.randint(0, 100, (12,), generator=g), "labels": int(i % 2)} for i in range(64)]
arguments = TrainingArguments("out", max_steps=6, per_device_train_batch_size=4, learning_rate=1e-3, report_to=[],
                              save_strategy="no", disable_tqdm=True)
trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:16])
trainer.train()
loss = trainer.evaluate()["eval_loss"]
report(loss=loss, weights=total(model.parameters()))
batch = trainer.data_collator(data[:4])

def step():
    trainer.training_step(trainer.model_wrapped, dict(batch))
    trainer.optimizer.step()
    trainer.model_wrapped.zero_grad()

time_steps(step)
dist.destroy_process_group()
"""
)

PEFT = (
    START
    + """
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
dist.init_process_group(os.environ["BACKEND"])
torch.manual_seed(7)
config = LlamaConfig(vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=4, max_position_embeddings=64)
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=4, target_modules=["q_proj", "v_proj"])).to(here)
for layer in model.base_model.model.model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
tokens = torch.randint(0, 128, (4, 32), generator=torch.Generator().manual_seed(dist.get_rank())).to(here)
losses = []

def step():
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())

for _ in range(6):
    step()
report(losses=[loss.item() for loss in losses], weights=total(p for p in model.parameters() if p.requires_grad))
time_steps(step)
dist.destroy_process_group()
"""
)


@pytest.mark.parametrize(
    ("package", "name", "program"),
    [
        ("accelerate", "Accelerate on GPUs", ACCELERATE),
        ("lightning", "Lightning on GPUs", LIGHTNING),
        ("transformers", "transformers' Trainer on GPUs", TRAINER),
        ("peft", "peft's LoRA with FSDP2 on GPUs", PEFT),
    ],
    ids=["accelerate", "lightning", "transformers", "peft"],
)
def test_a_model_is_trained_as_over_nccl(compare, package, name, program):
    pytest.importorskip(package)
    compare(program, name=name, rel=1e-4, cuda=True)
