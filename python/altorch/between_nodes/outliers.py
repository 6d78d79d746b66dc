# SPDX-License-Identifier: BSD-3-Clause
"""Which nodes and links are slow beside the others of the same run.

A link is slow in one direction if it has less than a share of what is usual. Usual is the median over nodes of the
median of each node's links, of two the better one: so one slow node of three, to which most links belong, does not set
it. A node is slow if more than two thirds of its links in one direction are; what remains are slow links.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from altorch.between_nodes.links import Links, values
from altorch.between_nodes.schedule import Pair

LATENCY_NOISE = 20.0  # microseconds more than usual are no finding
MOST = 2 / 3


@dataclass(frozen=True)
class Metric:
    key: str
    name: str
    unit: str
    share: float  # of what is usual; below it a link is slow
    less_is_better: bool = False

    def shares(self, found: Mapping[Pair, float]) -> dict[Pair, float]:
        """Of what is usual, of each link; more is better, 1 is usual."""
        speeds = {
            pair: 1 / max(value, 1e-9) if self.less_is_better else value for pair, value in found.items()
        }
        normal = usual(speeds)
        return {pair: speed / normal for pair, speed in speeds.items()} if normal else {}

    def slow(self, found: Mapping[Pair, float]) -> dict[Pair, float]:
        slow = {pair: share for pair, share in self.shares(found).items() if share < self.share}
        if self.less_is_better:
            slow = {pair: share for pair, share in slow.items() if found[pair] * (1 - share) > LATENCY_NOISE}
        return slow


BANDWIDTH = Metric("GBps", "bandwidth", "GB/s", 0.7)
METRICS = (
    BANDWIDTH,
    # Not the median: whether a rank sleeps or spins when a message comes is chance.
    Metric("p10_latency_us", "latency (10th percentile)", "us", 0.5, less_is_better=True),
    Metric("messages_per_second", "message rate", "messages/s", 0.5),
)


@dataclass
class Finding:
    """A node (one number) or a link (two, from and to) that is slow in one metric."""

    metric: Metric
    nodes: tuple[int, ...]
    directions: list[str] = field(default_factory=list)  # of a node: "sending", "receiving"
    both: bool = False  # of a link: the other direction, too
    pairs: list[Pair] = field(default_factory=list)  # the slow links behind it
    value: float = 0.0  # median of these links
    share: float = 0.0  # of what is usual, median of these links


def usual(speeds: Mapping[Pair, float]) -> float:
    nodes = {node for pair in speeds for node in pair}
    of_nodes = [statistics.median_high(speeds[pair] for pair in speeds if node in pair) for node in nodes]
    return statistics.median_high(of_nodes) if of_nodes else 0.0


def find(links: Links) -> list[Finding]:
    """Of pairs that were measured alone. All other figures may be those of a shared switch."""
    found = []
    for metric in METRICS:
        measured = values(links, metric.key, alone=True)
        slow = metric.slow(measured)
        for finding in [*_slow_nodes(metric, slow, measured), *_slow_links(metric, slow)]:
            finding.value = statistics.median(measured[pair] for pair in finding.pairs)
            finding.share = statistics.median(metric.shares(measured)[pair] for pair in finding.pairs)
            found.append(finding)
    return found


def worst_pairs(links: Links) -> list[Pair]:
    """Pairs that look slow in any metric while all were measured at once, the slowest first."""
    worst: dict[Pair, float] = {}
    for metric in METRICS:
        found = values(links, "GBps_together" if metric is BANDWIDTH else metric.key)
        for pair, share in metric.slow(found).items():
            key = (min(pair), max(pair))
            worst[key] = min(worst.get(key, 1.0), share / metric.share)
    return sorted(worst, key=lambda pair: worst[pair])


def pairs_of(findings: Iterable[Finding]) -> list[Pair]:
    return sorted({(min(pair), max(pair)) for finding in findings for pair in finding.pairs})


def _slow_nodes(metric: Metric, slow: dict[Pair, float], measured: Iterable[Pair]) -> list[Finding]:
    """Takes the links of a slow node out of `slow`. The node that most links accuse is the first."""
    found: list[Finding] = []
    remaining = set(measured)
    while True:
        nodes = {node for pair in remaining for node in pair}
        candidates = [(_accused(node, slow, remaining), node) for node in nodes]
        most, node = max(candidates, default=((0.0, 0, 0.0), -1))
        if not most[1]:
            return found
        finding = Finding(metric, (node,))
        for end, direction in enumerate(("sending", "receiving")):
            if _is_most(node, end, slow, remaining):
                finding.directions.append(direction)
                finding.pairs += [pair for pair in remaining if pair[end] == node and pair in slow]
        found.append(finding)
        remaining -= {pair for pair in remaining if node in pair}
        for pair in finding.pairs:
            del slow[pair]


def _accused(node: int, slow: Mapping[Pair, float], measured: set[Pair]) -> tuple[float, int, float]:
    """To compare nodes: directions that are slow, how many links, how slow; zeros where none is."""
    ends = [end for end in (0, 1) if _is_most(node, end, slow, measured)]
    shares = [slow[pair] for pair in measured if pair in slow and any(pair[end] == node for end in ends)]
    return (float(len(ends)), len(shares), -min(shares)) if shares else (0.0, 0, 0.0)


def _is_most(node: int, end: int, slow: Mapping[Pair, float], measured: set[Pair]) -> bool:
    links = [pair for pair in measured if pair[end] == node]
    return len(links) > 1 and sum(pair in slow for pair in links) > MOST * len(links)


def _slow_links(metric: Metric, slow: Mapping[Pair, float]) -> list[Finding]:
    found = []
    for pair in sorted(slow):
        both = pair[::-1] in slow
        if not both or pair[0] < pair[1]:
            found.append(Finding(metric, pair, both=both, pairs=[pair, pair[::-1]] if both else [pair]))
    return found
