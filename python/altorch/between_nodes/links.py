# SPDX-License-Identifier: BSD-3-Clause
"""What all ranks measured, by direction: from one node to another.

A link has GBps (alone), GBps_together, GBps_all_ranks, p10_latency_us, latency_us (the median), worst_latency_us,
messages_per_second, tcp_GBps and tcp_latency_us; what was not measured is left out. Both directions of a pair have one
latency.
"""

from __future__ import annotations

from collections.abc import Iterable

from altorch.bench.rows import Row
from altorch.between_nodes.schedule import Pair

Links = dict[Pair, Row]
LATENCIES = ("p10_latency_us", "latency_us", "worst_latency_us", "tcp_latency_us")


def add_together(links: Links, rows: Iterable[Row]) -> None:
    for pair, row in _of_both_directions(rows):
        if "GBps" in row:
            row["GBps_together"] = row.pop("GBps")
        links.setdefault(pair, {}).update(row)


def add_alone(links: Links, rows: Iterable[Row]) -> None:
    """Of what was measured more than once, the better figure holds: a moment's disturbance is no finding."""
    for pair, row in _of_both_directions(rows):
        link = links.setdefault(pair, {})
        for name, value in row.items():
            better = min if name in LATENCIES else max
            link[name] = better(value, link.get(name, value))


def add_all_ranks(links: Links, rows: Iterable[Row]) -> None:
    for row in rows:
        link = links.setdefault((row["from"], row["to"]), {})
        link["GBps_all_ranks"] = link.get("GBps_all_ranks", 0.0) + row["GBps"]


def values(links: Links, name: str, alone: bool = False) -> dict[Pair, float]:
    """`alone`: only of pairs that were measured alone."""
    return {
        pair: link[name] for pair, link in links.items() if name in link and (not alone or "GBps" in link)
    }


def _of_both_directions(rows: Iterable[Row]) -> list[tuple[Pair, Row]]:
    found = []
    for row in rows:
        pair, figures = (row["from"], row["to"]), {k: v for k, v in row.items() if k not in ("from", "to")}
        found.append((pair, figures))
        back = {name: figures[name] for name in LATENCIES if name in figures}
        if back:
            found.append((pair[::-1], back))
    return found
