# SPDX-License-Identifier: BSD-3-Clause
"""Times torch.distributed's operations on CPU tensors, contender by contender in turns within the same processes.

Starts its ranks itself. What is measured how: altorch.bench.turns. `fake` is torch's backend that does nothing, what
torch's own dispatch costs; `recorded` is `fake` with torch's flight recorder. memcpy is one copy of as many bytes on
every rank at once; mpi-blocking and mpi-test are the same operation called by a C program, openmpi-blocking and
openmpi-test by one over Open MPI (--open-mpi FOLDER).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from rich.status import Status

from altorch.bench import process_group, rows, table
from altorch.bench.cases import CASES
from altorch.bench.rows import Row
from altorch.bench.sweep import Sweep
from altorch.cli._output import console
from benchmarks import mpi_floor, report
from benchmarks.ranks import Emit, run_ranks


def work(config: Row, emit: Emit) -> None:
    device = process_group.join("cpu", control="gloo")  # altorch may be left out
    modes = tuple(config.pop("modes", ("sync",)))
    skipped = Sweep(modes=modes, **config).measure(device, emit)
    emit({"skipped": skipped, "mpi": rows.mpi_in_use()})
    process_group.leave()


@contextlib.contextmanager
def foreign_programs(number: int) -> Iterator[None]:
    """That want a core each, all the time."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_ranks(parser, "2,4")
    report.add_sweep(parser, "al,gloo,fake", ",".join(CASES), "float32,bfloat16", report.SIZES)
    parser.add_argument("--deadline", type=float, default=280, help="seconds after which a run is aborted")
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="beside so many programs that compute; default none"
    )
    parser.add_argument("--async", dest="lazy", action="store_true", help="asynchronous calls as well")
    parser.add_argument("--no-mpi-floor", action="store_true", help="leave out the same MPI called from C")
    mpi_floor.add_arguments(parser)
    arguments = parser.parse_args()

    run = report.where()
    rows.append(arguments.json, [run])
    config = {
        key: getattr(arguments, key) for key in ("contenders", "operations", "dtypes", "sizes", "seconds")
    }
    config["modes"] = ["sync", "async"] if arguments.lazy else ["sync"]
    for ranks in arguments.ranks:
        with console().status("") as status:

            def show(row: Row, status: Status = status, ranks: int = ranks) -> None:
                status.update(f"{ranks} ranks: {row.get('operation')} {row.get('dtype')} {row.get('bytes')}")

            with foreign_programs(arguments.busy):
                found = run_ranks(
                    "benchmarks.cpu_collectives:work", ranks, config, deadline=arguments.deadline, on_row=show
                )
        about = (
            {"benchmark": "cpu_beside", "busy": arguments.busy}
            if arguments.busy
            else {"benchmark": "cpu_collectives"}
        )
        measured = [about | row for row in found if "operation" in row]
        if not arguments.no_mpi_floor:
            measured += mpi_floor.measure(arguments, ranks, arguments.operations, arguments.sizes)
        table.show(run, measured, found[-1]["skipped"])
        rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
