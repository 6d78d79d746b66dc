# SPDX-License-Identifier: BSD-3-Clause
"""Runs tests over every MPI of this machine, started by each launcher, and prints a table.

python tests/python/every_mpi.py                                  # the conformance files, in the tier `carrier`
python tests/python/every_mpi.py --tier=full                      # the whole matrix
python tests/python/every_mpi.py --mpi 'Open MPI 5' --launcher mpirun tests/python/test_moves.py -x
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from mpi_libraries import Mpi, all_mpis

CONFORMANCE = (
    "test_matrix.py",
    "test_reductions.py",
    "test_moves.py",
    "test_point_to_point.py",
    "test_groups.py",
)
LAUNCHERS = ("torchrun", "mpirun")


def environment_of(mpi: Mpi, launcher: str) -> dict[str, str]:
    chosen = {
        "ALTORCH_MPI": mpi.library,
        "ALTORCH_TEST_LAUNCHER": launcher,
        "ALTORCH_TEST_MPIRUN": mpi.mpirun,
    }
    return {**os.environ, **chosen, **dict(mpi.env)}


def run(mpi: Mpi, launcher: str, arguments: list[str]) -> tuple[bool, str]:
    """Whether all passed, and pytest's last line."""
    unsupported_reason = mpi.reason or ("no mpirun" if launcher == "mpirun" and not mpi.mpirun else "")
    if unsupported_reason:
        return True, f"left out: {unsupported_reason}"
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        env=environment_of(mpi, launcher),
        stdout=subprocess.PIPE,
        text=True,
    )
    last = ""
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    code = process.wait()
    summary = re.sub(r" in [\d.]+s.*|=+", "", last).strip()
    return code == 0, f"{summary}, {time.monotonic() - begin:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mpi", action="append", choices=list(all_mpis()), help="default: all of them")
    parser.add_argument("--launcher", action="append", choices=LAUNCHERS, help="default: both")
    options, arguments = parser.parse_known_args()
    # A later --tier among the arguments wins.
    if not any(word.endswith(".py") or "::" in word for word in arguments):
        files = [str(Path(__file__).parent / name) for name in CONFORMANCE]
        arguments = ["--tier=carrier", *arguments, *files]
    rows = []
    for name in options.mpi or all_mpis():
        for launcher in options.launcher or LAUNCHERS:
            print(f"--- {name}, started by {launcher}", flush=True)
            rows.append((name, launcher, *run(all_mpis()[name], launcher, arguments)))
    print()
    for name, launcher, good, text in rows:
        print(f"{name:<14} {launcher:<9} {'ok    ' if good else 'FAILED'} {text}")
    return 0 if all(good for _, _, good, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
