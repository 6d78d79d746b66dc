# SPDX-License-Identifier: BSD-3-Clause
"""The figures that page.js draws, as plotly's own dictionaries, made of the rows of document.py. Pure functions.

Colours of text and lines are the page's, so that figures are right on light and on dark. Hues are Okabe and Ito's,
which readers with any kind of colour vision tell apart.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from altorch.cli._output import human_bytes
from altorch.report.sentences import seconds

HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
OTHER = "#8C8C8C"
_MARKED = "#D55E00"
_MOST_BARS = 32
_LABEL_SHARE = 0.07  # of the height of a figure, for one label


def colours(operations: Iterable[str]) -> dict[str, str]:
    """Those that took longest get a hue of their own."""
    return {name: HUES[place] if place < len(HUES) else OTHER for place, name in enumerate(operations)}


def waited_for(rows: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """A bar for each rank: how long the other ranks waited for it. The longest bar is marked."""
    if not any(row["waited_for_s"] for row in rows):
        return None
    most = max(row["waited_for_s"] for row in rows)
    shown = sorted(
        sorted(rows, key=lambda row: -row["waited_for_s"])[:_MOST_BARS], key=lambda row: row["rank"]
    )
    values = [row["waited_for_s"] for row in shown]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [f"rank {row['rank']}" for row in shown],
        "x": values,
        "text": [seconds(value) for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [_MARKED if value == most else HUES[0] for value in values]},
        "hovertemplate": "%{y}: the other ranks waited %{text}<extra></extra>",
    }
    layout = {
        "height": 70 + 26 * len(shown),
        "margin": {"l": 70, "r": 70, "t": 10, "b": 40},
        "xaxis": {"title": {"text": "the other ranks waited for it [s]"}, "fixedrange": True},
        "yaxis": {"autorange": "reversed", "fixedrange": True, "showgrid": False},
    }
    return {"title": "", "data": [bars], "layout": layout}


def bandwidth(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A figure for each operation, type, number of ranks and machine: a line for each contender."""
    series: defaultdict[tuple[str, ...], defaultdict[str, dict[float, float]]]
    series = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        ranks = f"{row['ranks']:g} ranks" if row["ranks"] else ""
        key = (row["operation"], row["dtype"], ranks, row["machine"])
        series[key][row["contender"]][row["bytes"]] = row["busbw_GBps"]
    return [_lines(", ".join(filter(None, key)), lines) for key, lines in sorted(series.items())]


def _lines(title: str, lines: Mapping[str, dict[float, float]]) -> dict[str, Any]:
    data, ends = [], {}
    order = sorted(lines, key=lambda name: (not name.startswith("al"), name))
    for name, colour in colours(order).items():
        sizes = sorted(lines[name])
        values = [lines[name][size] for size in sizes]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": sizes,
                "y": values,
                "text": [human_bytes(size) for size in sizes],
                "line": {"color": colour, "width": 3 if name.startswith("al") else 1.5},
                "hovertemplate": f"{_plain(name)}<br>%{{text}}: %{{y:.3g}} GB/s<extra></extra>",
            }
        )
        ends[name] = (sizes[-1], values[-1], colour)
    sizes = sorted({size for points in lines.values() for size in points})
    ticks = sizes[:: max(1, math.ceil(len(sizes) / 6))]
    layout = {
        "height": 340,
        "margin": {"l": 60, "r": 40 + 7 * min(max(map(len, lines)), 18), "t": 10, "b": 50},
        "xaxis": {
            "type": "log",
            "title": {"text": "size"},
            "tickvals": ticks,
            "ticktext": [human_bytes(size) for size in ticks],
            "fixedrange": True,
        },
        "yaxis": {"type": "log", "title": {"text": "bus bandwidth [GB/s]"}, "fixedrange": True, "dtick": 1},
        "annotations": _labels(ends, lines),
    }
    return {"title": title, "data": data, "layout": layout}


def _labels(
    ends: Mapping[str, tuple[float, float, str]], lines: Mapping[str, Mapping[float, float]]
) -> list[dict[str, Any]]:
    """The name of each line at the height of its end, moved up where it would cover another."""
    logs = [math.log10(value) for points in lines.values() for value in points.values()]
    step = max(max(logs) - min(logs), 0.1) * _LABEL_SHARE
    found, at = [], -math.inf
    for name, (_, value, colour) in sorted(ends.items(), key=lambda each: each[1][1]):
        at = max(math.log10(value), at + step)
        label = {"x": 1.01, "xref": "paper", "xanchor": "left", "y": at, "yanchor": "middle"}
        text = f'<span style="color:{colour}">●</span> {_plain(name)}'
        found.append(label | {"text": text, "showarrow": False})
    return found


def _plain(text: str) -> str:
    """plotly takes a few tags in its texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
