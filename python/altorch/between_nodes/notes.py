# SPDX-License-Identifier: BSD-3-Clause
"""What to look at: of a slow node or link, and what no figure of one link shows."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from altorch.between_nodes.links import Links, values
from altorch.between_nodes.outliers import BANDWIDTH
from altorch.between_nodes.schedule import Pair

SHARED = 0.7  # of the bandwidth alone
CARD_IS_LARGER = 1.3  # times the bandwidth of one rank
BELOW_TCP = 0.7
BELOW_NOMINAL = 0.5
ONE_MACHINE = (
    "Nodes are parts of one machine (ALTORCH_NODE): figures between them are of its memory, not of a network."
)


LOOK_AT = (
    "Where plain TCP is slow, too (see its share): look at load (top), errors and drops (ethtool -S, ip -s link, "
    "perfquery), link rate, cable and route.",
    "Where it is not: `altorch info` on the node shows which network MPI takes, and whether a faster port is idle.",
)


def tcp_share(pairs: Sequence[Pair], links: Links) -> float | None:
    """Of the usual bandwidth of a plain socket, on slow links: tells a slow network from a slow choice of it."""
    tcp = BANDWIDTH.shares(values(links, "tcp_GBps"))
    shares = [tcp[pair] for pair in pairs if pair in tcp]
    return statistics.median(shares) if shares else None


def of(
    names: Sequence[str],
    about: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    links: Links,
    tcp_failure: str,
) -> list[str]:
    found = [
        _networks_differ(names, about),
        _busy(nodes),
        f"Plain TCP was not measured everywhere: {tcp_failure}." if tcp_failure else "",
        *(_of_network(nodes, links) if _apart(about) else [ONE_MACHINE]),
    ]
    return [text for text in found if text]


def _apart(about: Sequence[Mapping[str, Any]]) -> bool:
    return len({row["machine"] for row in about}) == len(about)


def _of_network(nodes: Sequence[Mapping[str, Any]], links: Links) -> list[str]:
    return [_shared(links), _one_rank(nodes, links), _below_tcp(links), _below_nominal(nodes)]


def _networks_differ(names: Sequence[str], about: Sequence[Mapping[str, Any]]) -> str:
    networks = Counter(row["network"] for row in about)
    usual, _ = networks.most_common(1)[0]
    others = [
        f"{name} has {row['network']}"
        for name, row in zip(names, about, strict=True)
        if row["network"] != usual
    ]
    return f"The network differs: {'; '.join(others[:8])}; all others have {usual}." if others else ""


def _busy(nodes: Sequence[Mapping[str, Any]]) -> str:
    busy = [
        f"{row['name']} ({row['load']} on {row['cores']} cores)"
        for row in nodes
        if row["load"] > row["cores"]
    ]
    return f"Loaded before the check began: {', '.join(busy[:8])}." if busy else ""


def _shared(links: Links) -> str:
    shares = [
        link["GBps_together"] / link["GBps"]
        for link in links.values()
        if {"GBps", "GBps_together"} <= link.keys()
    ]
    share = statistics.median(shares) if shares else 1.0
    if (
        share >= SHARED or len({node for pair in links for node in pair}) < 4
    ):  # fewer nodes have one pair at once
        return ""
    return f"All pairs at once have {share:.2f} of their bandwidth alone: a switch or an uplink is shared."


def _one_rank(nodes: Sequence[Mapping[str, Any]], links: Links) -> str:
    gains = [
        link["GBps_all_ranks"] / link["GBps_together"]
        for link in links.values()
        if {"GBps_all_ranks", "GBps_together"} <= link.keys()
    ]
    gain = statistics.median(gains) if gains else 1.0
    if gain < CARD_IS_LARGER:
        return ""
    ranks = min(len(row["ranks"]) for row in nodes)
    return f"One rank does not fill the card: {ranks} ranks of a node have {gain:.1f} times its bandwidth together."


def _below_tcp(links: Links) -> str:
    shares = [
        link["GBps"] / link["tcp_GBps"] for link in links.values() if {"GBps", "tcp_GBps"} <= link.keys()
    ]
    share = statistics.median(shares) if shares else 1.0
    if share >= BELOW_TCP:
        return ""
    return f"Messages have {share:.2f} of the bandwidth of a plain TCP socket: see `altorch info`, docs/clusters.md."


def _below_nominal(nodes: Sequence[Mapping[str, Any]]) -> str:
    slow = []
    for row in nodes:
        best = max(row["sends_GBps"] or 0, row["receives_GBps"] or 0, row["all_ranks_GBps"] or 0)
        if row["nominal_GBps"] and best < BELOW_NOMINAL * row["nominal_GBps"]:
            slow.append(f"{row['name']} ({best:.3g} of {row['nominal_GBps']:.3g} GB/s)")
    return (
        f"Less than half of the nominal rate of the ports that are used: {', '.join(slow[:8])}."
        if slow
        else ""
    )
