# SPDX-License-Identifier: BSD-3-Clause
"""Calls of all ranks, and the reader of flight records: the files that torch writes to TORCH_FR_DUMP_TEMP_FILE.

A field of the wrong type raises ValueError with a clause.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from altorch.report.fields import LATEST_NS, dict_of, list_of, number_of, seconds_of, text_of

# The types of a flight record by torch's C++ name: the Python name, and the bytes of an element.
_TYPES = {
    "Byte": ("uint8", 1),
    "Char": ("int8", 1),
    "Bool": ("bool", 1),
    "Short": ("int16", 2),
    "UInt16": ("uint16", 2),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "Int": ("int32", 4),
    "UInt32": ("uint32", 4),
    "Float": ("float32", 4),
    "ComplexHalf": ("complex32", 4),
    "Long": ("int64", 8),
    "UInt64": ("uint64", 8),
    "Double": ("float64", 8),
    "ComplexFloat": ("complex64", 8),
    "ComplexDouble": ("complex128", 16),
}
_MOST_DIMENSIONS = 64


@dataclass(frozen=True)
class Group:
    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()  # of the job; empty: not known

    @property
    def label(self) -> str:
        known = self.description not in ("", "undefined", self.name)
        return f"{self.name} ({self.description})" if known else self.name


@dataclass(frozen=True)
class Call:
    """One call of one rank. Times are nanoseconds since the epoch; 0: not known."""

    rank: int
    group: Group
    operation: str  # all_reduce, send, ...
    sequence: int  # of the group's collectives, or of this rank's messages in the group
    is_message: bool
    begin_ns: int
    end_ns: int = 0
    took_ns: int = 0  # from its start, which may come after `begin_ns`
    state: str = "completed"  # or "under way", "failed"; "ended": when and how is not known
    bytes: int = 0
    dtype: str = ""
    peer: int | None = None  # of a message, as the group numbers it

    @property
    def is_open(self) -> bool:
        return self.state in ("under way", "failed")


@dataclass
class Inputs:
    """What was read of all files."""

    calls: list[Call] = field(default_factory=list)
    # By rank and name of the group: the number of the latest collective.
    latest: dict[tuple[int, str], int] = field(default_factory=dict)
    processes: dict[int, dict[str, Any]] = field(default_factory=dict)  # host and pid by rank
    statistics: list[dict[str, Any]] = field(default_factory=list)
    bench: list[dict[str, Any]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)  # sentences of `altorch trace`, the longest wait first
    conclusion: str = ""  # of `altorch trace`: the ranks that all waits lead to
    asked_ns: int = 0  # when `altorch trace` asked
    files: list[dict[str, Any]] = field(default_factory=list)


def is_flight_record(document: Any) -> bool:
    return isinstance(document, dict) and {"entries", "version"} <= document.keys()


def add_flight_record(inputs: Inputs, document: dict[str, Any], rank: int) -> int:
    """Returns the number of calls."""
    groups: dict[str, Group] = {}
    for name, config in dict_of(document.get("pg_config", {}), "pg_config").items():
        config = dict_of(config, "pg_config")
        description = text_of(config.get("desc", ""), "group description")
        groups[name] = Group(text_of(name, "group name"), description, _ranks(config.get("ranks", "[]")))
    entries = [dict_of(entry, "entry") for entry in list_of(document["entries"], "entries")]
    # torch's own hook is not told of the ends of Gloo's calls: one that is retired has ended.
    knows_ends = any(
        entry.get("time_discovered_started_ns") or entry.get("state") == "completed" for entry in entries
    )
    calls = [_call(entry, rank, groups, "failed" if knows_ends else "ended") for entry in entries]
    for call in calls:  # oldest first; a group that was made anew under its name counts from 1 again
        if not call.is_message:
            inputs.latest[rank, call.group.name] = call.sequence
    inputs.calls += calls
    return len(calls)


def _ranks(value: Any) -> tuple[int, ...]:
    """torch writes them as text: `[0, 1]`."""
    text = value if isinstance(value, str) else ""
    if not re.fullmatch(r"\[[\d, ]{0,1000000}\]", text):
        raise ValueError("its ranks of a group are no list of numbers")
    words = text[1:-1].replace(" ", "").split(",")
    return tuple(number_of(word, "rank") for word in words if word)


def _call(entry: dict[str, Any], rank: int, groups: dict[str, Group], if_retired: str) -> Call:
    """`if_retired`: the state of a call that torch has retired, though it has not completed."""
    pair = list_of(entry.get("process_group"), "process_group")
    name, description = (text_of(each, "process_group") for each in (*pair, "", "")[:2])
    group = groups.get(name)
    if group is None:
        group = groups[name] = Group(name, description)
    title = text_of(entry.get("profiling_name"), "profiling_name").partition(":")
    operation, _, ends = (title[2] or title[0]).partition(" ")
    is_message = bool(entry.get("is_p2p", False))
    peer = re.fullmatch(r"\d{1,9}(?:->|<-)(\d{1,9})", ends)
    state = "completed" if entry.get("state") == "completed" else "under way"
    if state == "under way" and entry.get("retired"):
        state = if_retired
    begin = number_of(entry["time_created_ns"], "time_created_ns")
    took = round(seconds_of(entry.get("duration_ms") or 0.0, "duration_ms") * 1e6)
    end = 0
    if state == "completed":
        end = number_of(entry.get("time_discovered_completed_ns") or 0, "time_discovered_completed_ns")
        end = max(end or begin + took, begin)
    size, dtype = _size(entry)
    return Call(
        rank,
        group,
        operation,
        number_of(entry["p2p_seq_id" if is_message else "collective_seq_id"], "sequence number"),
        is_message,
        begin,
        end,
        (took or end - begin) if state == "completed" else 0,
        state,
        size,
        dtype,
        int(peer[1]) if peer else None,
    )


def _size(entry: dict[str, Any]) -> tuple[int, str]:
    """The larger of inputs and outputs, in bytes, and their type; 0 where the type is not known."""
    most, dtype = 0, ""
    for side in ("input", "output"):
        sizes = list_of(entry.get(f"{side}_sizes", ()), "sizes")
        kinds = [text_of(each, "type") for each in list_of(entry.get(f"{side}_dtypes", ()), "types")]
        total = 0
        for dimensions, kind in zip(sizes, kinds, strict=False):
            elements = [number_of(each, "size") for each in list_of(dimensions, "sizes")[:_MOST_DIMENSIONS]]
            name, width = _TYPES.get(kind, (kind.lower(), 1 if kind.startswith("Float8") else 0))
            total += math.prod(elements) * width
            dtype = dtype or name
        most = max(most, total)
    if not 0 <= most < LATEST_NS:
        raise ValueError("its size is out of range")
    return most, dtype
