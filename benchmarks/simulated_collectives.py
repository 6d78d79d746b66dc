# SPDX-License-Identifier: BSD-3-Clause
"""Compares `altorch simulate` with measured collectives, on one node and on two virtual nodes of this machine.

1. What a user would describe a network with: latency and bandwidth of messages that go both ways at once, between all
   pairs of ranks on a node, and on two nodes between one pair and all; the speed of a reduction; torch's dispatch.
2. Collectives on one node, as `altorch tune` measures them: the times of stages on a node. Virtual nodes share the
   machine's memory and cores, so the stages of two nodes are measured at the same time.
3. The collectives again, on one node and on two: each beside its simulated time.

Messages between virtual nodes go through the loopback interface or memory, so they take the time of the cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from altorch._extension import extension
from altorch.bench import contenders, process_group, rows
from altorch.bench.rows import Row
from altorch.cli._output import console, human_bytes, print_table
from altorch.cli._simulate_record import OF_BLOCKS
from altorch.cli._units import short_time
from benchmarks import report
from benchmarks.link import Node
from benchmarks.ranks import Emit, run_ranks

OPERATIONS = "all_reduce,all_gather,all_to_all"
SIZES = "1K,4K,16K,64K,256K,1M,4M,16M"
_OF_STAGES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier"]


def measured(
    ranks: int, nodes: int, operations: Sequence[str], sizes: Sequence[int], seconds: float
) -> list[Row]:
    config = {
        "contenders": ["al"],
        "operations": list(operations),
        "dtypes": ["float32"],
        "sizes": list(sizes),
        "seconds": seconds,
    }
    found = run_ranks("benchmarks.cpu_collectives:work", ranks, config, nodes=[Node()] * nodes)
    return [{"benchmark": "simulated", "nodes": nodes} | row for row in found if row.get("contender") == "al"]


def exchange(config: Row, emit: Emit) -> None:
    """Emits the seconds of an exchange by pairs of ranks: `apart` ranks from each other, the first `pairs` of them."""
    process_group.join("cpu", control="gloo")
    contenders.provide("al")
    group = dist.new_group(backend="al")
    rank, apart = dist.get_rank(), config["apart"]
    pair, peer = (
        (rank // (2 * apart)) * apart + rank % apart,
        rank + (apart if rank // apart % 2 == 0 else -apart),
    )
    for size in config["sizes"]:
        mine, theirs = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
        took = []
        for _ in range(max(20, min(200, (64 << 20) // size))):
            dist.barrier(group)
            if pair >= config["pairs"]:
                continue
            begin = time.perf_counter()
            works = [dist.isend(mine, peer, group=group), dist.irecv(theirs, peer, group=group)]
            for work in works:
                work.wait()
            took.append(time.perf_counter() - begin)
        if rank == 0:
            emit({"bytes": size, "seconds": statistics.median(took)})
    process_group.leave()


def line_of(ranks: int, nodes: int, apart: int, pairs: int, call: float) -> tuple[float, float]:
    """Latency, and seconds of a byte of one pair: least squares of relative errors. `call`: torch's, of a message."""
    config = {"apart": apart, "pairs": pairs, "sizes": [1 << step for step in range(10, 25, 2)]}
    found = run_ranks("benchmarks.simulated_collectives:exchange", ranks, config, nodes=[Node()] * nodes)
    points = [(row["bytes"], max(row["seconds"] - 2 * call, row["seconds"] / 4)) for row in found]
    return min(
        ((alpha, beta) for alpha in _around(points[0][1]) for beta in _around(points[-1][1] / points[-1][0])),
        key=lambda line: sum(((line[0] + line[1] * size) / took - 1) ** 2 for size, took in points),
    )


def _around(value: float) -> list[float]:
    return [value * 1.05**step for step in range(-40, 41)]


def reduction_seconds_per_byte() -> float:
    one, other = torch.ones(1 << 18), torch.ones(1 << 18)
    took = []
    for _ in range(50):
        begin = time.perf_counter()
        torch.add(one, other, out=one)
        took.append(time.perf_counter() - begin)
    return statistics.median(took) / (one.numel() * one.element_size())


def compare(row: Row, network: dict[str, float]) -> Row:
    ranks, nodes = row["ranks"], row["nodes"]
    block = row["bytes"] // ranks if row["operation"] in OF_BLOCKS else row["bytes"]
    found: dict[str, Any] = extension().simulate(
        row["operation"], row["dtype"], block, nodes=nodes, per_node=ranks // nodes, network=network
    )
    simulated = found["seconds"] * 1e6
    return row | {
        "route": found["route"],
        "simulated_us": simulated,
        "error": simulated / row["median_us"] - 1,
    }


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_ranks(parser, "2,4")
    report.add_operations(parser, OPERATIONS, SIZES)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for one operation and size")
    arguments = parser.parse_args()
    run = report.where()
    sizes, operations = arguments.sizes, arguments.operations
    with console().status("messages") as status:
        call = _call_seconds()
        gamma = reduction_seconds_per_byte()
        compared, networks = [], {}
        for ranks in arguments.ranks:
            networks[ranks] = network = _network(ranks, call) | {"gamma": gamma, "call": call}
            for nodes in (1, 2):
                status.update(f"{ranks} ranks on {nodes} nodes")
                costs = _costs(ranks // nodes, nodes, sizes, arguments.seconds) if ranks > nodes else []
                extension().set_tuned_costs(costs)
                found = measured(ranks, nodes, operations, sizes, arguments.seconds)
                compared += [compare(row, network) for row in found]
    _print(run, networks, compared)
    rows.append(arguments.json, [run | {"networks": networks}, *compared])


def _network(ranks: int, call: float) -> dict[str, float]:
    """Parameters of a network of two nodes. The port of a node carries as many pairs as it has ranks."""
    per_node = ranks // 2
    alpha, rank_beta = line_of(ranks, 2, per_node, 1, call)
    if per_node == 1:
        return {"alpha": alpha, "beta": rank_beta, "rank_beta": rank_beta}
    alpha, shared = line_of(ranks, 2, per_node, per_node, call)
    on_node_alpha, on_node_beta = line_of(ranks, 2, 1, per_node, call)
    return {
        "alpha": alpha,
        "beta": shared / per_node,
        "rank_beta": rank_beta,
        "on_node_alpha": on_node_alpha,
        "on_node_beta": on_node_beta,
    }


def _call_seconds() -> float:
    """Seconds of a call on torch's backend "fake"."""
    config = {
        "contenders": ["fake"],
        "operations": ["all_reduce"],
        "dtypes": ["float32"],
        "sizes": [8],
        "seconds": 0.2,
    }
    found = run_ranks("benchmarks.cpu_collectives:work", 2, config)
    return float(next(row["median_us"] for row in found if row.get("contender") == "fake")) * 1e-6


def _costs(ranks: int, nodes: int, sizes: Sequence[int], seconds: float) -> Any:
    """Costs among ranks of one node, measured on all nodes at once."""
    costs: dict[str, dict[int, list[float]]] = {}
    with ThreadPoolExecutor(nodes) as pool:
        runs = [pool.submit(measured, ranks, 1, _OF_STAGES, sizes, seconds) for _ in range(nodes)]
    for row in [row for run in runs for row in run.result()]:
        costs.setdefault(row["operation"], {}).setdefault(row["bytes"], []).append(row["median_us"])
    return [
        (False, name, ranks, [(size, statistics.mean(times)) for size, times in sorted(points.items())])
        for name, points in costs.items()
    ]


def _print(run: Row, networks: dict[int, dict[str, float]], compared: Sequence[Row]) -> None:
    print(f"{run['machine']}, {run['cores']} cores, torch {run['torch']}, commit {run['commit']}")
    for ranks, network in networks.items():
        values = [
            f"{name} {short_time(value) if 'beta' not in name and name != 'gamma' else f'{1e-9 / value:.2f} GB/s'}"
            for name, value in network.items()
        ]
        print(f"{ranks} ranks on two nodes: {', '.join(values)}")
    print_table(
        "simulated beside measured",
        ["operation", "ranks", "nodes", "size", "route", "measured [us]", "simulated [us]", "error"],
        [
            [
                row["operation"],
                row["ranks"],
                row["nodes"],
                human_bytes(row["bytes"]),
                row["route"],
                f"{row['median_us']:.1f}",
                f"{row['simulated_us']:.1f}",
                f"{row['error']:+.0%}",
            ]
            for row in compared
        ],
        right=["ranks", "nodes", "size", "measured [us]", "simulated [us]", "error"],
    )
    for nodes in (1, 2):
        errors = [abs(row["error"]) for row in compared if row["nodes"] == nodes]
        print(f"{nodes} node(s): median error {statistics.median(errors):.0%}, of {len(errors)} cells")
    print(f"all: median error {statistics.median(abs(row['error']) for row in compared):.0%}")


if __name__ == "__main__":
    main()
