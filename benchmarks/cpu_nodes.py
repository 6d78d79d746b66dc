# SPDX-License-Identifier: BSD-3-Clause
"""Times torch.distributed's operations on CPU tensors of two nodes, cut out of this machine (ALTORCH_NODE).

Starts its ranks itself, half of them on each node, and has the contenders take turns, as cpu_collectives does. `al`
goes through memory on each node and by messages between them, where it has a plan for the operation; `al:messages` is
the same engine without shared memory: messages between all ranks. MPICH is told of the nodes too, so that its messages
between them go over TCP, through the loopback interface: a network of little latency that takes the processor's time.
`gloo` uses TCP between all ranks.

With --link each node has a link of its own, of so many Gbit/s in each direction, which its ranks share; rows then hold
`link_us`, the least time in which the bytes can cross it.

    python -m benchmarks.cpu_nodes --ranks 8 --link 10        # needs root, and the command tc (iproute2)
"""

from __future__ import annotations

import sys

from rich.status import Status

from altorch.bench import rows, table
from altorch.bench.rows import Row
from altorch.cli._output import console
from benchmarks import report
from benchmarks.link import floor_us, linked_nodes
from benchmarks.ranks import run_ranks

NODES = 2
SIZES = "1K,16K,64K,256K,1M,4M,16M"


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_ranks(parser, "4")
    report.add_sweep(
        parser,
        "al,al:messages,gloo",
        "all_reduce,all_gather,reduce_scatter,broadcast,barrier",
        "float32",
        SIZES,
    )
    parser.add_argument(
        "--link", type=float, default=0, metavar="GBIT", help="Gbit/s of each node's link; default: loopback"
    )
    parser.add_argument("--deadline", type=float, default=280, help="seconds after which a run is aborted")
    arguments = parser.parse_args()

    run = report.where()
    rows.append(arguments.json, [run])
    config = {
        key: getattr(arguments, key) for key in ("contenders", "operations", "dtypes", "sizes", "seconds")
    }
    for ranks in arguments.ranks:
        with console().status("") as status, linked_nodes(NODES, arguments.link) as nodes:

            def show(row: Row, status: Status = status, ranks: int = ranks) -> None:
                status.update(f"{ranks} ranks: {row.get('operation')} {row.get('dtype')} {row.get('bytes')}")

            found = run_ranks(
                "benchmarks.cpu_collectives:work",
                ranks,
                config,
                deadline=arguments.deadline,
                on_row=show,
                nodes=nodes,
            )
        mpi = found[-1]["mpi"]
        uses_mpi = any(each.startswith("al") for each in config["contenders"])
        if uses_mpi and not mpi.startswith("MPICH "):
            sys.exit(f"cpu_nodes: {mpi or 'no MPI'} does not let nodes be cut out of a machine; MPICH does")
        measured = [_row(row, mpi, arguments.link) for row in found if "operation" in row]
        table.show(run, measured, found[-1]["skipped"])
        rows.append(arguments.json, measured)


def _row(row: Row, mpi: str, gbit: float) -> Row:
    row = {"benchmark": "cpu_nodes", "nodes": NODES, "mpi": mpi} | row
    if not gbit:
        return row
    return row | {"link_gbit": gbit, "link_us": floor_us(row["operation"], row["bytes"], gbit)}


if __name__ == "__main__":
    main()
