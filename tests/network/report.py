# SPDX-License-Identifier: BSD-3-Clause
"""What is printed of each cell, and the table for docs/clusters.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.network.carriers import all_carriers
from tests.network.cells import CELLS
from tests.network.stage import RANKS
from tests.ranks.page import machine, write_between

BEGIN, END = "<!-- make test-network writes this table -->\n", "<!-- end of the table -->\n"


@dataclass(frozen=True)
class Result:
    cell: str
    carrier: str
    nodes: int
    status: str  # passed | failed | skipped
    shown: str  # in the table
    details: str
    seconds: float
    log: str = ""  # what ranks printed where the cell failed

    def __str__(self) -> str:
        head = f"{self.status:<7} {self.cell:<13} {self.nodes} nodes {self.carrier:<8} {self.seconds:5.1f} s"
        # The details of a failure begin with what the table shows.
        return f"{head}  {'; '.join(filter(None, (self.shown * (self.status == 'passed'), self.details)))}"


def machine_line() -> str:
    return f"{machine()}."


def write_markdown(path: Path, results: list[Result]) -> None:
    write_between(path, BEGIN, END, markdown(results))


def markdown(results: list[Result]) -> str:
    """A row for each cell and number of nodes, a column for each carrier that ran."""
    found = {(result.cell, result.nodes, result.carrier): result for result in results}
    ran = {result.carrier for result in results if result.status != "skipped"}
    carriers = [carrier for carrier in all_carriers().values() if carrier.name in ran]
    titles = " | ".join(carrier.title for carrier in carriers)
    lines = [
        f"{machine_line()} Ranks on two nodes: 2 + 1, on three: 2 + 1 + 1.",
        "",
        f"| what happens | nodes | expected | {titles} |",
        "|---|--:|---|" + "---|" * len(carriers),
    ]
    for cell in CELLS:
        for nodes in RANKS:
            row = [found.get((cell.name, nodes, carrier.name)) for carrier in carriers]
            if any(row):
                shown = " | ".join(_short(result) for result in row)
                lines.append(f"| {cell.what} | {nodes} | {cell.expected} | {shown} |")
    return "\n".join(lines) + "\n"


def _short(result: Result | None) -> str:
    if result is None or result.status == "skipped":
        return "-"
    return result.shown if result.status == "passed" else f"**{result.shown}**"
