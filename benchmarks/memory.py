# SPDX-License-Identifier: BSD-3-Clause
"""Measures the memory that a backend takes beyond the tensors, at its start and over many operations.

The baseline is taken after `import torch` and with the tensors written. Figures are the growth of the resident set
since then, and of the proportional set, which counts a page that n processes share as 1/n.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path

import torch
import torch.distributed as dist

from altorch.bench import rows
from altorch.bench.contenders import provide
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks

LARGE_BYTES, SMALL_BYTES = 16 << 20, 1 << 10
LARGE_EVERY = 1000  # one operation in so many is large
FIRST_COPY_SECONDS = (
    1.5  # altorch copies its records of calls, 2 MiB, for torch's flight recorder every second
)


def resident() -> dict[str, float]:
    """MiB of this process now."""
    gc.collect()
    fields = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) / 1024
    return {"rss": fields["Rss"], "pss": fields["Pss"]}


def work(config: Row, emit: Emit) -> None:
    torch.set_num_threads(1)
    size = config["ranks"]
    small, large = torch.ones(SMALL_BYTES // 4), torch.ones(LARGE_BYTES // 4)
    gathered = torch.ones(size * small.numel())
    large += large  # torch's own first use of its pools
    provide(config["contender"])
    baseline = resident()

    def emit_growth(when: str, operations: int) -> None:
        now = resident()
        growth = {f"{name}_mib": now[name] - baseline[name] for name in now}
        emit({"when": when, "operations": operations} | growth)

    dist.init_process_group(config["contender"])
    dist.barrier()
    emit_growth("after start", 1)
    done = 0

    def run(until: int) -> None:
        nonlocal done
        while done < until:
            kind = done % 4
            if done % LARGE_EVERY == 0:
                large.fill_(1)
                dist.all_reduce(large)
            elif kind == 0:
                dist.all_reduce(small)
            elif kind == 1:
                dist.all_reduce(small, async_op=True).wait()
            elif kind == 2:
                dist.broadcast(small, src=done // 4 % size)
            else:
                dist.all_gather_into_tensor(gathered, small)
            done += 1

    run(1)
    emit_growth("after the first 16 MiB operation", 1)
    # The first tenth warms every pool up and fills the records of calls; from there on nothing may
    # grow.
    for share in (0.01, 0.1, 0.5, 1.0):
        run(int(config["operations"] * share))
        if share == 0.1:
            time.sleep(FIRST_COPY_SECONDS)
        emit_growth(f"after {int(config['operations'] * share):,}", int(config["operations"] * share))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "al,gloo")
    report.add_ranks(parser, "2")
    parser.add_argument("--operations", type=int, default=100_000, help="default 100000")
    arguments = parser.parse_args()

    measured: list[Row] = [report.where()]
    lines = []
    for ranks in arguments.ranks:
        for contender in arguments.contenders:
            config = {"contender": contender, "ranks": ranks, "operations": arguments.operations}
            with console().status(f"{contender}, {ranks} ranks, {arguments.operations:,} operations"):
                found = run_ranks("benchmarks.memory:work", ranks, config, deadline=280)
            for when in dict.fromkeys(row["when"] for row in found):
                same = [row for row in found if row["when"] == when]
                row = {"benchmark": "memory", "contender": contender, "ranks": ranks, "device": "cpu"}
                row |= {"when": when, "operations": same[0]["operations"]}
                row |= {name: max(one[name] for one in same) for name in ("rss_mib", "pss_mib")}
                measured.append(row)
                lines.append((contender, ranks, when, f"{row['rss_mib']:.1f}", f"{row['pss_mib']:.1f}"))
    print_table(
        "memory beyond the tensors, MiB a rank (worst rank)",
        ["contender", "ranks", "when", "resident", "proportional"],
        lines,
        right=["resident", "proportional"],
    )
    rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
