# SPDX-License-Identifier: BSD-3-Clause
"""Builds mpi_floor.c with an MPI's own compiler wrapper and runs it under that MPI's mpiexec."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from altorch.bench import rows, table
from altorch.bench.cases import CASES
from altorch.bench.rows import Row
from altorch.cli._output import console
from benchmarks import report

MODES = ("mpi-blocking", "mpi-test")
OPEN_MPI_MODES = tuple(f"open{mode}" for mode in MODES)
# An MPI that spins takes milliseconds for 8 bytes, and seconds for a mebibyte, when ranks outnumber
# cores.
CROWDED_BYTES = 64 << 10
SOURCE = Path(__file__).with_suffix(".c")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mpi", metavar="FOLDER", help="bin folder with mpicc and mpiexec; default: the mpich wheel's"
    )
    parser.add_argument(
        "--open-mpi", metavar="FOLDER", help="bin folder of an Open MPI that is measured beside it"
    )
    parser.add_argument(
        "--mpi-seconds", type=float, default=0.15, help="time for one operation and size from C"
    )


def find_tool(name: str, folder: str | None) -> str | None:
    """In the named folder, else beside this Python (where the wheel's lie), else on the PATH."""
    folders = [folder] if folder else [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return shutil.which(name, path=os.pathsep.join(folders))


def run_program(
    mpiexec: str, program: Path, ranks: int, words: list[str], deadline: float
) -> tuple[list[Row], str]:
    """The rows that the program printed, and why it did not end well, or nothing."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI_", "PMIX"))
    }
    environment |= {  # read by Open MPI only
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_plm_rsh_agent": "true",  # nothing is started elsewhere; without ssh it would refuse to start at all
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    process = subprocess.Popen(
        [mpiexec, "-n", str(ranks), str(program), *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=deadline)
        problem = "" if process.returncode == 0 else f"status {process.returncode}: {errors[-300:]}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # mpiexec ends its ranks
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        problem = f"not done after {deadline:.0f} s; the remaining cases are left out"
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"')], problem


def measure(arguments: argparse.Namespace, ranks: int, operations: list[str], sizes: list[int]) -> list[Row]:
    found = measure_one(arguments.mpi, arguments.mpi_seconds, ranks, operations, sizes)
    if arguments.open_mpi:
        beside = measure_one(arguments.open_mpi, arguments.mpi_seconds, ranks, operations, sizes)
        found += [row | {"contender": "open" + row["contender"]} for row in beside if "contender" in row]
    return found


def measure_one(
    folder: str | None, seconds: float, ranks: int, operations: list[str], sizes: list[int]
) -> list[Row]:
    compiler, mpiexec = find_tool("mpicc", folder), find_tool("mpiexec", folder)
    if compiler is None or mpiexec is None:
        console().print("[yellow]the same MPI from C is skipped: no mpicc and mpiexec (--mpi FOLDER)")
        return []
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-") as built_in:
        program = Path(built_in) / "mpi_floor"
        built = subprocess.run(
            [compiler, "-O2", "-std=gnu11", "-o", str(program), str(SOURCE)], capture_output=True, text=True
        )
        if built.returncode != 0:
            console().print(f"[yellow]the same MPI from C is skipped: mpicc failed: {built.stderr[-400:]}")
            return []
        cores = len(os.sched_getaffinity(0))
        for mode in MODES:
            crowded = ranks > cores and mode == "mpi-blocking"
            done_sizes = [size for size in sorted(sizes) if size <= CROWDED_BYTES or not crowded]
            words = [mode.removeprefix("mpi-"), str(seconds)]
            words += [",".join(operations), ",".join(map(str, done_sizes))]
            deadline = 60.0 if crowded else 150.0
            with console().status(f"{ranks} ranks: {mode}"):
                measured, problem = run_program(mpiexec, program, ranks, words, deadline)
            if problem:
                console().print(f"[yellow]{mode} on {ranks} ranks: {problem}")
            found += measured
    return found


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_ranks(parser, "2,4")
    report.add_operations(parser, ",".join(CASES), report.SIZES)
    add_arguments(parser)
    arguments = parser.parse_args()
    run = report.where()
    rows.append(arguments.json, [run])
    for ranks in arguments.ranks:
        measured = measure(arguments, ranks, arguments.operations, arguments.sizes)
        table.show(run, measured, {})
        rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
