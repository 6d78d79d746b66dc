"""Times the start of a group: from init_process_group to the end of the first barrier, on fresh processes.

The ranks line up after their imports, so that the time of `import torch` is not in the figure. Backends take turns;
a run's time is the slowest rank's.
"""

from __future__ import annotations

import argparse
import statistics
import time

from altorch.bench.launcher import Emit, run_ranks
from altorch.bench.rows import Row
from benchmarks import report

PHASES = ("init_ms", "first_barrier_ms", "total_ms", "destroy_ms")


def work(config: Row, emit: Emit) -> None:
    import torch.distributed as dist

    from altorch.bench.launcher import wait_for_all_ranks
    from benchmarks.groups import provide, rank_from_environment

    provide(config["backend"])
    wait_for_all_ranks()
    begin = time.perf_counter()
    dist.init_process_group(config["backend"])
    started = time.perf_counter()
    dist.barrier()
    ready = time.perf_counter()
    dist.destroy_process_group()
    end = time.perf_counter()
    seconds = (started - begin, ready - started, ready - begin, end - ready)
    emit({"rank": rank_from_environment()} | {name: s * 1e3 for name, s in zip(PHASES, seconds, strict=True)})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    report.add_common_arguments(parser, backends="al,gloo", ranks="2,4")
    parser.add_argument("--repeats", type=int, default=5, help="fresh starts of each backend, default 5")
    arguments = parser.parse_args()

    rows: list[Row] = [report.where()]
    report.print_where(rows[0])
    lines = []
    for ranks in arguments.ranks:
        runs: dict[str, list[Row]] = {backend: [] for backend in arguments.backends}
        with report.console.status(f"{ranks} ranks"):
            for _ in range(arguments.repeats):
                for backend, done in runs.items():
                    times = run_ranks("benchmarks.startup:work", ranks, {"backend": backend}, deadline=60)
                    done.append({name: max(row[name] for row in times) for name in PHASES})
        for backend, done in runs.items():
            medians = {name: statistics.median(run[name] for run in done) for name in PHASES}
            worst = max(run["total_ms"] for run in done)
            row = {"benchmark": "startup", "backend": backend, "ranks": ranks, "repeats": arguments.repeats}
            rows.append(row | medians | {"worst_total_ms": worst})
            lines.append((backend, ranks, *(f"{medians[name]:.1f}" for name in PHASES), f"{worst:.1f}"))
    report.print_table(
        "start of a group, milliseconds (median of the slowest rank)",
        ["backend", "ranks", "init", "first barrier", "both", "destroy", "worst of both"],
        lines,
    )
    report.append(arguments.json, rows)


if __name__ == "__main__":
    main()
