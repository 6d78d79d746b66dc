# SPDX-License-Identifier: BSD-3-Clause
"""transformers' Trainer knows a few names of backends: altorch serves "gloo"."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

TRAIN = """
import json, torch, torch.distributed as dist
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
set_seed(7)
config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification(config)
g = torch.Generator().manual_seed(3)
data = [{"input_ids": torch.randint(0, 100, (12,), generator=g), "labels": int(i % 2)} for i in range(64)]
arguments = TrainingArguments("out", use_cpu=True, ddp_backend="gloo", max_steps=6, per_device_train_batch_size=4,
                              learning_rate=1e-3, report_to=[], save_strategy="no", disable_tqdm=True)
trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:16])
trainer.train()
loss = trainer.evaluate()["eval_loss"]
by = type(dist.group.WORLD._get_backend(torch.device("cpu"))).__module__
weights = sum(p.detach().double().sum().item() for p in model.parameters())
if dist.get_rank() == 0:
    print()
    print(json.dumps({"by": by, "loss": loss, "weights": weights}))
dist.destroy_process_group()
"""


def test_a_model_is_trained_and_evaluated_as_over_gloo(ranks):
    ours, theirs = ranks(TRAIN, ALTORCH_SERVES="gloo"), ranks(TRAIN)
    assert ours.pop("by") == "altorch._C" and not theirs.pop("by").startswith("altorch")
    assert ours == pytest.approx(theirs, rel=1e-5)
