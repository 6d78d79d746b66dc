"""What a drill prints: a line for each cell, a summary, JSON, and a table with a column for each route."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from altorch.cli._output import print_table
from tests.drill.runner import Result

NAMES = {
    "shm": "al: shared memory",
    "mpi": "al: MPI",
    "al-gloo": "al: over Gloo",
    "nodes": "al: two nodes, MPI",
    "nodes-gloo": "al: two nodes, Gloo",
    "gloo": "torch's Gloo",
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


def machine() -> str:
    """Its processor, and how many cores of it; no name."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{os.cpu_count()} cores ({models[0] if models else platform.machine()})"


def markdown(results: Sequence[Result], seconds: float) -> str:
    """A row for each situation, a column for each route that was tried."""
    routes = list(dict.fromkeys(result.cell.route.name for result in results if not result.seen.skipped))
    rows: dict[str, dict[str, Result]] = {}
    for result in results:
        rows.setdefault(result.cell.situation, {})[result.cell.route.name] = result
    lines = [
        f"{machine()}, {versions()}; {summary(results, seconds)}.",
        "",
        "| what happens | expected | " + " | ".join(NAMES.get(route, route) for route in routes) + " |",
        "|---|---|" + "---|" * len(routes),
    ]
    for situation, by_route in rows.items():
        expected = str(next(iter(by_route.values())).cell.expected)
        cells = [_short(by_route.get(route)) for route in routes]
        if any(cells):
            lines.append(f"| {situation} | {expected} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _short(result: Result | None) -> str:
    if result is None or result.seen.skipped:
        return ""
    text = str(result.seen)
    return f"**{text}**" if result.objections else text
