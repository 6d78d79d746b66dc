# SPDX-License-Identifier: BSD-3-Clause
"""Reads `altorch trace --json`: hosts, calls under way, the latest call, statistics by route; and altorch.stats().

A trace that comes with flight records adds what these do not know: the host of a rank, the route of an operation.
"""

from __future__ import annotations

from typing import Any

from altorch.cli._waits import LONG
from altorch.report.fields import dict_of, list_of, number_of, seconds_of, text_of
from altorch.report.records import Call, Group, Inputs

_STATES = {"queued": "under way", "under way": "under way", "done": "completed", "failed": "failed"}
_MOST_SENTENCE = 2000
_STATS = {"operation", "count", "bytes", "route", "seconds"}


def is_trace(document: Any) -> bool:
    return isinstance(document, dict) and "jobs" in document


def add_trace(inputs: Inputs, document: dict[str, Any]) -> int:
    """Returns the number of ranks. A trace of several jobs is refused: their ranks have the same numbers."""
    jobs = [dict_of(job, "job") for job in list_of(document["jobs"], "jobs")]
    if len(jobs) > 1:
        raise ValueError(
            f"it holds {len(jobs)} jobs; give `altorch trace --json` the PID of a rank of one job"
        )
    for job in jobs:
        for name, process in dict_of(job.get("ranks", {}), "ranks").items():
            _add_process(inputs, number_of(str(name), "rank"), dict_of(process, "rank"))
        inputs.findings += [
            text_of(dict_of(each, "finding").get("text"), "finding", _MOST_SENTENCE)
            for each in list_of(job.get("findings", []), "findings")
            if seconds_of(dict_of(each, "finding").get("seconds"), "finding") >= LONG
        ]
        conclusion = text_of(job.get("conclusion", ""), "conclusion", _MOST_SENTENCE)
        inputs.conclusion = conclusion or inputs.conclusion
    return sum(len(job.get("ranks", {})) for job in jobs)


def is_statistics(document: Any) -> bool:
    return isinstance(document, list) and all(
        isinstance(row, dict) and row.keys() == _STATS for row in document[:1]
    )


def add_statistics(inputs: Inputs, document: list[Any], rank: int) -> int:
    """The rows of altorch.stats() of the whole world. Returns their number."""
    for row in document:
        row = dict_of(row, "row")
        took = seconds_of(row["seconds"], "seconds")
        route = text_of(row["route"], "route")
        inputs.statistics.append(_statistic(row, rank, "", route, took))
    return len(document)


def _statistic(row: dict[str, Any], rank: int, group: str, route: str, seconds: float) -> dict[str, Any]:
    return {
        "rank": rank,
        "group": group,  # empty: the whole world
        "operation": text_of(row["operation"], "operation"),
        "route": route,
        "count": number_of(row["count"], "count"),
        "bytes": number_of(row["bytes"], "bytes"),
        "seconds": seconds,
    }


def _add_process(inputs: Inputs, rank: int, process: dict[str, Any]) -> None:
    if "groups" not in process:  # it did not answer
        return
    if rank in inputs.processes:
        raise ValueError(f"rank {rank} is in another file, too")
    inputs.processes[rank] = {
        "host": text_of(process.get("host", ""), "host"),
        "pid": number_of(process.get("pid", 0), "pid"),
    }
    now = number_of(process.get("now_ns", 0), "now_ns")
    inputs.asked_ns = max(inputs.asked_ns, now)
    for report in list_of(process["groups"], "groups"):
        report = dict_of(report, "group")
        ranks = tuple(number_of(each, "rank") for each in list_of(report["global_ranks"], "global_ranks"))
        for on_gpu, counter in ((False, "sequence"), (True, "cuda_sequence")):
            key = (rank, _group(report, ranks, on_gpu).name)
            latest = number_of(report.get(counter, 0), "sequence number")
            inputs.latest[key] = max(inputs.latest.get(key, 0), latest)
        reported = list_of(report.get("under_way", []), "calls")
        reported += [report["last_done"]] if report.get("last_done") else []
        found = [_call(dict_of(each, "call"), rank, report, ranks) for each in reported]
        all_listed = number_of(report.get("calls_under_way", 0), "calls_under_way") <= len(found)
        _merge(inputs, rank, report, found, now if all_listed else 0)
        for row in list_of(report.get("statistics", []), "statistics"):
            row = dict_of(row, "row")
            route = f"{text_of(row['transport'], 'transport')}:{text_of(row['route'], 'route')}"
            took = number_of(row["took_ns"], "took_ns") / 1e9
            name = _group(report, ranks, False).name
            inputs.statistics.append(_statistic(row, rank, name, route, took))


def _merge(inputs: Inputs, rank: int, report: dict[str, Any], found: list[Call], now_ns: int) -> None:
    """Adds the calls of a group that no flight record has, and removes those that have ended since the record.

    `now_ns`: when the trace was made; 0: it does not list all calls under way.
    """
    names = {_group(report, (), on_gpu).name for on_gpu in (False, True)}
    of_trace = {_key(call) for call in found}
    ended = {_key(call) for call in found if call.state != "under way"}

    def is_stale(call: Call) -> bool:
        is_of_group = call.rank == rank and call.group.name in names and call.begin_ns <= now_ns
        is_over = _key(call) in ended or _key(call) not in of_trace
        return is_of_group and call.state == "under way" and is_over

    inputs.calls = [call for call in inputs.calls if not is_stale(call)]
    known = {_key(call) for call in inputs.calls if call.rank == rank}
    inputs.calls += [call for call in found if _key(call) not in known]


def _group(report: dict[str, Any], ranks: tuple[int, ...], on_gpu: bool) -> Group:
    """CUDA calls are numbered apart, and a flight record gives them the same name."""
    name = text_of(report["name"], "group name") + (" (CUDA)" if on_gpu else "")
    return Group(name, text_of(report.get("description", ""), "group description"), ranks)


def _call(call: dict[str, Any], rank: int, report: dict[str, Any], ranks: tuple[int, ...]) -> Call:
    begin = number_of(call["since_ns"], "since_ns")
    end = max(number_of(call.get("ended_ns", 0), "ended_ns"), 0)
    is_message = "sequence" not in call
    state = _STATES.get(text_of(call["state"], "state"), "under way")
    return Call(
        rank,
        _group(report, ranks, bool(call.get("on_gpu", False))),
        text_of(call["operation"], "operation"),
        number_of(call.get("sequence", call.get("message", 0)), "sequence number"),
        is_message,
        begin,
        max(end, begin) if state == "completed" else 0,
        max(end - begin, 0) if state == "completed" else 0,
        state,
        number_of(call.get("bytes", 0), "bytes"),
        text_of(call.get("dtype", ""), "dtype"),
        number_of(call["peer"], "peer") if "peer" in call else None,
    )


def _key(call: Call) -> tuple[Any, ...]:
    return call.rank, call.group.name, call.sequence, call.is_message, call.operation
