# SPDX-License-Identifier: BSD-3-Clause
"""What was found, as one JSON document; the tables are made of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from altorch.between_nodes import notes
from altorch.between_nodes.links import Links
from altorch.between_nodes.outliers import Finding
from altorch.between_nodes.schedule import Node


def make(
    run: Mapping[str, Any],
    nodes: Sequence[Node],
    about: Sequence[Mapping[str, Any]],
    links: Links,
    found: Sequence[Finding],
    tcp_failure: str = "",
) -> dict[str, Any]:
    """`run`: backend, launcher, times."""
    names = [node.name for node in nodes]
    rows = [_node(number, node, about[number], links) for number, node in enumerate(nodes)]
    return {
        **run,
        "passed": not found,
        "nodes": rows,
        "links": [{"from": names[a], "to": names[b], **_rounded(links[a, b])} for a, b in sorted(links)],
        "slow": [_slow(finding, names, links) for finding in found],
        "look_at": list(notes.LOOK_AT) if found else [],
        "notes": notes.of(names, about, rows, links, tcp_failure),
    }


def _node(number: int, node: Node, about: Mapping[str, Any], links: Links) -> dict[str, Any]:
    """With the medians of its links."""
    sends = [link for pair, link in links.items() if pair[0] == number]
    receives = [link for pair, link in links.items() if pair[1] == number]
    medians = {
        "latency_us": _median(sends, "latency_us"),
        "sends_GBps": _median(sends, "GBps"),
        "receives_GBps": _median(receives, "GBps"),
        "together_GBps": _median([*sends, *receives], "GBps_together"),
        "all_ranks_GBps": _median([*sends, *receives], "GBps_all_ranks"),
        "messages_per_second": _median(sends, "messages_per_second"),
    }
    return {"name": node.name, "ranks": list(node.ranks), **about, **_rounded(medians)}


def _median(links: Iterable[Mapping[str, float]], name: str) -> float | None:
    measured = [link[name] for link in links if name in link]
    return statistics.median(measured) if measured else None


def _rounded(row: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: value if value is None else float(f"{value:.4g}") for name, value in row.items()}


def _slow(finding: Finding, names: Sequence[str], links: Links) -> dict[str, Any]:
    metric = finding.metric
    where: dict[str, Any] = {"node": names[finding.nodes[0]], "directions": finding.directions}
    if len(finding.nodes) == 2:
        where = {
            "from": names[finding.nodes[0]],
            "to": names[finding.nodes[1]],
            "both_directions": finding.both,
        }
    normal = (
        finding.value * finding.share if metric.less_is_better else finding.value / max(finding.share, 1e-9)
    )
    return {
        **where,
        "metric": metric.name,
        "unit": metric.unit,
        **_rounded({"value": finding.value, "usual": normal, "share": finding.share}),
        **_rounded({"tcp_share": notes.tcp_share(finding.pairs, links)}),
    }
