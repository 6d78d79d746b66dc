# SPDX-License-Identifier: BSD-3-Clause
"""The sections of the page as HTML. Each takes the rows of document.py, and is empty where there is nothing to say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from altorch.cli._output import human_bytes
from altorch.report.document import MOST_ROWS
from altorch.report.sentences import incomplete_text, is_hung, seconds


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """The first `left` columns are texts; the others are aligned to the right. A cell that is a tuple is HTML."""
    classes = ["" if place < left else " class='right'" for place in range(len(columns))]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(columns, classes, strict=True))
    body = [
        "".join(
            f"<td{kind}>{cell[0] if isinstance(cell, tuple) else escape('-' if cell is None else str(cell))}</td>"
            for cell, kind in zip(row, classes, strict=True)
        )
        for row in rows
    ]
    lines = "".join(f"<tr>{line}</tr>" for line in body)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"


def incomplete(rows: dict[str, Any]) -> str:
    # The trace says more of the same calls.
    texts = rows["findings"] or [incomplete_text(row) for row in rows["incomplete"][:MOST_ROWS]]
    lines = "".join(f"<li>{escape(text)}</li>" for text in texts)
    kind = " class='alarm'" if rows["findings"] or any(map(is_hung, rows["incomplete"])) else ""
    return f"<ul{kind}>{lines}</ul>" if lines else ""


def waits(rows: dict[str, Any], figure: dict[str, Any] | None) -> str:
    if not figure:
        return ""
    hint = (
        "A rank waits from its own arrival in a call until the last rank arrives, or until the call is done on it. "
        "A rank that calls asynchronously may compute meanwhile."
    )
    pairs = _table(
        ["rank", "waited for", "in all", "calls"],
        [
            [f"rank {row['rank']}", f"rank {row['for']}", seconds(row["seconds"]), row["calls"]]
            for row in rows["pairs"][:MOST_ROWS]
        ],
        left=2,
    )
    height = figure["layout"]["height"]
    return (
        f"<p class='note'>{hint}</p><div class='beside'><div id='figure-0'></div>"
        f"<div class='pairs' style='--figure: {height}px'>{pairs}</div></div>"
    )


def longest_title(rows: dict[str, Any]) -> str:
    shown, total = len(rows["waits"]), rows["calls_with_waits"]
    return "The longest waits" + (f" ({shown} of {total:,} calls)" if shown < total else "")


def longest(rows: dict[str, Any]) -> str:
    if not rows["waits"]:
        return ""
    return _table(
        ["call", "straggler", "ranks waited", "each", "size", "at", "group"],
        [
            [
                f"{row['operation']} #{row['sequence']}",
                f"rank {row['last_rank']}",
                seconds(row["waited_s"]),
                ", ".join(f"{wait['rank']}: {seconds(wait['seconds'])}" for wait in row["waits"][:4])
                + (", ..." if len(row["waits"]) > 4 else ""),
                human_bytes(row["bytes"]),
                f"{row['at_s']:.3f} s",
                row["group"],
            ]
            for row in rows["waits"]
        ],
        left=2,
    )


def timeline(rows: dict[str, Any]) -> str:
    if not rows["timeline"]["shown"]:
        return ""
    return (
        "<p class='note'>A row for each rank. The light part of a bar is the wait for a later rank. Drag to zoom, "
        "double-click to see all.</p><div id='timeline'></div>"
    )


def operations(rows: dict[str, Any], hues: dict[str, str]) -> str:
    if not rows["operations"]:
        return ""
    return _table(
        ["operation, of all ranks", "calls", "bytes", "time in all", "median", "longest", "not completed"],
        [
            [
                (_swatch(hues[row["operation"]]) + escape(row["operation"]),),
                f"{row['count']:,}",
                human_bytes(row["bytes"]),
                *(seconds(row[key]) for key in ("total_s", "median_s", "longest_s")),
                row["incomplete"] or "",
            ]
            for row in rows["operations"]
        ],
    )  # fmt: skip


def _swatch(hue: str) -> str:
    return f"<span class='swatch' style='background:{hue}'></span>"


def routes(rows: dict[str, Any]) -> str:
    if not rows["routes"]:
        return ""
    return _table(
        ["operation", "route", "group", "ranks", "calls of all ranks", "bytes", "time in all"],
        [
            [
                row["operation"],
                row["route"],
                row["group"] or "the whole world",
                row["ranks"],
                f"{row['count']:,}",
                human_bytes(row["bytes"]),
                seconds(row["seconds"]),
            ]
            for row in rows["routes"][:MOST_ROWS]
        ],
        left=3,
    )


def bandwidth(drawn: list[dict[str, Any]], first: int) -> str:
    blocks = [
        f"<div><h3>{escape(figure['title'])}</h3><div id='figure-{place}'></div></div>"
        for place, figure in enumerate(drawn, first)
    ]
    return f"<div class='beside'>{''.join(blocks)}</div>" if blocks else ""


def machines(rows: dict[str, Any]) -> str:
    ranks = [[row["rank"], row["host"], row["pid"], f"{row['calls']:,}"] for row in rows["ranks"]]
    keys = list(dict.fromkeys(key for row in rows["machines"] for key in row))
    names = [key.replace("_gib", " [GiB]") for key in keys]
    parts = [
        _table(["rank", "host", "process", "calls in the files"], ranks, left=2) if ranks else "",
        "<h3>Machines of the benchmark rows</h3>" if keys else "",
        _table(names, [[row.get(key) for key in keys] for row in rows["machines"]], left=len(keys))
        if keys
        else "",
    ]
    return "".join(parts)


def files(rows: dict[str, Any]) -> str:
    if not rows["files"]:
        return ""
    return _table(
        ["file", "what it is", "rank", "entries"],
        [[row["file"], row["kind"], row["rank"], row["count"]] for row in rows["files"]],
        left=2,
    )
