# SPDX-License-Identifier: BSD-3-Clause
"""The default process group of a rank that measures: how it starts and ends."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from altorch import _launcher


def join(device: str, control: str = "al") -> torch.device:
    """This rank's device. Its default group is of the backend `control` and carries what is not measured."""
    torch.set_num_threads(1)
    found, here = _launcher.detect(), torch.device("cpu")
    if device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", found.local_rank or 0))
        here = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(here)
    init = "mpi://" if found.starts_mpi and "MASTER_ADDR" not in os.environ else None
    dist.init_process_group(control, init_method=init, timeout=timedelta(minutes=5))
    return here


def gpu_identity(device: torch.device) -> str:
    """The GPU as altorch and NCCL tell GPUs apart: its UUID, and NCCL_HOSTID if that is set. Empty: a CPU."""
    if device.type != "cuda":
        return ""
    host = os.environ.get("NCCL_HOSTID")  # NCCL takes a GPU of two such hosts as two GPUs
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return f"{uuid}/{host}" if host else uuid


def leave() -> None:
    """The end of a rank, for all together."""
    dist.barrier()
    dist.destroy_process_group()
