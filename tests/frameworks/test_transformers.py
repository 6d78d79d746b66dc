# SPDX-License-Identifier: BSD-3-Clause
"""transformers' Trainer knows a few names of backends: altorch serves "gloo"."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

TRAIN = """
import os, torch, torch.distributed as dist
from program import report, time_steps, total
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
set_seed(7)
config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = BertForSequenceClassification(config)
g = torch.Generator().manual_seed(3)
data = [{"input_ids": torch.randint(0, 100, (12,), generator=g), "labels": int(i % 2)} for i in range(64)]
arguments = TrainingArguments("out", use_cpu=True, ddp_backend=os.environ["BACKEND"], max_steps=6,
                              per_device_train_batch_size=4, learning_rate=1e-3, report_to=[],
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


def test_a_model_is_trained_and_evaluated_as_over_gloo(compare):
    compare(TRAIN, name="transformers' Trainer", rel=1e-5, al=False)


def test_the_name_al_is_refused(compare):
    """docs/upstream/ has the patches for Accelerate, which refuses the name, and for the names of the command line."""
    with pytest.raises(pytest.fail.Exception, match="assigned backend al is not available"):
        compare(TRAIN)
