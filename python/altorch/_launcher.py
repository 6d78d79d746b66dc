# SPDX-License-Identifier: BSD-3-Clause
"""Which launcher started this process, from the environment alone.

torchrun comes first: `srun torchrun` leaves the variables of the Slurm step in every process it starts.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

# NamedTuple here and in _backend.py: a dataclass takes four times as long to define, in every
# process that starts.


class Launcher(NamedTuple):
    name: str
    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    starts_mpi: bool = False  # an MPI started here finds its peers by itself
    # Where torch's store can be, where the launcher says so: rank 0's host, and a port that is this
    # step's own.
    store: tuple[str, int] | None = None


class _Variables(NamedTuple):
    """Names of variables; "A B" is A, or B where A is not set."""

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
    # PALS leaves the size to Cray's PMI.
    _Variables(
        "PALS",
        "PALS_RANKID",
        "PALS_SIZE PMI_SIZE",
        "PALS_LOCAL_RANKID",
        "PALS_LOCAL_SIZE PMI_LOCAL_SIZE",
    ),
    _Variables(
        "jsrun",
        "JSM_NAMESPACE_RANK",
        "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_RANK",
        "JSM_NAMESPACE_LOCAL_SIZE",
    ),
    _Variables("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", ""),
    # aprun, and other launchers that leave these to Cray's PMI.
    _Variables("Cray PMI", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
)
# Whether an MPI finds its peers depends on --mpi and on the MPI: it starts over torch's store, as
# under torchrun.
_SLURM = _Variables("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "")


def _number(environment: Mapping[str, str], names: str) -> int | None:
    values = (environment.get(name, "") for name in names.split())
    return next((int(value) for value in values if value.isdigit()), None)


def detect(environment: Mapping[str, str] | None = None) -> Launcher:
    """The launcher; Launcher.name is "none" when there is no sign of one."""
    env = os.environ if environment is None else environment
    told = _Variables("", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if "TORCHELASTIC_RUN_ID" in env:
        return _launcher(env, told._replace(name="torchrun"))
    for row in _MPI_LAUNCHERS:
        found = _launcher(env, row, starts_mpi=True)
        if None not in (found.rank, found.size, found.local_rank):
            return found
    found = _launcher(env, _SLURM)
    if None not in (found.rank, found.size, found.local_rank):
        return found._replace(store=_store_of_step(env))
    if _number(env, told.rank) is not None and _number(env, told.size) is not None:
        return _launcher(env, told._replace(name="RANK and WORLD_SIZE in the environment"))
    return Launcher("none")


def _store_of_step(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Slurm puts task 0 on the first node of the step. Each step has a port of its own, below the ephemeral ones."""
    nodes = env.get("SLURM_STEP_NODELIST", "")
    if not nodes or env.get("SLURM_STEP_NUM_TASKS") == "1":  # an interactive step may run several programs
        return None
    step = f"{env.get('SLURM_JOB_ID', '')}.{env.get('SLURM_STEP_ID', '')}"
    return first_node(nodes), 20_000 + zlib.crc32(step.encode()) % 12_000


def first_node(nodes: str) -> str:
    """Of a list as Slurm writes it: "gpu[07-09,12],cpu1" begins with "gpu07"."""
    first = re.match(r"(?:\[[^\]]*\]|[^,\[])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first.group() if first else nodes)


def _launcher(env: Mapping[str, str], row: _Variables, starts_mpi: bool = False) -> Launcher:
    return Launcher(
        row.name,
        rank=_number(env, row.rank),
        size=_number(env, row.size),
        local_rank=_number(env, row.local_rank),
        local_size=_number(env, row.local_size),
        starts_mpi=starts_mpi,
    )
