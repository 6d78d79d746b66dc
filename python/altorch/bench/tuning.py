# SPDX-License-Identifier: BSD-3-Clause
"""What `altorch tune` tries for an operation, and what it makes of the times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from altorch.bench.rows import Row

# A choice needs at least this speed-up over the default in every pass, in the 10th percentile and
# in the median; less is noise.
MARGIN = 1.05
# Not all_to_all: ranks know different sizes of it, and a rule for all sizes is seldom right.
OPERATIONS = {
    "cpu": ("all_reduce", "all_gather"),
    "cuda": ("all_reduce", "all_gather", "reduce_scatter", "broadcast"),
}
# Protocols for special calls alone: RMS norm, small blocks of an all_to_all, messages.
_NOT_TRIED = ("norm", "pairs", "messages")


def choices(
    device: str, operation: str, shared_gpus: bool = False, nodes: int = 1, one_rank_per_node: bool = False
) -> list[str]:
    """The values of ALTORCH_ROUTE that are measured beside the default."""
    from altorch._extension import extension

    if device == "cpu":
        return [f"shm/{name}" for name in extension().shm_protocols(operation)]
    if nodes > 1:
        return [
            *([] if shared_gpus else ["nccl"]),
            *([] if one_rank_per_node else ["hierarchical"]),
            "host_relay",
        ]
    if shared_gpus:
        return ["host_staged", "host_relay"]
    routes = extension().gpu_protocols()
    peer = [f"peer/{name}" for name in routes["peer"] if name not in _NOT_TRIED]
    return ["nccl", "host_staged", "host_relay", "peer", *peer]


class Rule(NamedTuple):
    operation: str
    ranks: int
    begin: int  # bytes, inclusive: half-way, by the logarithm, to the next smaller size that was measured
    below: int  # bytes, exclusive
    choice: str
    gain: float  # the default's median over that of the choice, the least of all passes and sizes
    device: str = "cpu"
    nodes: int = 1  # that the ranks are on


def faster(passes: Sequence[Iterable[Row]]) -> dict[tuple[str, int], tuple[str, float]]:
    """By operation and size: the choice that is faster than the default in every pass, and its least gain."""
    found: dict[tuple[str, int], tuple[str, float]] = {}
    gains = [_gains(rows) for rows in passes]
    for key, choices in gains[0].items():
        least = {
            choice: min(each[key][choice] for each in gains)
            for choice in choices
            if all(choice in each.get(key, {}) for each in gains)
        }
        best = max(least.items(), key=lambda item: item[1], default=None)
        if best is not None and best[1] >= MARGIN:
            found[key] = best
    return found


def sizes_of(passes: Sequence[Iterable[Row]], operation: str) -> list[int]:
    """What was measured, which a case rounds up to whole blocks."""
    return sorted({size for rows in passes for name, size in _times(rows) if name == operation})


def rules_of(
    chosen: dict[tuple[str, int], tuple[str, float]],
    measured: dict[str, list[int]],
    ranks: int,
    device: str = "cpu",
    nodes: int = 1,
) -> list[Rule]:
    """Neighbouring sizes of one choice as one rule. It ends half-way, by the logarithm, to a size with another."""
    rules = []
    for operation, ordered in measured.items():
        own = {size: chosen[operation, size] for size in ordered if (operation, size) in chosen}
        begin, least = 0, 0.0
        for place, size in enumerate(ordered):
            choice, gain = own.get(size, ("", 0.0))
            if not choice:
                continue
            before = own.get(ordered[place - 1], ("", 0.0))[0] if place else ""
            after = own.get(ordered[place + 1], ("", 0.0))[0] if place + 1 < len(ordered) else ""
            if before != choice:
                begin = _between(ordered[place - 1], size) if place else size
                least = gain
            least = min(least, gain)
            if after != choice:
                below = _between(size, ordered[place + 1]) if place + 1 < len(ordered) else size + 1
                rules.append(Rule(operation, ranks, begin, below, choice, round(least, 3), device, nodes))
    return rules


def costs_of(
    passes: Sequence[Iterable[Row]], chosen: dict[tuple[str, int], tuple[str, float]], ranks: int, device: str
) -> list[dict[str, Any]]:
    """The lowest median of all passes by size, us, with the rules applied: for time estimates."""
    least: dict[str, dict[int, float]] = {}
    for row in (row for rows in passes for row in rows if row["operation"] != "memcpy"):
        operation, size = row["operation"], row["bytes"]
        choice = chosen.get((operation, size), ("", 0.0))[0]
        if row["contender"] == (f"al:{choice}" if choice else "al"):
            took = (device == "cuda" and row.get("device_us")) or row["median_us"]
            times = least.setdefault(operation, {})
            times[size] = min(took, times.get(size, took))
    return [
        {
            "operation": name,
            "device": device,
            "ranks": ranks,
            "us": [list(point) for point in sorted(times.items())],
        }
        for name, times in least.items()
    ]


def document(
    rules: Sequence[Rule], run: dict[str, Any], costs: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """The file's content: see altorch/_tuned.py."""
    from altorch import _tuned
    from altorch._version import __version__

    return {
        "altorch_tuned": _tuned.FORMAT,
        "altorch": __version__,
        "machine": _tuned.machine(on_gpus=run["device"] == "cuda"),
        "measured": {name: run[name] for name in ("date", "torch", "command", "load_before") if name in run},
        "rules": [
            {
                "operation": rule.operation,
                "device": rule.device,
                "ranks": rule.ranks,
                "nodes": rule.nodes,
                "from": rule.begin,
                "below": rule.below,
                "choice": rule.choice,
                "gain": rule.gain,
            }
            for rule in rules
        ],
        "costs": list(costs),
    }


def _gains(rows: Iterable[Row]) -> dict[tuple[str, int], dict[str, float]]:
    """By operation and size: the default's time over that of each choice, the less favourable of the two figures."""
    return {
        key: {
            name.partition(":")[2]: min(times["al"][0] / own[0], times["al"][1] / own[1])
            for name, own in times.items()
            if name != "al"
        }
        for key, times in _times(rows).items()
        if "al" in times
    }


def _times(rows: Iterable[Row]) -> dict[tuple[str, int], dict[str, tuple[float, float]]]:
    found: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    for row in rows:
        if row["operation"] != "memcpy":
            times = found.setdefault((row["operation"], row["bytes"]), {})
            times[row["contender"]] = (row["p10_us"], row["median_us"])
    return found


def _between(smaller: int, larger: int) -> int:
    return max(smaller + 1, int((smaller * larger) ** 0.5) // 8 * 8)
