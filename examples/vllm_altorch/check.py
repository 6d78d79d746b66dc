# SPDX-License-Identifier: BSD-3-Clause
"""vLLM's groups of CPU tensors, checked: torchrun --nproc-per-node 2 examples/vllm_altorch/check.py"""

import os

import torch
import torch.distributed as dist
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.platforms import current_platform


def check(group: parallel_state.GroupCoordinator, dtype: torch.dtype) -> None:
    ranks, rank = group.world_size, group.rank_in_group
    parts = [(torch.arange(480 * 64).reshape(480, 64) % 11 + of).to(dtype) for of in range(ranks)]
    mine = parts[rank]
    assert torch.equal(group.all_reduce(mine.clone()), sum(parts))
    assert torch.equal(group.all_gather(mine.clone(), dim=-1), torch.cat(parts, dim=-1))
    assert torch.equal(group.reduce_scatter(mine.clone(), dim=0), sum(parts).chunk(ranks)[rank])
    assert torch.equal(group.broadcast(mine.clone(), src=ranks - 1), parts[-1])
    gathered = group.gather(mine.clone(), dst=0)
    assert rank != 0 or torch.equal(gathered, torch.cat(parts, dim=-1))
    named = group.broadcast_tensor_dict({"a": mine} if rank == 0 else None, src=0)
    assert torch.equal(named["a"], parts[0])


rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
os.environ["VLLM_DIST_IDENT"] = os.environ["MASTER_PORT"]  # vLLM's worker does this
current_platform.import_kernels()
with set_current_vllm_config(VllmConfig()):
    backend = current_platform.dist_backend
    parallel_state.init_distributed_environment(size, rank, "env://", local, backend)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=size)
group = parallel_state.get_tp_group()
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    check(group, dtype)
if rank == 0:
    through = getattr(group.device_communicator.dist_module, "__name__", "vLLM's kernels")
    print(f"right on {size} ranks, over {dist.get_backend(group.device_group)}, through {through}")
parallel_state.destroy_model_parallel()
parallel_state.destroy_distributed_environment()
