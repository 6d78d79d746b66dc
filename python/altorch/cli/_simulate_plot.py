# SPDX-License-Identifier: BSD-3-Clause
"""Plots of `altorch simulate`: time against ranks, with the lower bound; parts of a step against ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from altorch.cli._output import human_bytes
from altorch.cli._plot_gain import COLORS, GREY, pyplot_without_display
from altorch.cli._simulate_record import PARTS
from altorch.cli._units import short_time


def draw(file: Path, rows: Sequence[dict[str, Any]], per_node: int) -> None:
    """One panel an operation, one line a size; dashed: the lower bound."""
    pyplot = pyplot_without_display()
    operations = list(dict.fromkeys(row["operation"] for row in rows))
    sizes = sorted({row["bytes"] for row in rows})
    width = min(3, len(operations))
    height = -(-len(operations) // width)
    figure, axes = pyplot.subplots(
        height, width, figsize=(4.4 * width, 3.6 * height), squeeze=False, sharey=True
    )
    for axis in axes.flat[len(operations) :]:
        axis.remove()
    for axis, operation in zip(axes.flat, operations, strict=False):
        for number, size in enumerate(sizes):
            own = [row for row in rows if row["operation"] == operation and row["bytes"] == size]
            ranks = [row["nodes"] * per_node for row in own]
            color = COLORS[number % len(COLORS)]
            axis.plot(
                ranks, [row["seconds"] for row in own], color=color, linewidth=2, marker="o", markersize=3.5
            )
            axis.plot(
                ranks, [row["lower_bound_seconds"] for row in own], color=color, linewidth=1, linestyle="--"
            )
            axis.annotate(
                human_bytes(size),
                (ranks[-1], own[-1]["seconds"]),
                xytext=(6, 0),
                textcoords="offset points",
                color=color,
                va="center",
                fontsize=9,
            )
        axis.set_title(operation, color=GREY)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        _style(axis, "ranks")
        axis.yaxis.set_major_formatter(lambda seconds, _: short_time(seconds) if seconds > 0 else "0")
        axis.margins(x=0.18)
    figure.text(0.01, 0.01, "dashed: lower bound of the network", color=GREY, fontsize=9)
    figure.patch.set_alpha(0)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(file)
    pyplot.close(figure)


def draw_steps(file: Path, rows: Sequence[dict[str, Any]], recorded: tuple[int, float]) -> None:
    """A stacked bar of the parts of a step for each number of ranks; a line at the recorded step."""
    pyplot = pyplot_without_display()
    figure, axis = pyplot.subplots(figsize=(7.5, 4))
    labels = [f"{row['ranks']:,}" for row in rows]
    bottom = [0.0] * len(rows)
    for color, (part, name) in zip(COLORS, PARTS.items(), strict=False):
        values = [row[f"{part}_seconds"] * 1e3 for row in rows]
        axis.bar(labels, values, bottom=bottom, color=color, label=name, width=0.6)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    ranks, seconds = recorded
    axis.axhline(seconds * 1e3, color=GREY, linewidth=1, linestyle="--", label=f"recorded with {ranks} ranks")
    _style(axis, "ranks")
    axis.set_ylabel("a step [ms]", color=GREY)
    axis.legend(frameon=False, labelcolor=GREY, loc="upper left", bbox_to_anchor=(1, 1))
    figure.patch.set_alpha(0)
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


def _style(axis: Any, name: str) -> None:
    axis.patch.set_alpha(0)
    axis.set_xlabel(name, color=GREY)
    axis.tick_params(colors=GREY, which="both")
    axis.grid(True, which="major", alpha=0.25)
    for spine in axis.spines.values():
        spine.set_visible(False)
