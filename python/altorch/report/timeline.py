# SPDX-License-Identifier: BSD-3-Clause
"""The timeline's rows: the latest calls of each rank, in columns, because a page may hold many thousands.

Calls of a rank that overlap get lanes of their own. Pure functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from altorch.report.records import Call
from altorch.report.waits import Wait

_MOST_LANES = 4


def lanes_of(calls: Iterable[tuple[int, int]]) -> list[int]:
    """A lane for each call of one rank, by begin and end, in the order of begins: the first that is free."""
    free_at = [0] * _MOST_LANES
    lanes = []
    for begin, end in calls:
        lane = next((lane for lane, free in enumerate(free_at) if free <= begin), _MOST_LANES - 1)
        free_at[lane] = max(free_at[lane], end)
        lanes.append(lane)
    return lanes


def columns(
    calls: Iterable[Call],
    waits: Mapping[int, Wait],
    routes: Mapping[tuple[int, str, str], str],
    zero_ns: int,
    end_ns: int,
    most: int,
) -> dict[str, Any]:
    """`waits`: by the id() of the call. `most`: calls of one rank. A call that has not ended lasts until `end_ns`."""
    by_rank: defaultdict[int, list[Call]] = defaultdict(list)
    for call in calls:
        by_rank[call.rank].append(call)
    names: dict[str, dict[str, int]] = {key: {} for key in ("operation", "group", "dtype", "route", "state")}
    found: dict[str, list[Any]] = {
        key: []
        for key in (
            *names,
            "rank",
            "lane",
            "sequence",
            "bytes",
            "begin_s",
            "seconds",
            "waited_s",
            "waited_for",
        )
    }

    def add(key: str, value: str) -> None:
        found[key].append(names[key].setdefault(value, len(names[key])))

    total = 0
    for rank in sorted(by_rank):
        own = sorted(by_rank[rank], key=lambda call: call.begin_ns)
        total += len(own)
        own = own[len(own) - min(most, len(own)) :]
        ends = [_end_of(call, waits.get(id(call)), end_ns) for call in own]
        lanes = lanes_of([(call.begin_ns, end) for call, end in zip(own, ends, strict=True)])
        for call, end, lane in zip(own, ends, lanes, strict=True):
            add("operation", call.operation)
            add("group", call.group.label)
            add("dtype", call.dtype)
            add("route", routes.get((rank, call.group.name, call.operation), ""))
            add("state", call.state)
            wait = waits.get(id(call))
            found["rank"].append(rank)
            found["lane"].append(lane)
            found["sequence"].append(call.sequence)
            found["bytes"].append(call.bytes)
            found["begin_s"].append(round((call.begin_ns - zero_ns) / 1e9, 7))
            found["seconds"].append(round((end - call.begin_ns) / 1e9, 7))
            found["waited_s"].append(round(wait.seconds, 7) if wait else 0)
            found["waited_for"].append(wait.waited_for if wait else None)
    return {
        "total": total,
        "shown": len(found["rank"]),
        "names": {key: list(values) for key, values in names.items()},
        "columns": found,
    }


def _end_of(call: Call, wait: Wait | None, end_ns: int) -> int:
    if call.state == "ended":
        return call.begin_ns + (round(wait.seconds * 1e9) if wait else 0)
    return max(call.end_ns or (end_ns if call.state == "under way" else 0), call.begin_ns)
