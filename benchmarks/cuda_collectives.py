# SPDX-License-Identifier: BSD-3-Clause
"""Times torch.distributed's operations on CUDA tensors: altorch, its routes and torch's own, in the same processes.

    torchrun --nproc-per-node 2 -m benchmarks.cuda_collectives --json results.jsonl
    torchrun --nproc-per-node 2 -m benchmarks.cuda_collectives --routes --json results.jsonl
    torchrun --nproc-per-node 4 -m benchmarks.cuda_collectives --nodes 2 --json results.jsonl
    NCCL_P2P_DISABLE=1 torchrun ... benchmarks.cuda_collectives --routes --contenders nccl --suffix _no_p2p ...

What is measured how: altorch.bench.turns. Synchronous calls, asynchronous ones, the replay of a CUDA graph: the time
between events around calls that the host issues one after another, what the host needs to issue one, and of synchronous
calls the device alone, behind a kernel that spins until all of them are issued. `--routes` compares altorch's routes.
`--nodes` cuts the machine into nodes, for altorch, MPICH and NCCL, which then use a network between them: TCP through
the loopback interface, unless there is another. Ranks of two nodes may share a GPU; their kernels run at the same time
as clients of the Multi-Process Service (cmake/with_mps.sh).
"""

from __future__ import annotations

import os

import torch.distributed as dist

from altorch.bench import floors, process_group, rows, table
from altorch.bench.rows import Row
from altorch.bench.sweep import Sweep
from altorch.cli._output import Progress
from benchmarks import report
from benchmarks.ranks import node_environment

OPERATIONS = "all_reduce,all_gather,reduce_scatter,all_to_all"
SIZES = "8,1K,4K,16K,64K,256K,1M,4M,16M,64M,256M"
MODES = ("sync", "async", "graph")
ROUTES = "al,al:host_staged,al:host_relay,nccl,gloo"
BETWEEN_NODES = "al,al:hierarchical,al:host_relay,nccl"


def cut_into(nodes: int) -> None:
    """Before torch.distributed starts; ranks that follow one another share a node."""
    os.environ |= node_environment(int(os.environ["RANK"]) * nodes // int(os.environ["WORLD_SIZE"]), nodes)


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_sweep(parser, "al,nccl", OPERATIONS, "bfloat16", SIZES)
    parser.add_argument(
        "--modes",
        type=report.names,
        default=list(MODES),
        metavar="LIST",
        help=f"of {','.join(MODES)}; default all",
    )
    parser.add_argument(
        "--routes", action="store_true", help=f"by default {ROUTES}, float32, synchronous calls only"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, metavar="N", help=f"cut into N nodes; by default {BETWEEN_NODES} then"
    )
    parser.add_argument("--suffix", default="", help="added to the contenders' names in the rows")
    nodes = parser.parse_known_args()[0].nodes
    if nodes > 1:
        cut_into(nodes)
        parser.set_defaults(contenders=report.names(BETWEEN_NODES))
    if parser.parse_known_args()[0].routes:
        parser.set_defaults(contenders=report.names(ROUTES), dtypes=["float32"], modes=["sync"])
    arguments = parser.parse_args()

    device = process_group.join("cuda")
    first = dist.get_rank() == 0
    sweep = Sweep(
        arguments.contenders,
        arguments.operations,
        arguments.dtypes,
        arguments.sizes,
        modes=tuple(arguments.modes),
        seconds=arguments.seconds,
    )
    links = floors.link_bandwidth(device)
    run: Row = {}
    measured: list[Row] = []
    if first:
        run = report.where("cuda") | {"link_GBps": links}
        rows.append(arguments.json, [run])

    def emit(row: Row) -> None:
        """Kept at once: a run that is cut off has measured something."""
        cut = {"nodes": nodes, "mpi": rows.mpi_in_use()} if nodes > 1 else {}
        row = {"benchmark": "cuda_collectives"} | cut | row
        if row["contender"] in arguments.contenders:
            row["contender"] += arguments.suffix
        measured.append(row)
        rows.append(arguments.json, [row])

    with Progress(len(sweep.jobs()), quiet=not first) as progress:
        skipped = sweep.measure(device, emit, progress.at)
    if first:
        table.show(run, measured, skipped)
        print(f"host links: {links} GB/s each way, on all GPUs at once")
    process_group.leave()


if __name__ == "__main__":
    main()
