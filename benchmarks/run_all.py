"""Runs the benchmarks one after another, writes their rows to one file, and prints which aims are reached.

python -m benchmarks.run_all                     # about ten minutes
python -m benchmarks.run_all --quick             # about two: fewer sizes, one type
python -m benchmarks.run_all --only-aims FILE    # the table again, from rows measured before
python -m benchmarks.run_all --only-aims FILE --markdown    # the same for docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from benchmarks import aims, markdown, report
from benchmarks.report import REPOSITORY

RESULTS = REPOSITORY / "benchmarks" / "results"


def results_file() -> Path:
    """<date>-<machine>.jsonl"""
    here = report.where()
    machine = re.sub(r"[^a-z0-9]+", "-", here["cpu"].lower()).strip("-")
    return RESULTS / f"{here['date'][:10]}-{machine}-{here['cores']}c.jsonl"


def commands(quick: bool, without_backend: bool) -> list[list[str]]:
    """Each entry of at most five minutes, so that one that hangs costs no more."""
    backends = "gloo,fake" if without_backend else "al,gloo,fake,recorded"
    pair = "gloo" if without_backend else "al,gloo"
    if quick:
        sizes = [
            "--sizes",
            "8,1K,64K,1M,64M",
            "--dtypes",
            "float32",
            "--seconds",
            "0.3",
            "--mpi-seconds",
            "0.1",
        ]
        collectives = [
            [*sizes, "--ranks", "2"],
            [*sizes, "--ranks", "4", "--operations", "all_reduce,barrier"],
        ]
    else:
        sizes = ["--sizes", "8,1K,16K,64K,256K,1M,4M,16M,64M"]
        collectives = [
            [*sizes, "--ranks", ranks, "--dtypes", dtype, *(["--no-mpi-floor"] if dtype != "float32" else [])]
            for ranks in ("2", "4")
            for dtype in ("float32", "bfloat16")
        ]
    operations = "20000" if quick else "100000"
    return [
        *(["benchmarks.cpu_collectives", "--backends", backends, *words] for words in collectives),
        ["benchmarks.startup", "--backends", pair, *(["--repeats", "3"] if quick else [])],
        ["benchmarks.idle", "--backends", f"none,store,{pair}", "--ranks", "2"],
        ["benchmarks.memory", "--backends", pair.partition(",")[0], "--operations", operations],
        ["benchmarks.reduction"],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and operations")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="default benchmarks/results/<date>-<machine>.jsonl"
    )
    parser.add_argument("--only-aims", type=Path, metavar="FILE", help="run nothing, judge the rows of FILE")
    parser.add_argument(
        "--markdown", action="store_true", help="print the figures as docs/benchmarks.md shows them"
    )
    parser.add_argument("--without-al", action="store_true", help="leave altorch itself out: a baseline")
    parser.add_argument("--mpi", metavar="FOLDER", help="bin folder of the MPI to call from C")
    arguments = parser.parse_args()

    failed = []
    if arguments.only_aims:
        file = arguments.only_aims
    else:
        file = arguments.json or results_file()
        file.unlink(missing_ok=True)  # the rows of a run belong together
        for entry in commands(arguments.quick, arguments.without_al):
            command = list(entry)
            if arguments.mpi and command[0] == "benchmarks.cpu_collectives":
                command += ["--mpi", arguments.mpi]
            report.console.rule(" ".join(command))
            program = [sys.executable, "-m", *command, "--json", str(file.resolve())]
            if subprocess.run(program, cwd=REPOSITORY).returncode != 0:
                failed.append(" ".join(command))
    rows = report.read(file)
    found = aims.verdicts(rows)
    if arguments.markdown:
        print(markdown.document(rows, found))
    else:
        aims.print_verdicts(found)
    report.console.print(f"rows: {file}", highlight=False)
    for name in failed:
        report.console.print(f"[red]failed: python -m {name}")
    sys.exit(1 if failed or any(verdict.reached is False for verdict in found) else 0)


if __name__ == "__main__":
    main()
