# SPDX-License-Identifier: BSD-3-Clause
"""Times the start of a group: from init_process_group to the end of the first barrier, on fresh processes.

The ranks line up after their imports, so that the time of `import torch` is not in the figure. The store is there
before they start, as under torchrun. Contenders take turns; a run's time is the slowest rank's.
"""

from __future__ import annotations

import statistics
import time

import torch.distributed as dist

from altorch.bench import rows
from altorch.bench.contenders import provide
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks, wait_for_all_ranks

PHASES = ("init_ms", "first_barrier_ms", "total_ms", "destroy_ms")


def work(config: Row, emit: Emit) -> None:
    provide(config["contender"])
    wait_for_all_ranks()
    begin = time.perf_counter()
    dist.init_process_group(config["contender"])
    started = time.perf_counter()
    dist.barrier()
    ready = time.perf_counter()
    dist.destroy_process_group()
    end = time.perf_counter()
    seconds = (started - begin, ready - started, ready - begin, end - ready)
    emit({name: s * 1e3 for name, s in zip(PHASES, seconds, strict=True)})


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "al,gloo")
    report.add_ranks(parser, "2,4")
    parser.add_argument("--repeats", type=int, default=5, help="fresh starts of each contender, default 5")
    arguments = parser.parse_args()

    measured: list[Row] = [report.where()]
    lines = []
    for ranks in arguments.ranks:
        runs: dict[str, list[Row]] = {contender: [] for contender in arguments.contenders}
        with console().status(f"{ranks} ranks"):
            for _ in range(arguments.repeats):
                for contender, done in runs.items():
                    times = run_ranks(
                        "benchmarks.startup:work",
                        ranks,
                        {"contender": contender},
                        deadline=60,
                        hosts_store=True,
                    )
                    done.append({name: max(row[name] for row in times) for name in PHASES})
        for contender, done in runs.items():
            medians = {name: statistics.median(run[name] for run in done) for name in PHASES}
            worst = max(run["total_ms"] for run in done)
            row = {"benchmark": "startup", "contender": contender, "ranks": ranks, "device": "cpu"}
            measured.append(row | {"repeats": arguments.repeats} | medians | {"worst_total_ms": worst})
            lines.append((contender, ranks, *(f"{medians[name]:.1f}" for name in PHASES), f"{worst:.1f}"))
    print_table(
        "start of a group, milliseconds (median of the slowest rank)",
        ["contender", "ranks", "init", "first barrier", "both", "destroy", "worst of both"],
        lines,
        right=["ranks", "init", "first barrier", "both", "destroy", "worst of both"],
    )
    rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
