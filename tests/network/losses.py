# SPDX-License-Identifier: BSD-3-Clause
"""Nodes and links that are lost in the middle of calls. Each function returns what the table shows."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from harness import Outcome

from tests.network import bodies
from tests.network.stage import KILLED, SHOWN, SILENT, Stage, right, told

LARGE = 4_000_000  # elements, 16 MB: several messages of every protocol
PLANS = (
    ("all_gather", 8),
    ("all_gather", LARGE // 4),
    ("reduce_scatter", LARGE // 4),
    ("reduce", LARGE),
    ("broadcast", LARGE),
)


def node_lost(stage: Stage, node: int, *, cut: bool, elements: int = LARGE, starting: bool = False,
              receiving: bool = False) -> SHOWN:  # fmt: skip
    """Its ranks are killed. `cut`: its link goes down before, so that no connection says goodbye. `receiving`: all
    other ranks send to its first one."""
    outcomes, struck, lost = _lose(
        stage, node, cut=cut, elements=elements, starting=starting, receiving=receiving
    )
    return told(outcomes, struck, KILLED, lost=lost)


def lost_in_each_plan(stage: Stage) -> SHOWN:
    """A node lost in the operations that go by stages (collectives/hierarchical/plan.h), all_reduce and barrier apart,
    which have cells of their own. The slowest counts."""
    found = []
    for operation, elements in PLANS:
        outcomes, struck, lost = _lose(stage, -1, cut=False, elements=elements, operation=operation)
        text, message = told(outcomes, struck, KILLED, lost=lost)
        slowest = max(outcome.value["at"] - struck for outcome in outcomes if outcome.rank not in lost)
        found.append((slowest, text, message))
    _, text, message = max(found)
    return text, message


def _lose(stage: Stage, node: int, *, cut: bool, elements: int, starting: bool = False, receiving: bool = False,
          operation: str = "") -> tuple[list[Outcome], float, range]:  # fmt: skip
    """What the ranks say, when the node was struck, and its ranks. `operation`: all_reduce unless given."""
    victim, lost = stage.nodes[node], stage.ranks_of(node % len(stage.nodes))
    struck = 0.0
    arguments: dict[str, object] = {"elements": elements}
    with stage.job(group=not starting) as cluster, tempfile.TemporaryDirectory() as folder:

        def strike() -> None:
            nonlocal struck
            end = time.monotonic() + 20
            while starting and len(list(Path(folder).iterdir())) < stage.size and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(0.05 if starting else 0.7)
            if cut:
                victim.cut_off()
            struck = time.monotonic()
            for rank in lost:
                cluster.kill(rank)

        if starting:
            body, arguments["folder"] = bodies.start_until_error, folder
        else:
            body = bodies.until_error
            if receiving:
                body, arguments["to"] = bodies.send_until_error, lost[0]
            if operation:
                body, arguments["operation"] = bodies.call_until_error, operation
            right(cluster.run(bodies.meet, deadline=60))
        outcomes = cluster.run(body, deadline=30, before_wait=strike, **arguments)
    return outcomes, struck, lost


def link_cut(stage: Stage, elements: int = LARGE) -> SHOWN:
    cut_at = 0.0

    def cut() -> None:
        nonlocal cut_at
        time.sleep(0.7)
        stage.nodes[-1].cut_off()
        cut_at = time.monotonic()

    with stage.job() as cluster:
        right(cluster.run(bodies.meet, deadline=60))
        outcomes = cluster.run(bodies.until_error, deadline=35, before_wait=cut, elements=elements)
    return told(outcomes, cut_at, SILENT)


def link_comes_back(stage: Stage, elements: int = LARGE) -> SHOWN:
    def away() -> None:
        time.sleep(0.7)
        stage.nodes[-1].cut_off()
        time.sleep(2)
        stage.nodes[-1].mend()

    thread = threading.Thread(target=away)
    with stage.job() as cluster:
        right(cluster.run(bodies.meet, deadline=60))
        arguments = {"elements": elements, "seconds": 6}
        outcomes = cluster.run(bodies.reduce_for, deadline=60, before_wait=thread.start, **arguments)
        thread.join()
    right(outcomes)
    return "right", f"the longest call took {max(outcome.value for outcome in outcomes):.1f} s"
