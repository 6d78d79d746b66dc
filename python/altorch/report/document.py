# SPDX-License-Identifier: BSD-3-Clause
"""All rows of a report in one dictionary: what `--json` prints, and what the page holds and draws."""

from __future__ import annotations

from typing import Any

from altorch.report import clocks, sentences, timeline, totals, waits
from altorch.report.records import Inputs

MOST_ROWS = 100  # of the longest waits; totals hold all
CALLS = 2000  # of one rank in the timeline; as many as a flight record keeps by default


def of(inputs: Inputs, most_calls: int = CALLS) -> dict[str, Any]:
    recorded = {call.rank for call in inputs.calls} | set(inputs.processes)
    ranks = sorted(recorded | {rank for call in inputs.calls for rank in call.group.ranks})
    hosts = {rank: str(process["host"]) for rank, process in inputs.processes.items() if process["host"]}
    wholes = waits.collectives_of(inputs.calls)
    moved = clocks.shifts(wholes, hosts, recorded)
    if moved:
        inputs.calls = [clocks.shifted(call, moved.get(call.rank, 0)) for call in inputs.calls]
        wholes = waits.collectives_of(inputs.calls)
    zero = min((call.begin_ns for call in inputs.calls), default=0)
    end = max([inputs.asked_ns, *(max(call.begin_ns, call.end_ns) for call in inputs.calls)])
    wait_rows = waits.wait_rows(wholes, recorded, zero)
    pairs = waits.pair_rows(wait_rows)
    found = {
        "altorch_report": 1,
        "files": sorted(inputs.files, key=lambda file: (file["kind"], file["rank"] or 0)),
        "has_flight_records": any(file["kind"] == "flight record" for file in inputs.files),
        "seconds": (end - zero) / 1e9,
        "ranks": totals.rank_rows(inputs, ranks),
        "clocks": {"moved_ns": moved},
        "waited_for": waits.rank_rows(pairs, ranks),
        "pairs": pairs,
        "calls_with_waits": len(wait_rows),
        "waits": wait_rows[:MOST_ROWS],
        "incomplete": waits.incomplete_rows(inputs.calls, wholes, inputs.latest, recorded, inputs.asked_ns),
        "operations": totals.operation_rows(inputs.calls),
        "statistics": inputs.statistics,
        "routes": totals.route_rows(inputs.statistics),
        "bandwidth": totals.bandwidth_rows(inputs.bench),
        "machines": totals.machine_rows(inputs.bench),
        "findings": inputs.findings,
        "conclusion": inputs.conclusion,
        "timeline": _timeline(inputs, wholes, recorded, zero, end, most_calls),
    }
    return found | {
        "answer": sentences.answer(found),
        "notes": sentences.notes(found, clocks.sentence(moved, hosts, recorded), recorded),
    }


def _timeline(
    inputs: Inputs, wholes: list[waits.Collective], recorded: set[int], zero: int, end: int, most: int
) -> dict[str, Any]:
    waited = {
        id(whole.calls[wait.rank]): wait
        for whole in wholes
        if waits.is_known(whole, recorded)
        for wait in waits.waits_in(whole)
    }
    world = {call.group.name for call in inputs.calls if call.group.description == "default_pg"}
    routes = totals.route_of(inputs.statistics, world)
    # The bar of a call that never ended is to be seen, also if it began last.
    end = inputs.asked_ns or end + (end - zero) // 20 + 1000
    return timeline.columns(inputs.calls, waited, routes, zero, end, most)
