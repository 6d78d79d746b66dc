# SPDX-License-Identifier: BSD-3-Clause
"""Runs the suites of CPU tensors one after another, writes their rows to one file, and prints which aims are reached.

python -m benchmarks.run_all                     # about twelve minutes
python -m benchmarks.run_all --quick             # about three: fewer sizes, one type
python -m benchmarks.aims FILE                   # the tables again, from rows measured before
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from altorch.bench import rows
from altorch.cli._output import console
from benchmarks import aims, report

QUICK = ["--sizes", "8,1K,64K,1M,64M", "--dtypes", "float32", "--seconds", "0.3", "--mpi-seconds", "0.1"]
SIZES = ["--sizes", "8,1K,16K,64K,256K,1M,4M,16M,64M"]


def results_file() -> Path:
    """<date>-<machine>.jsonl"""
    here = rows.where("")
    machine = re.sub(r"[^a-z0-9]+", "-", here["machine"].lower()).strip("-")
    return (
        report.REPOSITORY / "benchmarks" / "results" / f"{here['date'][:10]}-{machine}-{here['cores']}c.jsonl"
    )


def commands(quick: bool, without_al: bool) -> list[list[str]]:
    """Each entry of at most five minutes, so that one that hangs costs no more."""
    contenders = "gloo,fake" if without_al else "al,gloo,fake"
    pair = "gloo" if without_al else "al,gloo"
    if quick:
        collectives = [
            [*QUICK, "--ranks", "2"],
            [*QUICK, "--ranks", "4", "--operations", "all_reduce,barrier"],
        ]
    else:
        collectives = [
            [*SIZES, "--ranks", ranks, "--dtypes", dtype, *(["--no-mpi-floor"] if dtype != "float32" else [])]
            for ranks in ("2", "4")
            for dtype in ("float32", "bfloat16")
        ]
    operations = "20000" if quick else "100000"
    return [
        *(["benchmarks.cpu_collectives", "--contenders", contenders, *words] for words in collectives),
        ["benchmarks.cpu_training", "--contenders", pair, *(["--quick"] if quick else [])],
        ["benchmarks.startup", "--contenders", pair, *(["--repeats", "3"] if quick else [])],
        ["benchmarks.idle", "--contenders", f"none,store,{pair}", "--ranks", "2"],
        ["benchmarks.memory", "--contenders", pair.partition(",")[0], "--operations", operations],
        ["benchmarks.reduction"],
    ]


def main() -> None:
    parser = report.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and operations")
    parser.add_argument("--without-al", action="store_true", help="leave altorch itself out: a baseline")
    parser.add_argument("--mpi", metavar="FOLDER", help="bin folder of the MPI to call from C")
    parser.add_argument("--open-mpi", metavar="FOLDER", help="bin folder of an Open MPI to call beside it")
    arguments = parser.parse_args()

    failed = []
    file = (arguments.json or results_file()).resolve()
    file.unlink(missing_ok=True)  # the rows of a run belong together
    for command in commands(arguments.quick, arguments.without_al):
        if command[0] == "benchmarks.cpu_collectives":
            command += ["--mpi", arguments.mpi] if arguments.mpi else []
            command += ["--open-mpi", arguments.open_mpi] if arguments.open_mpi else []
        console().rule(" ".join(command))
        program = [sys.executable, "-m", *command, "--json", str(file)]
        if subprocess.run(program, cwd=report.REPOSITORY).returncode != 0:
            failed.append(" ".join(command))
    reached = aims.judge([file])
    print(f"rows: {file}")
    for name in failed:
        console().print(f"[red]failed: python -m {name}")
    sys.exit(0 if reached and not failed else 1)


if __name__ == "__main__":
    main()
