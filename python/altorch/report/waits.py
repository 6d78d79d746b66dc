# SPDX-License-Identifier: BSD-3-Clause
"""Who waited for whom: the calls of all ranks, matched by group and number, and what each rank waited in them.

A rank waits in a call from its own arrival until the last arrival before the call ended on this rank. So the root of a
broadcast, which is done at once, waits for no rank. Pure functions; times are nanoseconds of one clock (clocks.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from altorch.report.records import Call, Group

# Each rank needs data of every other, so no rank is done before the last has arrived.
SYNCHRONISING = ("all_reduce", "allreduce", "all_gather", "_all_gather", "allgather", "barrier")


@dataclass
class Collective:
    """One call of all ranks of a group."""

    group: Group
    sequence: int
    calls: dict[int, Call] = field(default_factory=dict)  # by rank

    @property
    def operation(self) -> str:
        """Of most ranks."""
        return Counter(call.operation for call in self.calls.values()).most_common(1)[0][0]

    @property
    def bytes(self) -> int:
        return max(call.bytes for call in self.calls.values())

    def members(self) -> tuple[int, ...]:
        return self.group.ranks or tuple(sorted(self.calls))

    def last(self) -> int:
        """The rank that arrived last."""
        return max(self.calls, key=lambda rank: (self.calls[rank].begin_ns, rank))


@dataclass(frozen=True)
class Wait:
    rank: int
    waited_for: int
    seconds: float


def collectives_of(calls: Iterable[Call]) -> list[Collective]:
    """In the order of their first arrivals. Of two calls with one number, the later ones belong together."""
    found: dict[tuple[Any, ...], Collective] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for call in sorted(calls, key=lambda each: -each.begin_ns):
        if call.is_message:
            continue
        key = (call.group.name, call.group.ranks, call.sequence)
        of_rank = (call.rank, *key)
        turn = seen[of_rank]
        seen[of_rank] += 1
        whole = found.setdefault((*key, turn), Collective(call.group, call.sequence))
        whole.calls[call.rank] = call
    return sorted(found.values(), key=lambda whole: min(call.begin_ns for call in whole.calls.values()))


def is_known(whole: Collective, recorded: set[int]) -> bool:
    """Whether each member that has a record has this call in it: a record holds the latest calls only."""
    return all(rank in whole.calls for rank in whole.members() if rank in recorded)


def waits_in(whole: Collective) -> list[Wait]:
    """One for each rank that waited."""
    arrivals = sorted((call.begin_ns, rank) for rank, call in whole.calls.items())
    found = []
    for rank, call in sorted(whole.calls.items()):
        has_end = call.state == "completed"
        if not has_end and not (call.state == "ended" and call.operation.startswith(SYNCHRONISING)):
            continue
        before_end = [each for each in arrivals if not has_end or each[0] <= call.end_ns]
        last, other = before_end[-1]
        if other != rank and last > call.begin_ns:
            found.append(Wait(rank, other, (last - call.begin_ns) / 1e9))
    return found


def wait_rows(wholes: Iterable[Collective], recorded: set[int], zero_ns: int) -> list[dict[str, Any]]:
    """One row for each call in which a rank waited, the longest first."""
    rows = []
    for whole in wholes:
        if len(whole.calls) < 2 or not is_known(whole, recorded):
            continue
        if waits := waits_in(whole):
            rows.append(
                {
                    "group": whole.group.label,
                    "sequence": whole.sequence,
                    "operation": whole.operation,
                    "bytes": whole.bytes,
                    "at_s": (min(call.begin_ns for call in whole.calls.values()) - zero_ns) / 1e9,
                    "last_rank": whole.last(),
                    "waited_s": sum(wait.seconds for wait in waits),
                    "waits": [{"rank": w.rank, "for": w.waited_for, "seconds": w.seconds} for w in waits],
                }
            )
    return sorted(rows, key=lambda row: -row["waited_s"])


def pair_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each rank waited for each other in all calls, the longest first."""
    seconds: defaultdict[tuple[int, int], float] = defaultdict(float)
    calls: Counter[tuple[int, int]] = Counter()
    for row in rows:
        for wait in row["waits"]:
            pair = (wait["rank"], wait["for"])
            seconds[pair] += wait["seconds"]
            calls[pair] += 1
    found = [
        {"rank": rank, "for": other, "seconds": took, "calls": calls[rank, other]}
        for (rank, other), took in seconds.items()
    ]
    return sorted(found, key=lambda row: -float(row["seconds"]))


def rank_rows(pairs: Iterable[Mapping[str, Any]], ranks: Iterable[int]) -> list[dict[str, Any]]:
    """By rank: how long the other ranks waited for it, and how long it waited."""
    for_it: defaultdict[int, float] = defaultdict(float)
    itself: defaultdict[int, float] = defaultdict(float)
    for pair in pairs:
        for_it[pair["for"]] += pair["seconds"]
        itself[pair["rank"]] += pair["seconds"]
    return [{"rank": r, "waited_for_s": for_it[r], "waited_s": itself[r]} for r in sorted(ranks)]


def incomplete_rows(
    calls: Iterable[Call], wholes: Iterable[Collective], latest: Mapping[tuple[int, str], int],
    recorded: set[int], asked_ns: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Calls that some rank had not completed when the record was written, the oldest first.

    `asked_ns`: when `altorch trace` asked; 0: not known, for a flight record has no time of its own.
    """
    rows = []
    for whole in wholes:
        open_calls = {rank: call for rank, call in whole.calls.items() if call.is_open}
        if not open_calls:
            continue
        absent = [rank for rank in whole.members() if rank not in whole.calls]
        missing = [
            rank
            for rank in absent
            if rank in recorded and latest.get((rank, whole.group.name), 0) < whole.sequence
        ]
        rows.append(
            _incomplete(whole.operation, list(open_calls.values()), asked_ns)
            | {
                "missing": missing,
                "completed": sorted(set(whole.calls) - set(open_calls)),
                "not_recorded": [rank for rank in absent if rank not in recorded],
            }
        )
    for call in calls:
        if call.is_message and call.is_open:
            peer = call.group.ranks[call.peer : call.peer + 1] if call.peer is not None else ()
            rows.append(
                _incomplete(call.operation, [call], asked_ns)
                | {"missing": [], "completed": [], "not_recorded": [], "peer": peer[0] if peer else None}
            )
    return sorted(rows, key=lambda row: row["since_ns"])


def _incomplete(operation: str, open_calls: list[Call], asked_ns: int) -> dict[str, Any]:
    call = min(open_calls, key=lambda each: each.begin_ns)
    return {
        "group": call.group.label,
        "sequence": call.sequence,
        "operation": operation,
        "bytes": call.bytes,
        "state": "failed" if any(each.state == "failed" for each in open_calls) else "under way",
        "ranks": sorted(each.rank for each in open_calls),
        "since_ns": call.begin_ns,
        "seconds": max(asked_ns - call.begin_ns, 0) / 1e9 if asked_ns else None,
    }
