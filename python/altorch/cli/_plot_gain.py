# SPDX-License-Identifier: BSD-3-Clause
"""How many times as fast altorch is as what a program would use otherwise, against size: a line for each of these."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from altorch.cli._output import human_bytes

Points = dict[int, tuple[float, float]]  # bytes -> time in us, bandwidth in GB/s (0: not given)

# Lines beside the contenders: what the links give, and how long a copy of as many bytes takes.
LINKS, COPY = "host links", "memcpy"
# No alternative to altorch: these floors, and a backend that moves nothing.
_NO_CHOICE = {LINKS, COPY, "fake"}
_PLAIN = {"gloo": "Gloo", "nccl": "NCCL", "mpi": "MPICH from C", "openmpi": "Open MPI from C"}
_MODES = {"": "", "graph": " in CUDA graphs", "async": ", asynchronous"}
# Of the colours of Okabe and Ito, which colour-blind readers can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#6e7681"  # reads on white and on black
_LABEL_APART = 0.085  # of the axis' height
_FASTEST_SHOWN = 1000


def pyplot_without_display() -> Any:
    """matplotlib's pyplot for files alone. Raises ValueError where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("matplotlib is not installed; pip install 'altorch[plot]'") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot

    return pyplot


def plain(contender: str) -> str:
    """`openmpi-test` is Open MPI, which a C program called: of several ways to call a library the fastest counts."""
    stem = contender.partition("-")[0] if "mpi" in contender else contender
    if contender.startswith("symm"):
        return "symmetric memory"
    return _PLAIN.get(stem, contender)


def gains(lines: Mapping[str, Points]) -> dict[str, dict[int, float]]:
    """By name and size: the other's time over altorch's. Empty where there is nothing to compare."""
    others: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    own: dict[str, dict[int, float]] = defaultdict(dict)
    for name, points in lines.items():
        contender, _, mode = name.partition(" ")
        if contender in _NO_CHOICE or name in _NO_CHOICE or contender.startswith("al:"):
            continue
        for size, (took, _) in points.items():
            if took <= 0:
                continue
            if contender == "al":
                own[mode][size] = took
            else:
                best = others[plain(contender), mode]
                best[size] = min(took, best.get(size, math.inf))
    found = {}
    for (name, mode), times in others.items():
        ratios = {size: took / own[mode][size] for size, took in sorted(times.items()) if size in own[mode]}
        if ratios:
            found[name + _MODES.get(mode, f", {mode}")] = ratios
    return found


def show_sizes(axis: Any) -> None:
    """Sizes from left to right, by their logarithm."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(LogLocator(base=16))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: human_bytes(int(size))))


def draw(path: Path, title: str, found: Mapping[str, Mapping[int, float]]) -> None:
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    figure, axis = pyplot.subplots(figsize=(7.5, 4.2))
    figure.patch.set_alpha(0)
    axis.patch.set_alpha(0)
    ratios = [ratio for each in found.values() for ratio in each.values()]
    low = min(0.8, *ratios) / 1.15
    high = min(_FASTEST_SHOWN, max(1.25, *ratios)) * 1.15
    axis.set_yscale("log", base=2)
    axis.set_ylim(low, high)
    axis.axhline(1, color=GREY, linewidth=1.2)
    axis.axhspan(1, high, color="#009E73", alpha=0.06, linewidth=0)
    ends = {}
    for color, (name, each) in zip(itertools.cycle(COLORS), sorted(found.items()), strict=False):
        sizes = list(each)
        axis.plot(sizes, [each[size] for size in sizes], color=color, linewidth=2, marker="o", markersize=3.5)
        ends[name] = (sizes[-1], each[sizes[-1]], color)
    for name, (size, at, color) in _apart(ends, low, high).items():
        axis.annotate(
            name,
            (size, at),
            xytext=(8, 0),
            textcoords="offset points",
            color=color,
            va="center",
            fontsize=9.5,
        )
    for place, word, align in ((0.98, "faster", "top"), (0.02, "slower", "bottom")):
        axis.text(
            0.99,
            place,
            f"altorch is {word}",
            transform=axis.transAxes,
            color=GREY,
            ha="right",
            va=align,
            fontsize=9,
        )
    axis.yaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}x"))
    show_sizes(axis)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("size of a rank's buffer", color=GREY)
    axis.set_ylabel("their time / altorch's", color=GREY)
    axis.tick_params(colors=GREY)
    axis.grid(True, which="major", alpha=0.25)
    for side, spine in axis.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)
    figure.suptitle(title, color=GREY, fontsize=11, x=0.02, ha="left")
    figure.savefig(path, bbox_inches="tight")
    pyplot.close(figure)


def _ticks(low: float, high: float) -> list[float]:
    """Powers of two, and 1.5 times these where there are few."""
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    steps = (1.0, 1.5) if high / low < 16 else (1.0,)
    return [at for power in powers for step in steps if low <= (at := 2.0**power * step) <= high]


def _apart(ends: Mapping[str, tuple[int, float, Any]], low: float, high: float) -> dict[str, Any]:
    """The labels' places: from below, each at its line's end or as far above as the one before takes."""
    step = (high / low) ** _LABEL_APART
    placed, free = {}, low
    for name, (size, ratio, color) in sorted(ends.items(), key=lambda item: item[1][1]):
        at = max(ratio, free)
        placed[name] = (size, at, color)
        free = at * step
    return placed
