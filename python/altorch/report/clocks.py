# SPDX-License-Identifier: BSD-3-Clause
"""Brings the times of ranks on several hosts to one clock.

A record has the time of its host (CLOCK_REALTIME), and clocks of hosts differ by microseconds to seconds. A collective
in which every rank waits for all others ends at about one time on all of them: the median difference of these ends is
the difference of two clocks. Ranks of one host have one clock and are left alone. Pure functions.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace

from altorch.report.records import Call
from altorch.report.waits import SYNCHRONISING, Collective

_IMPOSSIBLE_NS = 1_000_000  # that a rank ends a call so long before another arrives


def shifts(wholes: Iterable[Collective], hosts: Mapping[int, str], ranks: Iterable[int]) -> dict[int, int]:
    """Nanoseconds that a rank's clock is ahead of the first rank's; empty: no times need to be moved.

    `hosts`: by rank, as far as they are known. Where they are not, clocks count as different if a rank ended a call
    before another made it.
    """
    together = [whole for whole in wholes if _is_together(whole)]
    order = sorted(ranks)
    if len(order) < 2 or not together:
        return {}
    all_known = all(rank in hosts for rank in order)
    if all_known and len({hosts[rank] for rank in order}) == 1:
        return {}
    if not all_known and not any(_is_impossible(whole) for whole in together):
        return {}
    first = order[0]
    differences: dict[object, list[int]] = {}
    for whole in together:
        for rank, call in whole.calls.items():
            if first in whole.calls:
                clock = hosts.get(rank, rank)
                differences.setdefault(clock, []).append(call.end_ns - whole.calls[first].end_ns)
    medians = {clock: round(statistics.median(values)) for clock, values in differences.items()}
    own = hosts.get(first, first)
    return {
        rank: medians[clock] for rank in order if (clock := hosts.get(rank, rank)) in medians and clock != own
    }


def shifted(call: Call, shift: int) -> Call:
    if not shift:
        return call
    return replace(call, begin_ns=call.begin_ns - shift, end_ns=call.end_ns and call.end_ns - shift)


def sentence(moved: Mapping[int, int], hosts: Mapping[int, str], ranks: Iterable[int]) -> str:
    order = sorted(ranks)
    if moved:
        largest = max(moved, key=lambda rank: abs(moved[rank]))
        return (
            f"The clocks of the ranks differ, by up to {abs(moved[largest]) / 1e6:.3f} ms (rank {largest}). Times are "
            "moved so that calls in which all ranks wait for each other end together in the median; waits shorter "
            "than about 1 ms mean little."
        )
    if len(order) > 1 and not all(rank in hosts for rank in order):
        return (
            "The files do not say on which hosts the ranks ran. If there were several, their clocks may differ, "
            "though no call ended on a rank long before another rank made it. `altorch trace --json` knows the hosts."
        )
    return ""


def _is_together(whole: Collective) -> bool:
    completed = all(call.state == "completed" for call in whole.calls.values())
    return completed and len(whole.calls) > 1 and whole.operation.startswith(SYNCHRONISING)


def _is_impossible(whole: Collective) -> bool:
    calls = whole.calls.values()
    return min(call.end_ns for call in calls) + _IMPOSSIBLE_NS < max(call.begin_ns for call in calls)
