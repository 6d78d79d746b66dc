# SPDX-License-Identifier: BSD-3-Clause
"""`altorch simulate`: how long collectives would take on a described network.

    altorch simulate all_reduce --sizes 1K,16M --nodes 2,64,512 --per-node 8 --alpha 2us --beta 25GB/s
    altorch simulate all_to_all --sizes 64K --nodes 64 --stages          what the time is made of
    altorch simulate all_reduce --sizes 1M --nodes 64 --goal ring.goal   the messages, for LogGOPSim
    altorch simulate --record flight/rank_* --ranks 8,4096               a recorded job with more ranks

The routes, schedules and plans are those that a group of CPU tensors takes. Messages cost --alpha, and --beta for each
byte; the ranks of a node share its port. Stages through the memory of a node take measured times: those of
ALTORCH_TUNED, else the defaults. docs/simulate.md says what is not modelled.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from altorch.cli._output import Progress, human_bytes, parse_bytes, print_json, print_table
from altorch.cli._units import parse_rate, parse_seconds, short_time

SUMMARY = "How long collectives, or a recorded job, would take with more ranks over a described network."
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
_MOST = 1 << 17  # ranks, as the engine simulates them
_VALUES = {
    "alpha": (parse_seconds, "2us", "latency of a message between nodes"),
    "beta": (parse_rate, "25GB/s", "bandwidth of a node's port, each direction"),
    "rank-beta": (parse_rate, "as --beta", "bandwidth of one rank's messages between nodes"),
    "on-node-alpha": (parse_seconds, "1us", "latency of a message between ranks of a node"),
    "on-node-beta": (parse_rate, "10GB/s", "bandwidth of such messages"),
    "gamma": (parse_rate, "20GB/s", "how fast a rank reduces"),
    "call": (parse_seconds, "4us", "what a call takes outside of the engine: Python, torch"),
    "store-request": (parse_seconds, "20us", "what the job's store takes for a request"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "operations", nargs="*", metavar="OPERATION", help=f"default: {', '.join(OPERATIONS)}"
    )
    parser.add_argument(
        "--sizes",
        default="1K,64K,1M,16M",
        metavar="SIZE,...",
        help="bytes of the vector, or of one block (default: %(default)s)",
    )
    parser.add_argument("--dtype", default="float32", help="element type (default: %(default)s)")
    parser.add_argument("--nodes", default="2,16,64", metavar="N,...", help="default: %(default)s")
    parser.add_argument(
        "--per-node",
        type=int,
        metavar="N",
        help="ranks of a node (default: 1; with --record, the recorded ranks)",
    )
    for name, (_, default, what) in _VALUES.items():
        parser.add_argument(
            f"--{name}", default=default, metavar="VALUE", help=f"{what} (default: %(default)s)"
        )
    parser.add_argument("--stages", action="store_true", help="print what each time is made of")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw time against ranks (svg, png or pdf)")
    parser.add_argument(
        "--goal",
        type=Path,
        metavar="FILE",
        help="write the messages of one operation, size and --nodes for LogGOPSim",
    )
    parser.add_argument(
        "--record",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="flight records of all ranks of a job on one machine",
    )
    parser.add_argument(
        "--ranks", metavar="N,...", help="with --record: ranks to predict; --per-node of them share a node"
    )
    parser.add_argument(
        "--cores",
        type=int,
        default=0,
        metavar="N",
        help="with --record: cores of a node, which ranks share if there are more (default: one for each rank)",
    )
    parser.add_argument(
        "--calls-of-step",
        type=int,
        default=0,
        metavar="N",
        help="with --record: collectives of a step (default: detected)",
    )


def run(arguments: argparse.Namespace) -> int:
    from altorch import _tuned

    try:
        network = network_of(arguments)
        if arguments.per_node is not None and not 1 <= arguments.per_node <= _MOST:
            raise ValueError(f"--per-node: {arguments.per_node} must lie between 1 and {_MOST}")
        if arguments.cores < 0 or arguments.calls_of_step < 0:
            raise ValueError("--cores and --calls-of-step must not be negative")
        if not arguments.record and (arguments.cores or arguments.calls_of_step):
            raise ValueError("--cores and --calls-of-step go with --record")
        if arguments.plot and not arguments.plot.absolute().parent.is_dir():
            raise ValueError(f"--plot: {arguments.plot} cannot be written: no such folder")
        if arguments.plot and arguments.plot.suffix not in (".svg", ".png", ".pdf"):
            raise ValueError(f"--plot: {arguments.plot} must end with .svg, .png or .pdf")
        _tuned.apply()
        if arguments.record:
            from altorch.cli import _simulate_record

            return _simulate_record.show(arguments, network)
        if arguments.per_node is None:
            arguments.per_node = 1
        if arguments.ranks:
            raise ValueError(
                "--ranks goes with --record; --nodes and --per-node say how many ranks there are"
            )
        if arguments.goal:
            return _write_goal(arguments, network)
        return _show(arguments, network)
    except KeyboardInterrupt:
        print("altorch simulate: interrupted", file=sys.stderr)
        return 130
    except MemoryError:
        print("altorch simulate: not enough memory; ask for fewer ranks or a smaller size", file=sys.stderr)
    except OSError as error:
        print(f"altorch simulate: {error.filename}: {error.strerror}", file=sys.stderr)
    except (ValueError, RuntimeError) as error:
        print(f"altorch simulate: {error}", file=sys.stderr)
    return 2


def network_of(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds by the names of the engine's Network: rates become the time of a byte."""
    network = {}
    for name, (parse, _, _) in _VALUES.items():
        key = name.replace("-", "_")
        text = getattr(arguments, key)
        value = parse(arguments.beta if text == "as --beta" else text)
        network[key] = 1 / value if parse is parse_rate else value
    return network


def counts_of(text: str, option: str) -> list[int]:
    """`2,16,64`: ascending, without duplicates."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise ValueError(f"{option}: '{text}' is no list of numbers such as 2,16,64") from None
    if found[0] < 1 or found[-1] > _MOST:
        wrong = found[0] if found[0] < 1 else found[-1]
        raise ValueError(f"{option}: {wrong} must lie between 1 and {_MOST}")
    return found


def _show(arguments: argparse.Namespace, network: dict[str, float]) -> int:
    from altorch._extension import extension

    operations = arguments.operations or list(OPERATIONS)
    sizes = [parse_bytes(size) for size in arguments.sizes.split(",")]
    places = counts_of(arguments.nodes, "--nodes")
    cells = [(op, size, nodes) for op in operations for size in sizes for nodes in places]
    found = []
    with Progress(len(cells), quiet=arguments.json) as progress:
        for operation, size, nodes in cells:
            what = f"{operation} of {human_bytes(size)}, {nodes} x {arguments.per_node} ranks"
            progress.at(what)
            row = extension().simulate(
                operation,
                arguments.dtype,
                size,
                nodes=nodes,
                per_node=arguments.per_node,
                network=network,
                progress=_shower(progress, what),
            )
            found.append({"operation": operation, "bytes": size, "nodes": nodes} | row)
    start_up = {
        nodes: extension().simulated_start_up(nodes=nodes, per_node=arguments.per_node, network=network)
        for nodes in places
    }
    if arguments.plot:
        from altorch.cli import _simulate_plot

        _simulate_plot.draw(arguments.plot, found, arguments.per_node)
    if arguments.json:
        print_json(
            {
                "network": network,
                "per_node": arguments.per_node,
                "rows": found,
                "start_up": [{"nodes": nodes} | row for nodes, row in start_up.items()],
            }
        )
        return 0
    _print(arguments, found, start_up)
    return 0


def _shower(progress: Progress, what: str) -> Callable[[float], None]:
    return lambda share: progress.describe(f"{what}: {share:.0%} of the messages")


def _print(
    arguments: argparse.Namespace, found: list[dict[str, Any]], start_up: dict[int, dict[str, float]]
) -> None:
    lines = [
        [
            row["operation"],
            human_bytes(row["bytes"]),
            row["nodes"] * arguments.per_node,
            row["route"],
            short_time(row["seconds"]),
            short_time(row["lower_bound_seconds"]),
            f"{row['seconds'] / row['lower_bound_seconds']:.1f}x" if row["lower_bound_seconds"] else "-",
            ", ".join(sorted({stage["source"] for stage in row["stages"]})),
        ]
        for row in found
    ]
    print_table(
        f"Simulated: --per-node {arguments.per_node}, {arguments.alpha} and {arguments.beta} between nodes",
        ["operation", "size", "ranks", "route", "time", "lower bound", "time / bound", "source"],
        lines,
        right=["size", "ranks", "time", "lower bound", "time / bound"],
    )
    if arguments.stages:
        print_table(
            "Stages (latency, bytes and reduction by the formula of the algorithm)",
            ["ranks", "stage", "time", "latency", "bytes", "reduction", "messages"],
            [_stage(stage, row["nodes"] * arguments.per_node) for row in found for stage in row["stages"]],
            right=["ranks", "time", "latency", "bytes", "reduction", "messages"],
        )
    print_table(
        "Making the group: what it asks of the job's store",
        ["ranks", "requests", "bytes", "time"],
        [
            [
                nodes * arguments.per_node,
                f"{row['requests']:,.0f}",
                human_bytes(row["bytes"]),
                short_time(row["seconds"]),
            ]
            for nodes, row in start_up.items()
        ],
        right=["ranks", "requests", "bytes", "time"],
    )


def _stage(stage: dict[str, Any], ranks: int) -> list[Any]:
    parts = [stage[f"{name}_seconds"] for name in ("latency", "transfer", "reduction")]
    shown = [short_time(part) if stage["source"] in ("events", "formula") else "-" for part in parts]
    return [ranks, stage["text"], short_time(stage["seconds"]), *shown, f"{stage['messages']:,}"]


def _write_goal(arguments: argparse.Namespace, network: dict[str, float]) -> int:
    from altorch._extension import extension

    sizes, places = arguments.sizes.split(","), counts_of(arguments.nodes, "--nodes")
    if len(arguments.operations) != 1 or len(sizes) != 1 or len(places) != 1:
        raise ValueError(
            "--goal writes one program: name one operation, and one value for --sizes and --nodes"
        )
    extension().write_goal(
        str(arguments.goal),
        arguments.operations[0],
        arguments.dtype,
        parse_bytes(sizes[0]),
        nodes=places[0],
        per_node=arguments.per_node,
        network=network,
    )
    latency = round(network["alpha"] * 1e9)
    binary = f"{arguments.goal}.bin"
    # LogGOPSim takes whole nanoseconds a byte.
    gap = max(1, round(network["beta"] * 1e9))
    command = (
        f"txt2bin -i {arguments.goal} -o {binary} && LogGOPSim -f {binary} -L {latency} -o 0 -g 0 -G {gap}"
    )
    command += " -S 1000000000"
    if arguments.json:
        print_json({"goal": str(arguments.goal), "command": command})
    else:
        print(f"{arguments.goal} is written. LogGOPSim runs it with")
        print(command)
        print(f"where -G {gap} is {1 / gap:g} GB/s; compare with --beta {1 / gap:g}GB/s")
    return 0
