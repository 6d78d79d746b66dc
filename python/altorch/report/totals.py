# SPDX-License-Identifier: BSD-3-Clause
"""Totals by operation, bandwidth by size, and the machines, as rows. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from altorch.report.fields import text_of
from altorch.report.records import Call, Inputs

_MOST_TEXT = 60
_TIMES = ("device_us", "median_us")  # the first that a benchmark row has
_MACHINE = ("machine", "cpu", "cores", "gpus", "memory_gib", "kernel", "torch", "altorch", "nccl", "date")


def operation_rows(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Of the calls of all ranks; the operation that took longest in all comes first."""
    by_operation: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_operation[call.operation].append(call)
    rows = []
    for operation, found in by_operation.items():
        took = [call.took_ns / 1e9 for call in found if call.state == "completed"]
        rows.append(
            {
                "operation": operation,
                "count": len(found),
                "bytes": sum(call.bytes for call in found),
                "total_s": sum(took),
                "median_s": statistics.median(took) if took else None,
                "longest_s": max(took, default=None),
                "incomplete": sum(call.is_open for call in found),
            }
        )
    return sorted(rows, key=lambda row: -row["total_s"])


def bandwidth_rows(bench: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The benchmark rows that have a size and a bandwidth, each with the machine of its run."""
    rows = []
    run: Mapping[str, Any] = {}
    for row in bench:
        if row.get("benchmark") == "run":
            run = row
        took = next((row[key] for key in _TIMES if _is_positive(row.get(key))), None)
        if took is None or not _is_positive(row.get("bytes")) or not _is_positive(row.get("busbw_GBps")):
            continue
        mode = _text(row.get("mode", "sync"))
        contender = _text(row.get("contender", ""))
        rows.append(
            {
                "machine": _text(row.get("machine", run.get("machine", "CPU"))),
                "operation": _text(row.get("operation", "")),
                "dtype": _text(row.get("dtype", "")),
                "ranks": row["ranks"] if _is_positive(row.get("ranks")) else None,
                "contender": contender if mode == "sync" else f"{contender} {mode}",
                "bytes": row["bytes"],
                "took_us": took,
                "busbw_GBps": row["busbw_GBps"],
            }
        )
    return rows


def route_of(
    statistics_rows: Iterable[Mapping[str, Any]], world: Iterable[str]
) -> dict[tuple[int, str, str], str]:
    """By rank, group and operation: the route, where statistics name a single one. `world`: names of that group."""
    routes: defaultdict[tuple[int, str, str], set[str]] = defaultdict(set)
    world = list(world)
    for row in statistics_rows:
        for group in [row["group"]] if row["group"] else world:
            routes[row["rank"], group, row["operation"]].add(row["route"])
    return {key: next(iter(names)) for key, names in routes.items() if len(names) == 1}


def route_rows(statistics_rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Statistics of all ranks added up; what took longest in all comes first."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in statistics_rows:
        key = {name: row[name] for name in ("operation", "route", "group")}
        zero = {"ranks": 0, "count": 0, "bytes": 0, "seconds": 0.0}
        total = found.setdefault(tuple(key.values()), key | zero)
        total["ranks"] += 1
        for name in ("count", "bytes", "seconds"):
            total[name] += row[name]
    return sorted(found.values(), key=lambda row: -float(row["seconds"]))


def rank_rows(inputs: Inputs, ranks: Iterable[int]) -> list[dict[str, Any]]:
    """What is known of each rank."""
    counts: defaultdict[int, int] = defaultdict(int)
    for call in inputs.calls:
        counts[call.rank] += 1
    unknown = {"host": None, "pid": None}
    return [
        {"rank": rank, **unknown, **inputs.processes.get(rank, {}), "calls": counts[rank]} for rank in ranks
    ]


def machine_rows(bench: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of the machines that benchmark rows come from, the latest run each."""
    found = {}
    for row in bench:
        if row.get("benchmark") == "run":
            known = {key: _text(row[key]) for key in _MACHINE if isinstance(row.get(key), str | int | float)}
            found[str(known.get("machine"))] = known
    return list(found.values())


def _text(value: Any) -> str:
    return text_of(str(value) if isinstance(value, str | int | float) else "", "text", _MOST_TEXT)


def _is_positive(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < 1e18 and math.isfinite(value)
