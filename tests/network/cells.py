# SPDX-License-Identifier: BSD-3-Clause
"""The cells: what befalls the network or a node, and what the other ranks must show."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.network.losses import link_comes_back, link_cut, lost_in_each_plan, node_lost
from tests.network.operations import lossy_link, operations, slow_link
from tests.network.stage import KILLED, SHOWN, SILENT, Stage
from tests.network.starts import absent, broken_fabric, other_altorch, other_mpi, other_netmod

RELAY = (sys.executable, str(Path(__file__).parent / "relay.py"), "--delay", "2", "--drop", "0.001")


@dataclass(frozen=True)
class Cell:
    name: str
    what: str
    expected: str
    run: Callable[[Stage], SHOWN]
    relay: tuple[str, ...] = ()
    nodes: tuple[int, ...] = (2, 3)


_SOON, _RIGHT, _SILENT = f"error within {KILLED:.0f} s", "right", f"error within {SILENT:.0f} s"
CELLS = (
    Cell("operations", "every operation", _RIGHT, operations),
    Cell("slow", "every operation, a link of 200 Mb/s", _RIGHT, slow_link),
    Cell("lossy", "every operation, 2 ms and a frame of 1000 lost in each direction", _RIGHT, lossy_link,
         relay=RELAY),
    Cell("killed", "all ranks of a node killed in a large all_reduce", _SOON, partial(node_lost, node=-1, cut=False)),
    Cell("killed-small", "the same in an all_reduce of 8 elements", _SOON,
         partial(node_lost, node=-1, cut=False, elements=8), nodes=(3,)),
    Cell("receiver", "a rank killed to which all others send messages of 8 elements", _SOON,
         partial(node_lost, node=-1, cut=False, elements=8, receiving=True), nodes=(3,)),
    Cell("receiver-large", "the same with messages of 400 kB", _SOON,
         partial(node_lost, node=-1, cut=False, elements=100_000, receiving=True), nodes=(3,)),
    Cell("lost", "a node lost, its link first, in a large all_reduce", _SOON, partial(node_lost, node=-1, cut=True)),
    Cell("lost-small", "the same in an all_reduce of 8 elements", _SOON,
         partial(node_lost, node=-1, cut=True, elements=8), nodes=(3,)),
    Cell("lost-barrier", "the same in a barrier", _SOON,
         partial(node_lost, node=-1, cut=True, elements=0), nodes=(3,)),
    Cell("lost-first", "the node of rank 0 and of the store lost in a large all_reduce", _SOON,
         partial(node_lost, node=0, cut=True)),
    Cell("lost-starting", "a node lost while the group is made, after all ranks have met", _SOON,
         partial(node_lost, node=-1, cut=True, starting=True)),
    Cell("lost-in-plans", "a node killed in all_gather, reduce_scatter, reduce, broadcast: the slowest",
         _SOON, lost_in_each_plan, nodes=(3,)),
    Cell("absent", "the ranks of a node never come; seconds after the timeout", _SOON, absent),
    Cell("cut", "a link cut for good in a large all_reduce", _SILENT, link_cut),
    Cell("cut-2s", "a link cut for 2 s in large all_reduces", _RIGHT, link_comes_back),
    Cell("other-netmod", "one node has another netmod", _SILENT, other_netmod, nodes=(2,)),
    Cell("other-mpi", "one node has another MPI", _SILENT, other_mpi, nodes=(2,)),
    Cell("other-altorch", "one node has another altorch", _SILENT, other_altorch, nodes=(2,)),
    Cell("broken", "the fabric cannot start", "right, or an error", broken_fabric, nodes=(2,)),
)  # fmt: skip
