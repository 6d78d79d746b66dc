# SPDX-License-Identifier: BSD-3-Clause
"""What a drill prints: a line for each cell, a summary, JSON, and tables with a column for each route."""

from __future__ import annotations

import json
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from altorch.cli._output import print_table
from tests.drill.needs import names_of_gpus
from tests.drill.runner import Result

NAMES = {
    "shm": "al: shared memory",
    "mpi": "al: MPI",
    "al-gloo": "al: over Gloo",
    "nodes": "al: two nodes, MPI",
    "nodes-gloo": "al: two nodes, Gloo",
    "gloo": "torch's Gloo",
    "cuda": "al: as it chooses",
    "peer": "al: `peer`",
    "al-nccl": "al: over NCCL",
    "host_staged": "al: `host_staged`",
    "host_relay": "al: `host_relay`",
    "hierarchical": "al: two nodes, NCCL",
    "hierarchical-relay": "al: two nodes, `host_relay`",
    "nccl": "torch's NCCL",
    "nccl2": "torch's `nccl2`",
}


def print_results(results: Sequence[Result]) -> None:
    print_table(
        "The drill",
        ["cell", "expected", "seen", "s", "message"],
        [
            (
                result.cell.name,
                str(result.cell.expected) if result.cell.route.is_al else "",
                ("NOT as expected: " if result.objections else "") + str(result.seen),
                f"{result.seen.seconds:.1f}",
                "; ".join(result.objections) or result.seen.message,
            )
            for result in results
        ],
        right=["s"],
    )


def summary(results: Sequence[Result], seconds: float) -> str:
    judged = [result for result in results if result.cell.route.is_al and not result.seen.skipped]
    skipped = sum(bool(result.seen.skipped) for result in results)
    wrong = sum(bool(result.objections) for result in results)
    text = f"{len(results)} cells in {seconds:.0f} s: {len(judged) - wrong} as expected, {wrong} not"
    recorded = len(results) - len(judged) - skipped
    return text + f", {recorded} of other backends recorded, {skipped} skipped"


def write_json(results: Iterable[Result], path: Path) -> None:
    documents = [
        {
            "cell": result.cell.name,
            "failure": result.cell.failure.name,
            "moment": result.cell.moment,
            "call": result.cell.call,
            "route": result.cell.route.name,
            "ranks": result.cell.ranks,
            "timeout": result.cell.timeout,
            "expected": str(result.cell.expected),
            "objections": result.objections,
            **result.seen.document(),
        }
        for result in results
    ]
    path.write_text(json.dumps(documents, indent=2) + "\n")


def versions() -> str:
    import torch

    import altorch

    torch_version, python_version = torch.__version__.partition("+")[0], platform.python_version()
    return f"altorch {altorch.__version__}, torch {torch_version}, Python {python_version}"


def machine(with_gpus: bool) -> str:
    """Its processor and how many cores of it, or its GPUs; no name."""
    if with_gpus:
        return ", ".join(f"{count} x {name}" for name, count in Counter(names_of_gpus()).items())
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{os.cpu_count()} cores ({models[0] if models else platform.machine()})"


def markdown(results: Sequence[Result], seconds: float) -> str:
    """A table for CPU tensors, one for CUDA tensors, and why what was skipped was."""
    tried = [result for result in results if not result.seen.skipped]
    by_device = [[each for each in tried if each.cell.route.device == device] for device in ("cpu", "cuda")]
    parts = [_table(part, seconds) for part in by_device if part]
    skipped: dict[str, list[str]] = {}
    for result in results:
        if result.seen.skipped:
            skipped.setdefault(result.seen.skipped, []).append(_name(result.cell.route.name))
    parts += [
        f"Skipped: {len(routes)} cells ({', '.join(dict.fromkeys(routes))}), for {why}.\n"
        for why, routes in skipped.items()
    ]
    return "\n".join(parts)


def _table(results: Sequence[Result], seconds: float) -> str:
    """A row for each situation, a column for each route."""
    routes = list(dict.fromkeys(result.cell.route.name for result in results))
    rows: dict[str, dict[str, Result]] = {}
    for result in results:
        rows.setdefault(result.cell.situation, {})[result.cell.route.name] = result
    with_gpus = results[0].cell.route.device == "cuda"
    lines = [
        f"{machine(with_gpus)}, {versions()}; {summary(results, seconds)}.",
        "",
        "| what happens | expected | " + " | ".join(_name(route) for route in routes) + " |",
        "|---|---|" + "---|" * len(routes),
    ]
    for situation, by_route in rows.items():
        expected = str(next(iter(by_route.values())).cell.expected)
        cells = [_short(by_route.get(route)) for route in routes]
        lines.append(f"| {situation} | {expected} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _name(route: str) -> str:
    return NAMES.get(route, route)


def _short(result: Result | None) -> str:
    if result is None:
        return ""
    text = str(result.seen)
    return f"**{text}**" if result.objections else text
