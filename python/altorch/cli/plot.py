# SPDX-License-Identifier: BSD-3-Clause
"""`altorch plot results.jsonl --out plots`: how many times as fast altorch is as the others, against size.

With --details, and where there is nothing to compare: latency and bus bandwidth, a line per contender. What is measured
at one size only (overlap, a training step) becomes bars.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from altorch.bench import rows
from altorch.bench.rows import Row
from altorch.cli import _plot_gain
from altorch.cli._output import print_json
from altorch.cli._plot_gain import COPY, LINKS, Points

SUMMARY = (
    "Draws benchmark rows (JSON lines): how much faster altorch is than the others; latency and bandwidth."
)

_TIMES = ("device_us", "median_us")  # the first that a row has
_NAMES = {"operation", "dtype", "ranks", "contender"}  # what a line's name is made of
# Benchmarks without a line: the key of the figure, what it is, and the keys that tell a contender's
# bars apart.
_BARS = {
    "cuda_overlap": ("hidden_percent", "communication hidden [%]", ("contender", "dtype")),
    "cuda_training": ("step_ms", "time a step [ms]", ("wrap", "contender")),
}
_FLOORS = {LINKS: "grey", COPY: "black"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", nargs="+", type=Path, help="files of JSON lines, as benchmarks write them")
    parser.add_argument(
        "--out", type=Path, default=Path("plots"), help="folder for the plots (default: %(default)s)"
    )
    parser.add_argument("--operation", help="only this one")
    parser.add_argument(
        "--details", action="store_true", help="draw latency and bandwidth of every contender and floor"
    )
    parser.add_argument("--format", choices=["svg", "png", "pdf"], default="svg", help="default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    try:
        _plot_gain.pyplot_without_display()
        series, bars = collect(arguments.results), collect_bars(arguments.results)
    except (OSError, ValueError) as error:
        print(f"altorch plot: {error}", file=sys.stderr)
        return 2
    written = []

    def path_of(*words: object) -> Path:
        arguments.out.mkdir(parents=True, exist_ok=True)
        stem = "-".join(map(str, words)).replace(" ", "-").lower()
        written.append(str(arguments.out / f"{stem}.{arguments.format}"))
        return Path(written[-1])

    for (operation, dtype, ranks, where), lines in sorted(series.items()):
        if arguments.operation in (None, operation):
            path = path_of(operation, dtype, ranks, "ranks", where)
            title = f"{operation}, {dtype}, {ranks} ranks, {where}"
            if (gains := _plot_gain.gains(lines)) and not arguments.details:
                _plot_gain.draw(path, title, gains)
            else:
                _draw(path, title, lines)
    for (benchmark, ranks, where), heights in sorted(bars.items()):
        if not arguments.operation:
            path = path_of(benchmark, ranks, "ranks", where)
            _draw_bars(path, f"{benchmark}, {ranks} ranks, {where}", _BARS[benchmark][1], heights)
    if not written:
        print("altorch plot: no rows with an operation, a size and a time in these files", file=sys.stderr)
        return 2
    if arguments.json:
        print_json({"plots": written})
    else:
        print("\n".join(written))
    return 0


def collect(files: Iterable[Path]) -> dict[tuple[str, str, int, str], dict[str, Points]]:
    """Lines by operation, type, ranks and machine; a later row of the same name and size replaces an earlier one."""
    series: dict[tuple[str, str, int, str], dict[str, Points]] = defaultdict(lambda: defaultdict(dict))
    copies: dict[tuple[int, str], Points] = defaultdict(dict)
    for row, where in _rows(files):
        if row.get("operation") == COPY:
            copies[int(row["ranks"]), where][int(row["bytes"])] = (float(row["median_us"]), 0.0)
            continue
        took = next((float(row[key]) for key in _TIMES if key in row), None)
        if took is None or not row.get("bytes") or not row.keys() >= _NAMES:
            continue
        key = (str(row["operation"]), str(row["dtype"]), int(row["ranks"]), where)
        mode = row.get("mode", "sync")
        name = row["contender"] if mode == "sync" else f"{row['contender']} {mode}"
        series[key][name][int(row["bytes"])] = (took, float(row.get("busbw_GBps", 0.0)))
        if link := row.get("link_GBps"):
            series[key][LINKS][int(row["bytes"])] = (0.0, float(link))
    for (_, _, ranks, where), lines in series.items():
        sizes = {size for points in lines.values() for size in points}
        if floor := {size: point for size, point in copies[ranks, where].items() if size in sizes}:
            lines[COPY] = floor
    return series


def collect_bars(files: Iterable[Path]) -> dict[tuple[str, int, str], dict[str, float]]:
    """Heights of bars by benchmark, ranks and machine; a later row of the same name replaces an earlier one."""
    bars: dict[tuple[str, int, str], dict[str, float]] = defaultdict(dict)
    for row, where in _rows(files):
        benchmark = str(row.get("benchmark"))
        figure, _, names = _BARS.get(benchmark, ("", "", ()))
        if {figure, "ranks", *names} <= row.keys():
            label = " ".join(str(row[name]) for name in names) + _beside(row)
            bars[benchmark, int(row["ranks"]), where][label] = float(row[figure])
    return bars


def _beside(row: Row) -> str:
    """What communication was hidden behind: the matrix product, and the multiprocessors that it left alone."""
    product, left = row.get("product"), row.get("left_multiprocessors")
    return (f", {'x'.join(map(str, product))}" if product else "") + (f", {left} left" if left else "")


def _rows(files: Iterable[Path]) -> Iterator[tuple[Row, str]]:
    """Each row, and the machine that measured it."""
    for file in files:
        for row in rows.read(file):
            yield row, str(row.get("machine", "CPU"))


def _draw(path: Path, title: str, lines: dict[str, Points]) -> None:
    from matplotlib import pyplot

    has_bandwidth = any(bandwidth > 0 for points in lines.values() for _, bandwidth in points.values())
    figure, axes = pyplot.subplots(
        1, 2 if has_bandwidth else 1, figsize=(12 if has_bandwidth else 7, 4.5), squeeze=False
    )
    colors = itertools.count()
    for name, points in sorted(lines.items()):
        sizes = sorted(points)
        style: dict[str, Any] = {"marker": "o", "markersize": 3, "label": name}
        if name.startswith("al"):
            style["linewidth"] = 2.2
        if name in _FLOORS:
            style = {"linestyle": "--", "color": _FLOORS[name], "label": name}
        # A name has one colour, also where it is drawn on one side only.
        style.setdefault("color", f"C{next(colors)}")
        for column, axis in enumerate(axes[0]):
            drawn = [size for size in sizes if points[size][column] > 0]
            if drawn:
                axis.plot(drawn, [points[size][column] for size in drawn], **style)
    axes[0][0].set(ylabel="time a call [us]", yscale="log")
    if has_bandwidth:
        axes[0][1].set(ylabel="bus bandwidth [GB/s]", yscale="log")
    for axis in axes[0]:
        axis.set(xlabel="size")
        _plot_gain.show_sizes(axis)
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _draw_bars(path: Path, title: str, what: str, heights: dict[str, float]) -> None:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 1.2 + 0.4 * len(heights)))
    labels = list(heights)
    bars = axis.barh(labels, [heights[label] for label in labels])
    axis.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    axis.invert_yaxis()  # in the order of the rows
    axis.margins(x=0.12)
    axis.set(xlabel=what)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
