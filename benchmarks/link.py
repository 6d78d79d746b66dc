# SPDX-License-Identifier: BSD-3-Clause
"""A network of known bandwidth between the nodes of a benchmark: network namespaces, with cables that tc limits.

The loopback interface is not shared: the messages of a rank cost the time of its own core only. On a real cluster the
ranks of a node share its link.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.python.virtual_nodes import virtual_nodes

# What must cross the link of a node in one direction at least, on two nodes with as many ranks
# each: the share of the bytes of a rank's larger buffer.
_CROSSES = {"all_reduce": 1.0, "broadcast": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "barrier": 0.0}


@dataclass(frozen=True)
class Node:
    """Where the ranks of a node run: put before a command, `prefix` runs it there."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def linked_nodes(count: int, gbit: float) -> Iterator[list[Node]]:
    """Nodes that may send and receive `gbit` Gbit/s each; 0: they share the loopback interface. Needs root."""
    if not gbit:
        yield [Node()] * count
        return
    with virtual_nodes(count) as found:
        for node in found:
            node.limit(f"{gbit:g}gbit")
        yield [
            Node(
                node.address,
                ("ip", "netns", "exec", node.name),
                {"GLOO_SOCKET_IFNAME": node.cable, "FI_TCP_IFACE": node.cable},
            )
            for node in found
        ]


def floor_us(operation: str, size: int, gbit: float) -> float | None:
    """The least time of a call of `size` bytes by the link alone, without latency. None: unknown."""
    share = _CROSSES.get(operation)
    return None if share is None else share * size * 8 / (gbit * 1e3)
