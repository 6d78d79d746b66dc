# SPDX-License-Identifier: BSD-3-Clause
"""The document as tables. Of many nodes the slowest links are shown; --json has all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from altorch.cli._output import print_table, short_number

MOST_LINKS, WORST_LINKS, LARGEST_MATRIX = 20, 10, 16


def show(found: Mapping[str, Any]) -> None:
    title = (
        f"{found['backend']}: {found['ranks']} ranks on {len(found['nodes'])} nodes, started by {found['launcher']}, "
        f"measured in {found['seconds']:.1f} s"
    )
    _show_nodes(title, found["nodes"])
    _show_links(found["links"])
    if 4 <= len(found["nodes"]) <= LARGEST_MATRIX:
        _show_matrix([row["name"] for row in found["nodes"]], found["links"])
    if found["slow"]:
        print_table(
            "Slow beside the others",
            ["what", "metric", "has", "usual", "share", "TCP's share"],
            [_slow_row(row) for row in found["slow"]],
            right=["has", "usual", "share", "TCP's share"],
        )
    for sentence in [*found["look_at"], *found["notes"]]:
        print(sentence)
    print(
        "Slow nodes or links were found."
        if found["slow"]
        else "No node and no link is slow beside the others."
    )


def _show_nodes(title: str, nodes: Sequence[Mapping[str, Any]]) -> None:
    figures = {
        "latency": "latency_us",
        "sends": "sends_GBps",
        "receives": "receives_GBps",
        "pairs at once": "together_GBps",
        "all ranks": "all_ranks_GBps",
        "messages/s": "messages_per_second",
        "nominal": "nominal_GBps",
    }
    print_table(
        f"{title}\nMedians of each node's links: latency of a small message in us, bandwidth in GB/s",
        ["node", "ranks", "load", *figures, "network"],
        [
            [
                row["name"],
                len(row["ranks"]),
                row["load"],
                *(short_number(row[key]) for key in figures.values()),
                row["network"],
            ]
            for row in nodes
        ],
        right=["ranks", "load", *figures],
    )


def _show_links(links: Sequence[Mapping[str, Any]]) -> None:
    columns = {
        "latency p10": "p10_latency_us",
        "median": "latency_us",
        "worst": "worst_latency_us",
        "TCP latency": "tcp_latency_us",
        "alone": "GBps",
        "TCP": "tcp_GBps",
        "pairs at once": "GBps_together",
        "all ranks": "GBps_all_ranks",
        "messages/s": "messages_per_second",
    }
    shown, title = list(links), "Links: one rank of each node; beside it one plain TCP socket"
    if len(shown) > MOST_LINKS:
        alone = [link for link in links if "GBps" in link]
        shown = sorted(alone, key=lambda link: float(link["GBps"]))[:WORST_LINKS]
        title += f"; the {len(shown)} slowest of the {len(alone)} that were measured alone, of {len(links)}"
    print_table(
        title,
        ["from", "to", *columns],
        [
            [link["from"], link["to"], *(short_number(link.get(key)) for key in columns.values())]
            for link in shown
        ],
        right=list(columns),
    )


def _show_matrix(names: Sequence[str], links: Sequence[Mapping[str, Any]]) -> None:
    is_alone = all("GBps" in link for link in links)
    key, when = (
        ("GBps", "one pair at a time") if is_alone else ("GBps_together", "all pairs of a round at once")
    )
    rates = {(link["from"], link["to"]): link.get(key) for link in links}
    numbers = [str(number) for number in range(len(names))]
    rows = [
        [
            f"{number} {name}",
            *(short_number(rates.get((name, other))) if name != other else "" for other in names),
        ]
        for number, name in enumerate(names)
    ]
    print_table(
        f"Bandwidth in GB/s from the node of the row to that of the column, {when}",
        ["", *numbers],
        rows,
        numbers,
    )


def _slow_row(row: Mapping[str, Any]) -> list[Any]:
    what = f"node {row['node']}, {' and '.join(row['directions'])}" if "node" in row else ""
    if not what:
        what = f"link {row['from']} {'<->' if row['both_directions'] else '->'} {row['to']}"
    figures = [f"{short_number(row[name])} {row['unit']}" for name in ("value", "usual")]
    return [what, row["metric"], *figures, f"{row['share']:.2f}", short_number(row["tcp_share"])]
