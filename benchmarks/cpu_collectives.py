"""Times torch.distributed's operations on CPU tensors, backend by backend in turns within the same processes.

For every size the backends take turns, batch by batch, so that whatever disturbs the machine disturbs all of them.
A batch's time is the slowest rank's; the figures are the 10th percentile, the median and the maximum over batches,
per call. `fake` is torch's backend that does nothing: the cost of torch's own dispatch; `recorded` is `fake` with the
flight recorder that torch attaches to every backend but its own. memcpy is one copy of the same number of bytes on
every rank at once, and "MPI from C" the same operation called by a C program.
"""

from __future__ import annotations

import argparse
from typing import Any

from altorch.bench.launcher import Emit, run_ranks
from altorch.bench.rows import Row
from benchmarks import mpi_floor, report

DTYPES = ("float32", "bfloat16")


def measure(operation: str, size: int, dtype: str, config: Row, groups: Any, emit: Emit) -> None:
    import torch

    from altorch.bench import turns
    from benchmarks.operations import case_of

    case, here = case_of(operation), torch.device("cpu")
    seconds = config["seconds"]
    for row in turns.measure(case, size, getattr(torch, dtype), here, groups.measured, seconds=seconds):
        emit_row(row | {"operation": operation}, groups, emit)


def measure_memcpy(size: int, groups: Any, emit: Emit) -> None:
    import torch

    from altorch.bench import turns

    emit_row(turns.copies(size, torch.uint8, torch.device("cpu")), groups, emit)


def emit_row(row: Row, groups: Any, emit: Emit) -> None:
    if groups.rank == 0:
        named = {
            "backend": row.pop("contender"),
            "dtype": row["dtype"] or None,
        }  # as the C program names them
        emit({"benchmark": "cpu_collectives"} | row | named)


def work(config: Row, emit: Emit) -> None:
    from benchmarks.groups import Groups

    groups = Groups(config["backends"])
    if groups.rank == 0:
        for backend, reason in groups.skipped.items():
            emit(
                {"benchmark": "cpu_collectives", "backend": backend, "ranks": groups.size, "skipped": reason}
            )
    for size in config["sizes"]:
        measure_memcpy(size, groups, emit)
    for operation in config["operations"]:
        if operation == "barrier":
            measure(operation, 4, "float32", config, groups, emit)
            continue
        for dtype in config["dtypes"]:
            for size in config["sizes"]:
                measure(operation, size, dtype, config, groups, emit)
    groups.close()


def cell(row: Row | None, figure: str) -> str:
    return report.show_microseconds(row[figure] if row else None)


def print_rows(rows: list[Row], backends: list[str]) -> None:
    """One table per number of ranks: a line per operation, type and size."""
    compare = "al" if "al" in backends else None
    for ranks in sorted({row["ranks"] for row in rows if "ranks" in row}):
        here = [row for row in rows if row.get("ranks") == ranks]
        for row in here:
            if "skipped" in row:
                report.console.print(f"[yellow]{row['backend']} skipped: {row['skipped']}")
        by_key = {
            (row["operation"], row.get("dtype"), row["bytes"], row["backend"]): row
            for row in here
            if "bytes" in row
        }
        copies = {row["bytes"]: row["p10_us"] for row in here if row.get("operation") == "memcpy"}
        lines = []
        for operation, dtype, size in dict.fromkeys(
            key[:3] for key in by_key if not key[3].startswith(("mpi-", "memcpy"))
        ):
            found = {b: by_key.get((operation, dtype, size, b)) for b in [*backends, *mpi_floor.MODES]}
            cells = [operation, dtype or "", report.show_bytes(size)]
            for backend in backends:
                cells += [cell(found[backend], "p10_us"), cell(found[backend], "median_us")]
            for mode in mpi_floor.MODES:
                cells.append(cell(found[mode], "p10_us"))
            cells.append(report.show_microseconds(copies.get(size)))
            mine, gloo = found.get(compare or ""), found.get("gloo")
            cells.append(f"{gloo['p10_us'] / mine['p10_us']:.1f}x" if mine and gloo else "-")
            lines.append(cells)
        columns = ["operation", "dtype", "size"]
        for backend in backends:
            columns += [f"{backend} p10", "median"]
        columns += ["MPI from C", "posted+test", "memcpy", "gloo / al"]
        report.print_table(f"{ranks} ranks, microseconds a call (slowest rank)", columns, lines, left=3)


def main() -> None:
    from benchmarks.operation_names import OPERATION_NAMES

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    report.add_common_arguments(parser, backends="al,gloo,fake", ranks="2,4")
    parser.add_argument("--operations", type=report.names, default=list(OPERATION_NAMES), help="default: all")
    parser.add_argument("--dtypes", type=report.names, default=list(DTYPES), help="default float32,bfloat16")
    parser.add_argument(
        "--sizes", type=report.byte_sizes, default=report.byte_sizes("8,1K,16K,256K,1M,16M,64M")
    )
    parser.add_argument("--seconds", type=float, default=0.6, help="time for one operation, type and size")
    parser.add_argument("--deadline", type=float, default=280, help="seconds after which a run is given up")
    parser.add_argument("--no-mpi-floor", action="store_true", help="leave out the same MPI called from C")
    mpi_floor.add_arguments(parser)
    arguments = parser.parse_args()

    rows: list[Row] = [report.where()]
    report.print_where(rows[0])
    for ranks in arguments.ranks:
        config = {
            name: getattr(arguments, name)
            for name in ("backends", "operations", "dtypes", "sizes", "seconds")
        }
        with report.console.status(f"{ranks} ranks") as status:

            def show(row: Row, status: Any = status, ranks: int = ranks) -> None:
                status.update(f"{ranks} ranks: {row.get('operation')} {row.get('dtype')} {row.get('bytes')}")

            measured = run_ranks(
                "benchmarks.cpu_collectives:work", ranks, config, deadline=arguments.deadline, on_row=show
            )
        if not arguments.no_mpi_floor:
            measured += mpi_floor.measure(arguments, ranks, arguments.operations, arguments.sizes)
        print_rows(measured, arguments.backends)
        rows += measured
        report.append(arguments.json, rows)
        rows = []


if __name__ == "__main__":
    main()
