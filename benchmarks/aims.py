# SPDX-License-Identifier: BSD-3-Clause
"""Judges measured rows by what the project has set itself, in a table for each device and number of ranks.

python -m benchmarks.aims benchmarks/results/cuda-4xH200-2026-11-21.jsonl
python -m benchmarks.aims FILE --markdown      # for docs/benchmarks.md and benchmarks-nodes.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from altorch.bench import aims, rows
from altorch.bench.rows import Row
from benchmarks import cpu_aims, cuda_aims, markdown

AIMS = {"cpu": cpu_aims.AIMS, "cpu on nodes": cpu_aims.AIMS_ON_NODES, "cuda": cuda_aims.AIMS}


def judge(files: Sequence[Path], as_markdown: bool = False) -> bool:
    """Prints the tables; whether no aim was missed."""
    measured = [row for file in files for row in rows.read(file) if "ranks" in row]
    # Ranks that share a GPU, and GPUs of several nodes, are measured without an aim.
    found = [row for row in measured if row["ranks"] <= row.get("gpus", row["ranks"]) and place(row) in AIMS]
    reached = True
    for device, link, ranks in sorted(set(map(setting, found))):
        here = [row for row in found if setting(row) == (device, link, ranks)]
        results = aims.judge(AIMS[device], here, ranks)
        reached &= all(result.reached is not False for result in results)
        if as_markdown:
            print(f"{title(here)}:\n\n{markdown.results(results)}\n")
            for table in markdown.beside_gloo(here) if device == "cpu" else ():
                print(table + "\n")
            if device == "cpu" and (slower := markdown.slower_than_a_peer(here)):
                print(slower + "\n")
        else:
            aims.show(title(here), results)
    for table in markdown.on_nodes([row for row in measured if "nodes" in row]) if as_markdown else ():
        print(table + "\n")
    return reached


def place(row: Row) -> str:
    return f"{row['device']} on nodes" if "nodes" in row else str(row["device"])


def setting(row: Row) -> tuple[str, float, int]:
    """Rows of one setting are judged together: where, over which link [Gbit/s; 0: no limit], how many ranks."""
    return place(row), row.get("link_gbit", 0.0), row["ranks"]


def title(here: list[Row]) -> str:
    commits = ", ".join(sorted({row.get("commit", "unknown") for row in here}))
    row = here[0]
    mpi = row["mpi"] or "no MPI" if "mpi" in row else f"MPICH {row['mpich']}"
    carrier = f"NCCL {row['nccl']}" if "nccl" in row else mpi
    nodes = f" on {row['nodes']} nodes" if "nodes" in row else ""
    nodes += f", {row['link_gbit']:g} Gbit/s each" if "link_gbit" in row else ""
    where = f"{row['ranks']} ranks{nodes}, {row['machine']}"
    return f"{where}, torch {row['torch']}, {carrier}, {commits}, {row['date'][:10]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, help="files of JSON lines")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    arguments = parser.parse_args()
    sys.exit(0 if judge(arguments.results, arguments.markdown) else 1)


if __name__ == "__main__":
    main()
