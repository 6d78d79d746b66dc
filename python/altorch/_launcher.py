"""Which launcher started this process, from the environment alone.

torchrun comes first: `srun torchrun` leaves the variables of the Slurm step in every process it starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Launcher:
    name: str
    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    starts_mpi: bool = False  # an MPI started here finds its peers by itself


@dataclass(frozen=True)
class _Variables:
    name: str
    rank: str
    size: str
    local_rank: str
    local_size: str


_MPI_LAUNCHERS = (
    _Variables(
        "Open MPI's mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Variables(
        "MVAPICH's mpirun",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    # PMI_SIZE alone is no proof of a launcher; hydra and Intel's mpirun also tell the local rank.
    _Variables("mpiexec (hydra)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Variables("PALS", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
    _Variables(
        "jsrun",
        "JSM_NAMESPACE_RANK",
        "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_RANK",
        "JSM_NAMESPACE_LOCAL_SIZE",
    ),
    _Variables("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", ""),
    _Variables("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    value = environment.get(name, "") if name else ""
    return int(value) if value.isdigit() else None


def detect(environment: Mapping[str, str] | None = None) -> Launcher:
    """The launcher; Launcher.name is "none" when there is no sign of one."""
    env = os.environ if environment is None else environment
    torchs = [_number(env, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    if "TORCHELASTIC_RUN_ID" in env:
        return Launcher("torchrun", *torchs)
    for row in _MPI_LAUNCHERS:
        rank, size = _number(env, row.rank), _number(env, row.size)
        local_rank = _number(env, row.local_rank)
        if rank is None or size is None or local_rank is None:
            continue
        return Launcher(row.name, rank, size, local_rank, _number(env, row.local_size), starts_mpi=True)
    if torchs[0] is not None and torchs[1] is not None:
        return Launcher("RANK and WORLD_SIZE in the environment", *torchs)
    return Launcher("none")
