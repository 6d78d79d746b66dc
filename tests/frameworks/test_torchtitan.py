# SPDX-License-Identifier: BSD-3-Clause
"""torchtitan's Llama, split as its trainer does it: FSDP2 over 2 ranks, and FSDP2 x tensor parallel over 4.

Forward only: torchtitan's attention is FlexAttention, which has no backward on CPUs. Its trainer takes "cuda" for the
device where there is none, so the program makes the group and tells it of the CPU.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torchtitan")

FORWARD = """
import torch, torch.distributed as dist
torch._utils._get_available_device_type = lambda: "cpu"
from program import report, start, time_steps, total
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims, utils
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.config_registry import llama3_debugmodel
rank, size = start()
config = llama3_debugmodel()
config.model_spec = spec = model_registry("debugmodel", attn_backend="flex")
config.parallelism = ParallelismConfig(tensor_parallel_degree=size // 2)
config.training = TrainingConfig(local_batch_size=2, seq_len=64, mixed_precision_param="float32",
                                 mixed_precision_reduce="float32", disable_cuda_graphs=True)
spec.model.update_from_config(config=config)
dims = ParallelDims.from_config(config.parallelism, size)
dims.build_mesh()
utils.set_spmd_backend(config.parallelism.spmd_backend)
with torch.device("meta"):
    model = spec.model.build()
model = spec.parallelize_fn(model, parallel_dims=dims, training=config.training, parallelism=config.parallelism,
                            compile_config=CompileConfig(), ac_config=None, dump_folder=".")
model.to_empty(device="cpu")
torch.manual_seed(7)
positions = torch.arange(64).expand(2, 64).contiguous()
with torch.no_grad():
    model.init_weights(buffer_device=None)
    masks = model.get_attention_masks(positions)

def step(number=0):
    g = torch.Generator().manual_seed(10 * number + rank // (size // 2))
    with torch.no_grad():
        return model(torch.randint(0, 2000, (2, 64), generator=g), attention_masks=masks, positions=positions)

outputs = torch.stack([step(each).double().abs().sum() for each in range(3)])
dist.all_reduce(outputs)
report(outputs=outputs.tolist(), weights=total(model.parameters()))
time_steps(step)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("size", [2, 4])
def test_llama_computes_what_it_does_over_gloo(compare, size):
    compare(FORWARD, size, name=f"torchtitan, FSDP 2 x TP {size // 2}, forward", rel=1e-5)
