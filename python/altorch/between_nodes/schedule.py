# SPDX-License-Identifier: BSD-3-Clause
"""The nodes of a job, and the order in which pairs of them are measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

Pair = tuple[int, int]  # numbers of nodes; where a direction counts, from the first to the second


class Node(NamedTuple):
    name: str
    ranks: tuple[int, ...]

    @property
    def leader(self) -> int:
        return self.ranks[0]


def of_ranks(where: Sequence[tuple[Hashable, str]]) -> list[Node]:
    """`where`: what identifies the node of each rank, and its name. Nodes of one name are numbered."""
    ranks: dict[Hashable, list[int]] = {}
    for rank, (identity, _) in enumerate(where):
        ranks.setdefault(identity, []).append(rank)
    names = [where[members[0]][1] for members in ranks.values()]
    repeated, seen = Counter(names), Counter[str]()
    nodes = []
    for name, members in zip(names, ranks.values(), strict=True):
        seen[name] += 1
        nodes.append(Node(f"{name}#{seen[name]}" if repeated[name] > 1 else name, tuple(members)))
    return nodes


def rounds(count: int) -> list[list[Pair]]:
    """A round-robin tournament: every pair once, in rounds of disjoint pairs. An odd node sits out a round."""
    circle = list(range(count + count % 2))
    found = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append(sorted((min(a, b), max(a, b)) for a, b in pairs if max(a, b) < count))
        circle.insert(1, circle.pop())
    return found


def pairs_alone(count: int, slowest_first: Iterable[Pair], most: int) -> list[Pair]:
    """Which pairs are measured alone: all, or where there are too many a first round and those that look slow."""
    schedule = rounds(count)
    every = [pair for pairs in schedule for pair in pairs]
    if len(every) <= most:
        return every
    suspected = [pair for pair in slowest_first if pair not in schedule[0]]
    return [*schedule[0], *suspected[:most]]
