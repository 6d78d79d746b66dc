# SPDX-License-Identifier: BSD-3-Clause
"""Rows of operations as a table: a line per contender, beside altorch's median and the floor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from altorch.bench.rows import Row
from altorch.cli._output import human_bytes, print_table, short_number

FIGURES = {
    "p10": "p10_us", "median": "median_us", "max": "max_us", "host": "host_us", "device": "device_us",
    "bus [GB/s]": "busbw_GBps",
}  # fmt: skip


def case_of(row: Row) -> tuple[str, str, int]:
    return row["operation"], row["dtype"], row["bytes"]


def show(run: Row, measured: Iterable[Row], skipped: Mapping[str, str]) -> None:
    """`measured`: of one number of ranks. `skipped`: what was left out, and why."""
    for name, why in skipped.items():
        print(f"{name}: left out, {why}")
    measured = [row for row in measured if "median_us" in row]
    copied = {row["bytes"]: row["median_us"] for row in measured if row["operation"] == "memcpy"}
    timed = [row for row in measured if row["operation"] != "memcpy"]
    if not timed:
        print("nothing was measured")
        return
    ours = {(case_of(row), row["mode"]): row["median_us"] for row in timed if row["contender"] == "al"}
    columns = [name for name, key in FIGURES.items() if any(key in row for row in timed)]
    order = list(dict.fromkeys(map(case_of, timed)))
    lines = []
    for row in sorted(timed, key=lambda row: order.index(case_of(row))):
        mine = ours.get((case_of(row), row["mode"]))
        ratio = f"{row['median_us'] / mine:.2f}x" if mine and row["contender"] != "al" else ""
        names = [row["operation"], row["dtype"], human_bytes(row["bytes"]), row["contender"], row["mode"]]
        cells = [short_number(row.get(FIGURES[name])) for name in columns]
        lines.append([*names, *cells, ratio, short_number(copied.get(row["bytes"]))])
    heads = ["operation", "type", "size", "over", "mode", *columns, "of al", "memcpy"]
    versions = f"torch {run['torch']}, altorch {run['altorch']}, load {run['load_before']:.1f} before"
    title = (
        f"{timed[0]['ranks']} ranks, {run['machine']}, {versions}; microseconds a call, of the slowest rank"
    )
    print_table(title, heads, lines, right=heads[5:])
