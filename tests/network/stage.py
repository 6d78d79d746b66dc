# SPDX-License-Identifier: BSD-3-Clause
"""The job of a cell, and what its ranks have to show in the end."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from harness import PATIENCE, Cluster, Outcome
from virtual_nodes import Node

from tests.network.carriers import TELL, Carrier

RANKS = {2: (2, 1), 3: (2, 1, 1)}  # of each node
KILLED, SILENT = 5.0, 20.0  # seconds in which all other ranks must raise
SHOWN = tuple[str, str]  # what the table shows of a cell; details


class Failed(Exception):
    """The cell has not ended as expected. `shown`: in the table. `log`: what the ranks printed."""

    def __init__(self, text: str, shown: str = "failed", log: str = "") -> None:
        super().__init__(text)
        self.shown, self.log = shown, log


class Unsupported(Exception):
    """The cell cannot run here."""


@dataclass(frozen=True)
class Stage:
    carrier: Carrier
    nodes: tuple[Node, ...]

    @property
    def size(self) -> int:
        return sum(RANKS[len(self.nodes)])

    def ranks_of(self, node: int) -> range:
        counts = RANKS[len(self.nodes)]
        first = sum(counts[:node])
        return range(first, first + counts[node])

    @contextmanager
    def job(self, *, group: bool = True, last: Mapping[str, str] | None = None,
            env: Mapping[str, str] | None = None) -> Iterator[Cluster]:  # fmt: skip
        """Ranks on all nodes. `last`: the environment of the last node beside that of all."""
        prefixes = [list(node.prefix) for node in self.nodes]
        if last:
            prefixes[-1] += ["env", *(f"{name}={value}" for name, value in last.items())]
        shared = {**TELL, **self.carrier.env, **(env or {}), "MASTER_ADDR": self.nodes[0].address}
        counts = list(RANKS[len(self.nodes)])
        # fmt: off
        with Cluster(self.size, group=group, backend="al", launcher="plain", env=shared, node_prefixes=prefixes,
                     ranks_of_nodes=counts) as cluster:
            yield cluster
        # fmt: on


def right(outcomes: list[Outcome]) -> None:
    """Every rank has done its work."""
    bad = [outcome for outcome in outcomes if outcome.status != "ok"]
    if bad:
        kinds = ", ".join(sorted({_kind(outcome) for outcome in bad}))
        log = "\n\n".join(outcome.report() for outcome in outcomes)
        raise Failed("; ".join(map(_in_short, bad)), kinds, log)


def told(outcomes: list[Outcome], since: float, within: float, lost: Collection[int] = ()) -> tuple[str, str]:
    """Every rank but the lost ones has raised in time: after how many seconds, and the message of one."""
    left = [outcome for outcome in outcomes if outcome.rank not in lost]
    right(left)
    seconds = [outcome.value["at"] - since for outcome in left]
    messages = [_first_line(outcome.value.get("error", "")) for outcome in left]
    slowest = seconds.index(max(seconds))
    if not all(messages):
        raise Failed(f"rank {left[messages.index('')].rank} has raised nothing")
    text = f"error after {min(seconds):.1f} to {max(seconds):.1f} s"
    if len({f"{each:.1f}" for each in seconds}) == 1:
        text = f"error after {seconds[0]:.1f} s"
    if max(seconds) > within * PATIENCE:
        late = f"{text}, expected within {within:g} s; rank {left[slowest].rank}: {messages[slowest]}"
        raise Failed(late, text)
    return text, messages[slowest]


def _kind(outcome: Outcome) -> str:
    wrong = "wrong result" if outcome.error_type == "AssertionError" else "error"
    return {"late": "hang", "died": "process ended"}.get(outcome.status, wrong)


def _in_short(outcome: Outcome) -> str:
    case = f" in {outcome.case}" if outcome.case else ""
    said = outcome.message
    if outcome.status == "died":
        lines = [
            line for line in outcome.output.splitlines() if re.search(r"error|abort|fail|lost", line, re.I)
        ]
        said = next(iter(lines), "without a word")
    return f"rank {outcome.rank}: {_kind(outcome)}{case}: {_first_line(said)}"


def _first_line(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip().partition("\n")[0])[:600]
