# SPDX-License-Identifier: BSD-3-Clause
"""`altorch simulate --record`: the step of a recorded job with more ranks, and what it is made of.

A collective of all ranks takes its simulated time with the new number of ranks. Stages through the memory of a node are
scaled by what the record took over what the simulation takes for as many ranks on one node. Collectives of other groups
take what was recorded. The work of a rank stays the same; so do the sizes of all_reduce, and of all blocks together.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from altorch.cli import _replay
from altorch.cli._output import print_json, print_table
from altorch.cli._replay import Job
from altorch.cli._units import short_time
from altorch.report import files
from altorch.report.records import Call

# What a step is made of, by the names of rows.
PARTS = {
    "compute": "compute",
    "skew": "stragglers",
    "latency": "latency and on-node stages",
    "transfer": "bandwidth",
}
OF_BLOCKS = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
# What c10d calls collectives that the engine has under another name.
_NAMES = {
    "_all_gather_base": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "alltoall_base": "all_to_all",
    "alltoall": "all_to_all",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
}


class Predictor:
    """Seconds of a recorded collective with other ranks."""

    def __init__(self, job: Job, network: dict[str, float]) -> None:
        self.job, self.network = job, network
        self.recorded = len(job.timelines)
        self._took = _replay.recorded_seconds(job)
        self._cache: dict[tuple[Any, ...], tuple[float, float]] = {}
        self._scales: dict[tuple[str, int], float] = {}
        self.unknown: set[str] = set()  # operations that cannot be simulated: they take the recorded time
        for call in job.calls:
            try:
                self._simulated(call, 1, self.recorded, network)
            except ValueError:
                self.unknown.add(call.operation)
        took: dict[tuple[str, int], list[float]] = defaultdict(list)
        for call in job.calls:
            if self.spans_all(call):
                took[call.operation, call.bytes].append(self._took[call.group.name, call.sequence])
        for call in job.calls:
            size = (call.operation, call.bytes)
            if size in took and size not in self._scales:
                simulated = sum(self._simulated(call, 1, self.recorded, network))
                self._scales[size] = statistics.median(took[size]) / simulated if simulated else 1.0

    def spans_all(self, call: Call) -> bool:
        """Whether the call is one of all ranks that can be simulated."""
        return len(call.group.ranks) in (0, self.recorded) and call.operation not in self.unknown

    def duration(self, nodes: int, per_node: int, **other: float) -> Callable[[Call], float]:
        """`other`: values of the network that are not its own."""
        network = self.network | other

        def seconds(call: Call) -> float:
            if not self.spans_all(call):
                return self._took[call.group.name, call.sequence]
            in_memory, between = self._simulated(call, nodes, per_node, network)
            return self._scales[call.operation, call.bytes] * in_memory + between

        return seconds

    def _simulated(
        self, call: Call, nodes: int, per_node: int, network: dict[str, float]
    ) -> tuple[float, float]:
        """Seconds of stages through memory, and of messages."""
        from altorch._extension import extension

        key = (call.operation, call.dtype, call.bytes, nodes, per_node, *network.values())
        if key not in self._cache:
            operation = _NAMES.get(call.operation, call.operation)
            size = call.bytes // (nodes * per_node) if operation in OF_BLOCKS else call.bytes
            found = extension().simulate(
                operation, call.dtype or "uint8", size, nodes=nodes, per_node=per_node, network=network
            )
            in_memory = sum(stage["seconds"] for stage in found["stages"] if stage["source"] == "measured")
            self._cache[key] = (in_memory, found["seconds"] - in_memory)
        return self._cache[key]


def show(arguments: argparse.Namespace, network: dict[str, float]) -> int:
    from altorch.cli.simulate import counts_of

    if not arguments.ranks:
        raise ValueError("--record needs --ranks: for how many ranks the step is asked")
    inputs = files.read(arguments.record)
    job = _replay.job_of(inputs.calls, arguments.calls_of_step)
    predictor = Predictor(job, network)
    per_node = arguments.per_node or predictor.recorded
    if predictor.unknown:
        print(
            f"altorch simulate: {', '.join(sorted(predictor.unknown))} cannot be simulated: it takes the recorded time",
            file=sys.stderr,
        )
    recorded = _replay.recorded_step_seconds(job)
    if recorded <= 0:
        raise ValueError("the steps of the record take no time")
    replayed = _replay.step_seconds(job, predictor.duration(1, predictor.recorded))
    rows = [
        row_of(predictor, ranks, min(per_node, ranks), arguments.cores)
        for ranks in counts_of(arguments.ranks, "--ranks")
    ]
    if arguments.plot:
        from altorch.cli import _simulate_plot

        _simulate_plot.draw_steps(arguments.plot, rows, (predictor.recorded, recorded))
    if arguments.json:
        print_json(
            {
                "recorded": {
                    "ranks": predictor.recorded,
                    "step_seconds": recorded,
                    "replayed_seconds": replayed,
                },
                "network": network,
                "rows": rows,
            }
        )
        return 0
    if abs(replayed / recorded - 1) > 0.25:
        print(
            f"altorch simulate: the replay of the recorded ranks takes {short_time(replayed)} a step, and the record "
            f"{short_time(recorded)}: the model does not describe this job, and the predictions below are unreliable",
            file=sys.stderr,
        )
    print_table(
        f"A step of the recorded job: {short_time(recorded)} with {predictor.recorded} ranks (replayed: "
        f"{short_time(replayed)}, {job.period} collectives)",
        ["ranks", "nodes", "step", "vs recorded", *PARTS.values(), "dominated by"],
        [
            [
                row["ranks"],
                row["nodes"],
                short_time(row["step_seconds"]),
                f"{row['step_seconds'] / recorded:.2f}x",
                *(short_time(row[f"{part}_seconds"]) for part in PARTS),
                row["dominated_by"],
            ]
            for row in rows
        ],
        right=["ranks", "nodes", "step", "vs recorded", *PARTS.values()],
    )
    return 0


def row_of(predictor: Predictor, ranks: int, per_node: int, cores: int) -> dict[str, Any]:
    if ranks % per_node:
        raise ValueError(f"--ranks {ranks} do not fill nodes of {per_node}; name --per-node")
    job, nodes = predictor.job, ranks // per_node
    slowdown = _share(per_node, cores) / _share(predictor.recorded, cores)
    alone = statistics.mean(
        _replay.step_seconds(job.only(rank), _nothing, slowdown) for rank in job.timelines
    )
    without = _replay.step_seconds(job, _nothing, slowdown)
    full = _replay.step_seconds(job, predictor.duration(nodes, per_node), slowdown)
    fast_wire = _replay.step_seconds(job, predictor.duration(nodes, per_node, beta=0.0), slowdown)
    parts = {
        "compute": alone,
        "skew": max(without - alone, 0.0),
        "latency": max(fast_wire - without, 0.0),
        "transfer": max(full - fast_wire, 0.0),
    }
    row: dict[str, Any] = {"ranks": ranks, "nodes": nodes, "step_seconds": full}
    row |= {f"{name}_seconds": value for name, value in parts.items()}
    row["dominated_by"] = PARTS[max(parts, key=lambda name: parts[name])]
    return row


def _share(ranks: int, cores: int) -> float:
    """How many ranks a core serves, in turns."""
    return max(1.0, ranks / cores) if cores else 1.0


def _nothing(_: Call) -> float:
    return 0.0
