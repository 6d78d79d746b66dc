# SPDX-License-Identifier: BSD-3-Clause
"""Which ranks wait for which, from the reports of a job's processes (csrc/trace/report_json.cpp).

Asks no process: reports come in, sentences go out. Ranks are those of the job; a group may number its ranks
differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from altorch.cli._output import human_bytes

Report = dict[str, Any]
Call = dict[str, Any]
Group = dict[str, Any]

LONG = 1.0  # seconds: what takes less is no wait to speak of


@dataclass
class Process:
    """One that can be asked."""

    pid: int  # as this shell sees it
    report: Report | None  # None: it did not answer
    state: str = ""  # a letter of /proc/PID/stat


@dataclass
class Job:
    name: str
    processes: dict[int, Process]  # by rank; those that could be asked
    silent: dict[int, str] = field(default_factory=dict)  # of the other ranks: why, as a clause

    def ranks(self) -> list[int]:
        return sorted({*self.processes, *self.silent})

    def group_keys(self) -> list[str]:
        keys = (key_of(group) for rank in self.ranks() for group in self.groups(rank))
        return list(dict.fromkeys(keys))

    def groups(self, rank: int) -> list[Group]:
        process = self.processes.get(rank)
        return list(process.report["groups"]) if process and process.report else []

    def group(self, rank: int, key: str) -> Group | None:
        return next((group for group in self.groups(rank) if key_of(group) == key), None)

    def now_ns(self, rank: int) -> int:
        report = self.processes[rank].report
        return int(report["now_ns"]) if report else 0


@dataclass(frozen=True)
class Finding:
    """One call that ranks wait in."""

    group: str  # its key
    text: str
    seconds: float
    waiting: tuple[int, ...]
    awaited: tuple[int, ...]  # the ranks that they wait for, as far as known
    counter: str = ""  # of a collective: the key of the group's report that counts its kind


# ---------------------------------------------------------------------------------------------------- jobs


def key_of(group: Group) -> str:
    """A name of the group, the same on all its ranks. While the group is made, it has no unique name yet."""
    return str(group["key"] or f"{group['name']} {group['global_ranks']}")


def job_name(report: Report) -> str:
    """Of the largest set of ranks that watch each other; before the first group is made, what is known of that one."""
    jobs = [group["job"] for group in report["groups"] if group.get("job")]
    if jobs:
        return str(max(jobs, key=lambda job: len(job["members"]))["name"])
    return " ".join(f"{group.get('meets_at', '')} {key_of(group)}" for group in report["groups"][:1])


def rank_of(report: Report) -> int:
    name = job_name(report)
    for group in report["groups"]:
        if group.get("job") and group["job"]["name"] == name:
            return int(group["job"]["rank"])
    # Whatever a process of another job says of itself: this one is to be seen.
    return next(
        (int(rank) for group in report["groups"] for rank in group["global_ranks"][group["rank"] :][:1]), 0
    )


def jobs_of(processes: Iterable[Process], state_of: Callable[[int], str]) -> list[Job]:
    """`state_of`: a process's letter in /proc, empty where there is no such process."""
    all_ranks = list(processes)
    jobs: dict[str, Job] = {}
    for process in all_ranks:
        if process.report and process.report["groups"]:
            name = job_name(process.report)
            jobs.setdefault(name, Job(name, {})).processes[rank_of(process.report)] = process
    silent = {process.pid: process for process in all_ranks if process.report is None}
    for job in jobs.values():
        _add_silent(job, silent, state_of)
    return sorted(jobs.values(), key=lambda job: min(p.pid for p in job.processes.values()))


def _add_silent(job: Job, silent: dict[int, Process], state_of: Callable[[int], str]) -> None:
    deaths: dict[int, str] = {}
    members: dict[int, tuple[int, bool]] = {}
    for process in job.processes.values():
        report = process.report or {"groups": []}
        same_numbers = report.get("pid") == process.pid
        for group in report["groups"]:
            known = group.get("job") or {"members": {}, "deaths": {}}
            deaths |= {int(rank): why for rank, why in known["deaths"].items()}
            for rank, member in known["members"].items():
                near = bool(member["near"]) and same_numbers
                if near or int(rank) not in members:
                    members[int(rank)] = (int(member["pid"]), near)
            for rank in group["global_ranks"]:
                members.setdefault(int(rank), (0, False))
    for rank in sorted(members.keys() - job.processes.keys()):
        pid, near = members[rank]
        if rank in deaths:
            job.silent[rank] = f"is lost ({deaths[rank]})"
        elif pid == 0:
            job.silent[rank] = "is not there yet, or cannot be asked from here"
        elif near:
            state = silent[pid].state if pid in silent else state_of(pid)
            job.silent[rank] = _why_silent(pid, state, pid in silent)
        else:
            job.silent[rank] = "is on another machine, or in another container: run `altorch trace` there"


def _why_silent(pid: int, state: str, has_socket: bool) -> str:
    if not state or state in "ZX":
        return f"has ended (process {pid}{', a zombie' if state == 'Z' else ''})"
    if state == "T":
        return f"is stopped (process {pid}; `kill -CONT {pid}` lets it go on)"
    if state == "t":
        return f"is held by a debugger (process {pid})"
    if has_socket:
        return f"does not answer (process {pid}, state {state})"
    return f"has no group that can be asked any more (process {pid}, state {state})"


# ---------------------------------------------------------------------------------------------------- words


def and_list(items: Iterable[Any]) -> str:
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def ranks_text(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    return f"rank{'s' if len(numbers) > 1 else ''} {and_list(numbers)}"


def seconds_text(seconds: float) -> str:
    if seconds < 100:
        return f"{max(seconds, 0):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def group_text(group: Group) -> str:
    description = group["description"]
    known = description and description not in ("undefined", group["name"])
    return f"group '{group['name']}'" + (f" ({description})" if known else "")


def call_text(group: Group, call: Call) -> str:
    """`all_reduce #7 (float32, 1 MiB)`, `recv from rank 2, tag 5 (int64, 8 B)`."""
    text = str(call["operation"])
    if "access" in call:
        text += f" {call['window']}: {call['access']}"
        text += f" rank {group['global_ranks'][call['peer']]}" if "peer" in call else ""
    elif "peer" in call:
        way = "to" if text == "send" else "from"
        peer = "any rank" if call["peer"] < 0 else f"rank {group['global_ranks'][call['peer']]}"
        text += f" {way} {peer}, tag {call['tag']}"
    else:
        text += f" #{call['sequence']}"
    details = ["CUDA"] if call.get("on_gpu") else []
    if "root" in call:
        details.append(f"root {group['global_ranks'][call['root']]}")
    if "bytes" in call:
        details += [call["dtype"], human_bytes(call["bytes"])]
    return text + (f" ({', '.join(details)})" if details else "")


def age(job: Job, rank: int, since_ns: int) -> float:
    return (job.now_ns(rank) - since_ns) / 1e9


def doing(job: Job, rank: int, seen_from: str = "") -> str:
    """What a rank is at, as a clause. `seen_from`: the key of the group that needs no name in it."""
    if rank in job.silent:
        return job.silent[rank]
    making = [group for group in job.groups(rank) if group.get("made_since_ns")]
    calls = [(call["since_ns"], group, call) for group in job.groups(rank) for call in group["under_way"]]
    if calls:
        since, group, call = min(calls, key=lambda each: (each[2]["state"] == "queued", each[0]))
        where = "" if key_of(group) == seen_from else f" of {group_text(group)}"
        return f"is in {call_text(group, call)}{where} since {seconds_text(age(job, rank, since))}"
    if making:
        since = making[0]["made_since_ns"]
        return f"is making {group_text(making[0])} since {seconds_text(age(job, rank, since))}"
    ended = [(group["last_done"], group) for group in job.groups(rank) if group.get("last_done")]
    if not ended:
        return "is outside of any call, and has made none"
    last, group = max(ended, key=lambda each: each[0]["ended_ns"])
    where = "" if key_of(group) == seen_from else f" of {group_text(group)}"
    ago = seconds_text(age(job, rank, last["ended_ns"]))
    return f"is outside of any call, last {call_text(group, last)}{where}, {ago} ago"


# ---------------------------------------------------------------------------------------------------- waits


def findings(job: Job) -> list[Finding]:
    """The longest wait first."""
    found: list[Finding] = []
    for key in job.group_keys():
        members = {rank: group for rank in job.ranks() if (group := job.group(rank, key))}
        found += _creations(job, key, members)
        found += _collectives(job, key, members)
        found += _messages(job, key, members)
    return sorted(found, key=lambda each: -each.seconds)


def _collectives(job: Job, key: str, members: dict[int, Group]) -> list[Finding]:
    heads: dict[tuple[str, int], dict[int, Call]] = {}  # by the group's counter and the number, by rank
    for rank, group in members.items():
        for on_gpu, counter in ((False, "sequence"), (True, "cuda_sequence")):
            calls = [
                call
                for call in group["under_way"]
                if "sequence" in call and call.get("on_gpu", False) == on_gpu
            ]
            if calls:
                first = min(calls, key=lambda call: call["sequence"])
                heads.setdefault((counter, first["sequence"]), {})[rank] = first
    return [_collective(job, key, members, counter, calls) for (counter, _), calls in sorted(heads.items())]


def _collective(
    job: Job, key: str, members: dict[int, Group], counter: str, calls: dict[int, Call]
) -> Finding:
    waiting = sorted(calls)
    sequence = calls[waiting[0]]["sequence"]
    group = members[waiting[0]]
    seconds = max(age(job, rank, call["since_ns"]) for rank, call in calls.items())
    kinds: dict[str, list[int]] = {}
    for rank in waiting:
        call = calls[rank]
        kinds.setdefault(f"{call['operation']} {call.get('dtype', '')} {call.get('root', '')}", []).append(
            rank
        )
    if len(kinds) > 1:
        called = "; ".join(
            f"{ranks_text(ranks)} called {call_text(group, calls[ranks[0]])}" for ranks in kinds.values()
        )
        gpu = " (CUDA)" if counter == "cuda_sequence" else ""
        text = f"{group_text(group)}: the ranks disagree about #{sequence}{gpu}, for {seconds_text(seconds)}: {called}"
        return Finding(key, text, seconds, tuple(waiting), (), counter)
    missing: list[int] = []
    done: list[int] = []  # with their part
    for rank in group["global_ranks"]:
        if rank in calls:
            continue
        other = members.get(rank)
        (missing if other is None or other.get(counter, 0) < sequence else done).append(rank)
    verb = "waits" if len(waiting) == 1 else "wait"
    text = f"{ranks_text(waiting)} {verb} in {call_text(group, calls[waiting[0]])} of {group_text(group)} "
    text += f"for {seconds_text(seconds)}; "
    if missing:
        text += _not_come(job, key, missing)
    elif done:
        text += f"all ranks have called it, and {ranks_text(done)} {'is' if len(done) == 1 else 'are'} done with it: "
        text += "; ".join(f"rank {rank} {doing(job, rank, key)}" for rank in done)
    else:
        text += (
            "all ranks are in it: it goes on, or what carries it hangs (look at the cores and at the network)"
        )
    return Finding(key, text, seconds, tuple(waiting), tuple(missing), counter)


def _not_come(job: Job, key: str, missing: list[int]) -> str:
    if len(missing) == 1:
        return f"rank {missing[0]} has not called it: it {doing(job, missing[0], key)}"
    shown, more = missing[:8], len(missing) - 8
    text = ", ".join(f"rank {rank} {doing(job, rank, key)}" for rank in shown)
    return f"{ranks_text(missing)} have not called it: {text}" + (f", and {more} more" if more > 0 else "")


def _messages(job: Job, key: str, members: dict[int, Group]) -> list[Finding]:
    found = []
    for rank, group in members.items():
        for call in group["under_way"]:
            if "sequence" in call:
                continue
            seconds = age(job, rank, call["since_ns"])
            text = f"rank {rank} waits in {call_text(group, call)} of {group_text(group)} for {seconds_text(seconds)}"
            if call.get("peer", -1) < 0:
                others = [other for other in group["global_ranks"] if other != rank]
                found.append(Finding(key, text, seconds, (rank,), tuple(others)))
                continue
            peer = group["global_ranks"][call["peer"]]
            other, awaited = _other_end(job, key, members, group["rank"], call, peer)
            found.append(Finding(key, f"{text}; {other}", seconds, (rank,), awaited))
    return found


def _other_end(
    job: Job, key: str, members: dict[int, Group], own: int, call: Call, peer: int
) -> tuple[str, tuple[int, ...]]:
    """What has become of the other end of a message; `own`: this rank's number in the group."""
    if "access" in call:
        return f"rank {peer} {doing(job, peer, key)}", (peer,)
    wanted = "recv" if call["operation"] == "send" else "send"
    ends = [
        end
        for end in members.get(peer, {"under_way": []})["under_way"]
        if end["operation"] == wanted and end.get("peer") in (own, -1)
    ]
    if any(end["tag"] == call["tag"] for end in ends):
        return f"rank {peer} is in the matching {wanted}", ()
    if ends:
        return f"rank {peer} is in a {wanted} with tag {ends[0]['tag']}: both ends must give the same tag", ()
    return f"rank {peer} is not in the matching {wanted}: it {doing(job, peer, key)}", (peer,)


def _creations(job: Job, key: str, members: dict[int, Group]) -> list[Finding]:
    making = {rank: group for rank, group in members.items() if group.get("made_since_ns")}
    if not making:
        return []
    group = next(iter(making.values()))
    seconds = max(age(job, rank, each["made_since_ns"]) for rank, each in making.items())
    missing = [rank for rank in group["global_ranks"] if rank not in making]
    text = f"{ranks_text(making)} {'makes' if len(making) == 1 else 'make'} {group_text(group)} "
    text += f"for {seconds_text(seconds)}; "
    if missing:
        told = ", ".join(f"rank {rank} {doing(job, rank, key)}" for rank in missing[:8])
        text += f"{ranks_text(missing)} {'has' if len(missing) == 1 else 'have'} not come: {told}"
    else:
        text += "all ranks have come"
    return [Finding(key, text, seconds, tuple(sorted(making)), tuple(missing))]


def conclusion(job: Job, found: Iterable[Finding]) -> str:
    """The ranks that all waits lead to; empty if there is no long wait, or nothing to say."""
    edges: dict[int, set[int]] = {}
    for each in found:
        for rank in each.waiting if each.seconds >= LONG else ():
            edges.setdefault(rank, set()).update(set(each.awaited) - {rank})
    awaited = set().union(*edges.values()) if edges else set()
    last = sorted(rank for rank in awaited if not edges.get(rank))
    if last:
        return "All waiting ranks wait, in the end, for " + "; ".join(
            f"rank {rank}, which {doing(job, rank)}{_place(job, rank)}" for rank in last
        )
    if circle := _circle(edges):
        text = f"{ranks_text(circle).capitalize()} wait for each other: they make these calls in different orders"
        both = len({each.counter for each in found if each.counter and set(each.waiting) & set(circle)}) > 1
        return text + (", unless different threads make the CPU calls and the CUDA calls" if both else "")
    return ""


def _place(job: Job, rank: int) -> str:
    process = job.processes.get(rank)
    place = process.report.get("place") if process and process.report else ""
    return f"; its program is at {place}" if place else ""


def _circle(edges: dict[int, set[int]]) -> list[int]:
    for start in sorted(edges):
        path, rank = [], start
        while rank not in path and edges.get(rank):
            path.append(rank)
            rank = min(edges[rank])
        if rank in path:
            return path[path.index(rank) :]
    return []
