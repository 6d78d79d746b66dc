# SPDX-License-Identifier: BSD-3-Clause
"""What a report says in words: why the job is slow, which calls had not completed, what the files do not tell."""

from __future__ import annotations

from typing import Any

from altorch.cli._output import human_bytes
from altorch.cli._waits import LONG, and_list, ranks_text, seconds_text


def seconds(value: float | None) -> str:
    """`3.2 us`, `41 ms`, `13.7 s`."""
    if value is None:
        return "-"
    if value >= 1:
        return f"{value:.2f} s" if value < 10 else seconds_text(value)
    for scale, unit in ((1e3, "ms"), (1e6, "us")):
        if value * scale >= 1 or unit == "us":
            return f"{value * scale:.3g} {unit}"
    raise AssertionError("unreachable")


def call_text(row: dict[str, Any]) -> str:
    """`all_reduce #4 (1 MiB) of group 0 (default_pg)`."""
    size = f" ({human_bytes(row['bytes'])})" if row["bytes"] else ""
    return f"{row['operation']} #{row['sequence']}{size} of group {row['group']}"


def _some(ranks: list[int]) -> str:
    """`ranks 0, 1 and 3`, `ranks 0, 1, 2 and 13 more`."""
    if len(ranks) <= 8:
        return ranks_text(ranks)
    return f"ranks {', '.join(map(str, ranks[:3]))} and {len(ranks) - 3} more"


def incomplete_text(row: dict[str, Any]) -> str:
    verb = ("is" if len(row["ranks"]) == 1 else "are") if row["state"] == "under way" else "failed"
    text = f"{_some(row['ranks'])} {verb} in {call_text(row)}"
    if row["state"] == "under way":
        text += f" for {seconds(row['seconds'])}" if row["seconds"] is not None else " where the records end"
    if row["missing"]:
        text += f"; {_some(row['missing'])} {'is' if len(row['missing']) == 1 else 'are'} missing"
    elif row.get("peer") is not None:
        text += f"; its peer is rank {row['peer']}"
    return text


def is_hung(row: dict[str, Any]) -> bool:
    return row["state"] == "failed" or (row["seconds"] or 0) >= LONG


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def answer(found: dict[str, Any]) -> str:
    """Why the job is slow or hangs, in one to three sentences."""
    if found["conclusion"] or found["findings"]:  # they also know ranks that are in no call
        return _as_sentence(found["conclusion"] or found["findings"][0])
    missing = [row for row in found["incomplete"] if row["missing"]]
    if hung := [row for row in missing if is_hung(row)]:
        return _as_sentence(incomplete_text(hung[0]))
    sentences = [
        _waits_answer(found),
        *(_bandwidth_answer(found["bandwidth"]) if not found["operations"] else []),
    ]
    # A record does not tell a call that hangs from one that had just begun.
    sentences += [_as_sentence(incomplete_text(row)) for row in missing[:1] if row["seconds"] is None]
    return " ".join(filter(None, sentences)) or "No rank waited for another in the calls of these files."


def _waits_answer(found: dict[str, Any]) -> str:
    total = sum(row["waited_s"] for row in found["waited_for"])
    if not total:
        return ""
    most = max(found["waited_for"], key=lambda row: row["waited_for_s"])
    longest = found["waits"][0]
    return (
        f"In {seconds(found['seconds'])}, the ranks waited {seconds(total)} for each other, all ranks added up; "
        f"{seconds(most['waited_for_s'])} of it for rank {most['rank']}. "
        f"The longest wait was in {call_text(longest)}: rank {longest['last_rank']} was the straggler, and "
        f"{_some([wait['rank'] for wait in longest['waits']])} waited {seconds(longest['waited_s'])} in total."
    )


def _bandwidth_answer(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    best = max(rows, key=lambda row: row["busbw_GBps"])
    return [
        f"The most bandwidth of {len(rows)} benchmark rows is {best['busbw_GBps']:.3g} GB/s: {best['operation']} of "
        f"{human_bytes(best['bytes'])} by {best['contender']}."
    ]


def notes(found: dict[str, Any], clock: str, recorded: set[int]) -> list[str]:
    notes = [clock] if clock else []
    if found["operations"] and not found["has_flight_records"]:
        notes.append("There is no flight record: calls under way and the latest of each group are known.")
    absent = [row["rank"] for row in found["ranks"] if row["rank"] not in recorded]
    if absent and found["operations"]:
        notes.append(
            f"No record of {ranks_text(absent)} was given: waits for {and_list(absent)} are unknown."
        )
    if "ended" in found["timeline"]["names"]["state"]:
        notes.append("Some records do not say when calls ended: their durations are not known, only waits.")
    shown, total = found["timeline"]["shown"], found["timeline"]["total"]
    if shown < total:
        notes.append(
            f"The timeline holds the latest {shown:,} of {total:,} calls (--calls gives their number for each rank); "
            "all figures are of all calls."
        )
    if any(row["operation"] in ("send", "recv") for row in found["operations"]):
        notes.append(
            "Waits are those of collectives: a record does not say which send belongs to which recv."
        )
    return notes
