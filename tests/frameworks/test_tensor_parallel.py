# SPDX-License-Identifier: BSD-3-Clause
"""Layers split among ranks: transformers' tp_plan and megatron-core use the default group that the program made."""

from __future__ import annotations

import pytest

TP_PLAN = """
import os, tempfile, torch, torch.distributed as dist
from program import report, start, time_steps
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed
set_seed(7)
config = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64)
whole = LlamaForCausalLM(config)
whole.save_pretrained("model")  # by each rank, in a folder of its own
rank, size = start()
tokens = torch.randint(0, 128, (2, 12), generator=torch.Generator().manual_seed(3))
model = AutoModelForCausalLM.from_pretrained("model", tp_plan="auto", torch_dtype=torch.float32)
local = model.model.layers[0].mlp.up_proj.weight
local = local.to_local() if hasattr(local, "to_local") else local
assert local.shape[0] == 128 // size, local.shape
model.eval()
whole.eval()
with torch.no_grad():
    logits, wanted = model(tokens).logits, whole(tokens).logits
    torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-5)
    made = model.generate(tokens, max_new_tokens=6, do_sample=False, pad_token_id=0)
report(logits=logits.double().sum().item(), tokens=made.tolist())

def step():
    with torch.no_grad():
        model(tokens)
time_steps(step)
dist.destroy_process_group()
"""

MEGATRON = """
import torch, torch.distributed as dist
from program import report, start, time_steps, total
from megatron.core import ModelParallelConfig, parallel_state, tensor_parallel
from torch import nn
torch.cuda.current_device = lambda: torch.device("cpu")  # where megatron-core makes its buffers
rank, size = start()
parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
group = parallel_state.get_tensor_model_parallel_group()
config = ModelParallelConfig(tensor_model_parallel_size=2, use_cpu_initialization=True, perform_initialization=True)
torch.manual_seed(7)
init = lambda weight: nn.init.normal_(weight, std=0.1)
table = tensor_parallel.VocabParallelEmbedding(64, 32, init_method=init, config=config)
up = tensor_parallel.ColumnParallelLinear(32, 64, config=config, init_method=init, gather_output=False, bias=True,
                                          skip_bias_add=False)
down = tensor_parallel.RowParallelLinear(64, 64, config=config, init_method=init, input_is_parallel=True, bias=True,
                                         skip_bias_add=False)
model = nn.ModuleList([table, up, down])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step(number=0):
    g = torch.Generator().manual_seed(10 * number + parallel_state.get_data_parallel_rank())
    x, y = torch.randint(0, 64, (4, 6), generator=g), torch.randint(0, 64, (4, 6), generator=g)
    logits = down(torch.relu(up(table(x))[0]))[0]
    part = tensor_parallel.scatter_to_tensor_model_parallel_region(logits)
    loss = tensor_parallel.vocab_parallel_cross_entropy(part.contiguous(), y).mean()
    loss.backward()
    if parallel_state.get_data_parallel_world_size() > 1:
        for each in model.parameters():
            dist.all_reduce(each.grad, group=parallel_state.get_data_parallel_group())
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()

losses = [step(each) for each in range(5)]
weights = torch.tensor([total(model.parameters())], dtype=torch.double)
dist.all_reduce(weights)
gathered = tensor_parallel.gather_from_tensor_model_parallel_region(torch.full((2, 3), float(rank)))
report(losses=losses, weights=weights.item(), gathered=gathered.tolist(),
       groups=[parallel_state.get_data_parallel_world_size(), dist.get_world_size(group)])
time_steps(step)
dist.destroy_process_group()
"""


def test_transformers_tp_plan(compare):
    pytest.importorskip("transformers")
    compare(TP_PLAN, name="transformers, tp_plan", rel=1e-5)


@pytest.mark.parametrize("size", [2, 4])
def test_megatron_core(compare, size):
    pytest.importorskip("megatron.core")
    compare(MEGATRON, size, name=f"megatron-core, TP 2, DP {size // 2}", rel=1e-5)
