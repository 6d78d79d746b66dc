# SPDX-License-Identifier: BSD-3-Clause
"""Replays the calls of a recorded job with other durations: what its step would take.

A rank makes a call a recorded gap after an earlier event: the end of an earlier call if the program waited for it, else
the start of the previous call. The replay takes the event whose gap varies less between steps, which keeps the overlap
of DDP's buckets with compute. A collective starts when its last rank has called it and the group's collective before it
has ended, and ends on all ranks at once.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from altorch.report.records import Call

_SEARCHED = 2000  # calls of a rank, at the end of the record, in which steps are looked for

Key = tuple[str, int]  # group and sequence number of a collective


@dataclass(frozen=True)
class Issued:
    """A call of one rank, and when its program makes it: `gap_ns` after `after` has ended, or has begun."""

    call: Call
    after: int | None  # index of an earlier call of the rank; None: the beginning of the record
    waits: bool  # for its end
    gap_ns: float


@dataclass(frozen=True)
class Job:
    timelines: dict[int, list[Issued]]  # by rank
    period: int  # calls of a step; there are at least three steps

    @property
    def calls(self) -> list[Call]:
        """As the first rank made them; the others have made the same."""
        return [each.call for each in next(iter(self.timelines.values()))]

    def only(self, rank: int) -> Job:
        return Job({rank: self.timelines[rank]}, self.period)


def job_of(calls: Sequence[Call], calls_of_step: int = 0) -> Job:
    """`calls_of_step`: 0 detects them. Raises ValueError if the calls are not those of three steps or more."""
    by_rank: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        if not call.is_message and call.state == "completed":
            by_rank[call.rank].append(call)
    if not by_rank:
        raise ValueError("the record has no collective that was completed")
    if len(by_rank) == 1:
        raise ValueError("the record holds the calls of one rank; name the files of all ranks of the job")
    common = set.intersection(*({_key(call) for call in own} for own in by_rank.values()))
    if not common:
        raise ValueError(
            "the ranks have no collective in common; name records of one job, written at the same time"
        )
    kept = {
        rank: sorted((call for call in own if _key(call) in common), key=lambda call: call.begin_ns)
        for rank, own in sorted(by_rank.items())
    }
    if len({tuple((*_key(call), call.operation) for call in own) for own in kept.values()}) != 1:
        raise ValueError(
            "the ranks have made their collectives in different orders; calls of several groups at the same time "
            "cannot be replayed"
        )
    period = calls_of_step or _period([own[-_SEARCHED:] for own in list(kept.values())[:2]])
    steps = min(_steps(own, period) for own in kept.values()) if period else 0
    if steps < 3:
        raise ValueError(
            "the calls do not repeat: the record needs three steps of the same calls at its end. Record more of them "
            "(TORCH_FR_BUFFER_SIZE), only the training loop, or name --calls-of-step"
        )
    return Job(
        {rank: _timeline(own[len(own) - steps * period :], period) for rank, own in kept.items()}, period
    )


def step_seconds(job: Job, duration: Callable[[Call], float], slowdown: float = 1.0) -> float:
    """The median seconds of a step on the slowest rank, without the first step.

    `duration`: seconds of a collective. `slowdown`: of what ranks compute.
    """
    begins: dict[int, list[float]] = {rank: [] for rank in job.timelines}
    ends: list[float] = []  # of all ranks
    free: dict[str, float] = defaultdict(float)  # by group: the end of its latest collective
    for index, call in enumerate(job.calls):
        for rank, timeline in job.timelines.items():
            begins[rank].append(_begin(timeline[index], begins[rank], ends, slowdown))
        start = max(free[call.group.name], *(each[-1] for each in begins.values()))
        ends.append(start + duration(call) * 1e9)
        free[call.group.name] = ends[-1]
    return max(_step_of(each, job.period) for each in begins.values()) / 1e9


def recorded_step_seconds(job: Job) -> float:
    begins = ([float(each.call.begin_ns) for each in timeline] for timeline in job.timelines.values())
    return max(_step_of(each, job.period) for each in begins) / 1e9


def _step_of(begins: Sequence[float], period: int) -> float:
    starts = begins[::period]
    return statistics.median(later - start for start, later in itertools.pairwise(starts[1:]))


def _begin(issued: Issued, begins: Sequence[float], ends: Sequence[float], slowdown: float) -> float:
    gap = issued.gap_ns * slowdown
    if issued.after is None:
        return gap
    since = (ends if issued.waits else begins)[issued.after]
    return since + gap


def recorded_seconds(job: Job) -> dict[Key, float]:
    """Seconds from the start of each collective, when its last rank is ready, to its end."""
    begins: dict[Key, int] = defaultdict(int)
    ends: dict[Key, int] = defaultdict(int)
    for timeline in job.timelines.values():
        free: dict[str, int] = defaultdict(int)  # by group: the end of this rank's latest call
        for each in timeline:
            key = _key(each.call)
            begins[key] = max(begins[key], each.call.begin_ns, free[each.call.group.name])
            ends[key] = max(ends[key], each.call.end_ns)
            free[each.call.group.name] = each.call.end_ns
    return {key: max(ends[key] - begins[key], 0) / 1e9 for key in ends}


def _key(call: Call) -> Key:
    return call.group.name, call.sequence


def _name(call: Call) -> tuple[str, int, str]:
    """What the same calls of different steps have in common."""
    return call.operation, call.bytes, call.group.name


def _period(ranks: Sequence[Sequence[Call]]) -> int:
    """The shortest period that repeats three times at the end of the record, with similar gaps; 0 if there is none."""
    names = [_name(call) for call in ranks[0]]
    spread_of = {
        period: sum(_spread_within(calls, period) for calls in ranks)
        for period in range(1, len(names) // 3 + 1)
        if all(names[-i - 1] == names[-i - 1 - period] for i in range(2 * period))
    }
    # Longer periods always fit noise slightly better, so a shorter one may be a little worse.
    enough = 1.2 * min(spread_of.values(), default=0.0) + 0.01 * sum(
        (calls[-1].begin_ns - calls[0].begin_ns) / len(calls) for calls in ranks
    )
    return next((period for period, spread in spread_of.items() if spread <= enough), 0)


def _spread_within(calls: Sequence[Call], period: int) -> float:
    """How much the time between two calls differs from that at the same place of other steps, per call."""
    between = [later.begin_ns - call.begin_ns for call, later in itertools.pairwise(calls)]
    places = [between[place::period] for place in range(period)]
    # A mean, not the median of _spread(): the one long gap between two steps must count.
    return sum(abs(time - statistics.median(place)) for place in places for time in place) / max(
        1, len(between)
    )


def _steps(calls: Sequence[Call], period: int) -> int:
    """How many steps at the end have the same calls."""
    names = [_name(call) for call in calls]
    steps = 0
    while (steps + 1) * period <= len(names) and names[-period:] == names[
        len(names) - (steps + 1) * period :
    ][:period]:
        steps += 1
    return steps


def _timeline(calls: Sequence[Call], period: int) -> list[Issued]:
    """`calls`: whole steps."""
    waits = [_waits(calls, place, period) for place in range(period)]
    return [_issued(calls, index, waits[index % period]) for index in range(len(calls))]


def _waits(calls: Sequence[Call], place: int, period: int) -> bool:
    """Whether the call at this place of each step follows an end, rather than the start of the call before."""
    from_end, from_begin, ended_before = [], [], []
    for index in range(place, len(calls), period):
        ended = _last_ended(calls, index)
        if index == 0 or ended is None:
            continue
        from_end.append(calls[index].begin_ns - calls[ended].end_ns)
        from_begin.append(calls[index].begin_ns - calls[index - 1].begin_ns)
        ended_before.append(calls[index - 1].end_ns <= calls[index].begin_ns)
    if len(from_end) < 2:
        return bool(from_end)
    one, other = _spread(from_end), _spread(from_begin)
    return all(ended_before) if one == other else one < other


def _spread(values: Sequence[int]) -> float:
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def _last_ended(calls: Sequence[Call], index: int) -> int | None:
    """The earlier call that ended last before this one began."""
    ended = [i for i in range(max(0, index - 64), index) if calls[i].end_ns <= calls[index].begin_ns]
    return max(ended, key=lambda i: calls[i].end_ns, default=None)


def _issued(calls: Sequence[Call], index: int, waits: bool) -> Issued:
    call = calls[index]
    if index == 0:
        return Issued(call, None, False, 0.0)
    ended = _last_ended(calls, index)
    if waits and ended is not None:
        return Issued(call, ended, True, float(call.begin_ns - calls[ended].end_ns))
    return Issued(call, index - 1, False, float(call.begin_ns - calls[index - 1].begin_ns))
