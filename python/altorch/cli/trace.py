# SPDX-License-Identifier: BSD-3-Clause
"""`altorch trace`: the current calls of the ranks of this machine, and which ranks wait for which.

Works on a live or a hung job.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from altorch.cli._output import console, print_json, print_table
from altorch.cli._processes import ask_all, state_of, thread_text
from altorch.cli._waits import (
    LONG,
    Group,
    Job,
    age,
    call_text,
    conclusion,
    findings,
    group_text,
    jobs_of,
    seconds_text,
)

SUMMARY = "What the ranks of a running or hung job are at, and who waits for whom."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pids",
        nargs="*",
        type=int,
        metavar="PID",
        help="only the jobs that these processes belong to (default: all jobs of this user; for root, of all users)",
    )
    parser.add_argument("--watch", type=float, metavar="SECONDS", help="look again and again, until Ctrl-C")
    parser.add_argument(
        "--dump",
        action="store_true",
        help="have every process write torch's flight-record file too (torch 2.15 and later)",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the answers of one job as a page, too"
    )
    parser.epilog = (
        "Ranks on other machines, and in containers with a network of their own, are asked there. A process that "
        "cannot be asked has no group of backend 'al', or ALTORCH_TRACE=off. SIGUSR1 has one process say the same on "
        "its standard error."
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.html:
        from altorch import report

        if problem := report.unwritable(arguments.html):
            print(f"altorch trace: --html: {problem}", file=sys.stderr)
            return 2
    try:
        while True:
            status = _look(arguments)
            if not arguments.watch:
                return status
            time.sleep(max(arguments.watch, 0.1))
            if sys.stdout.isatty() and not arguments.json:
                console().clear()
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"altorch trace: {error}. It looks for sockets in /proc/net/unix, on Linux.", file=sys.stderr)
        return 2


def _look(arguments: argparse.Namespace) -> int:
    processes, others = ask_all("report")
    jobs = jobs_of(processes, state_of)
    if arguments.pids:
        jobs = [
            job for job in jobs if {process.pid for process in job.processes.values()} & {*arguments.pids}
        ]
        known = {process.pid for process in processes}
        for pid in arguments.pids:
            if pid not in known:
                print(f"altorch trace: {_unsupported_reason(pid, others)}", file=sys.stderr)
    dumps = _dump(jobs) if arguments.dump else {}
    documents = [_document(job, dumps) for job in jobs] if arguments.json or arguments.html else []
    if arguments.html and jobs and (problem := _write_page(arguments.html, documents)):
        print(f"altorch trace: --html: {problem}", file=sys.stderr)
        return 2
    if arguments.json:
        print_json({"jobs": documents})
        return 0 if jobs else 1
    if not jobs:
        if not arguments.pids:
            unasked = f" {len(others)} of other users: ask as that user, or as root." if others else ""
            silent = [process.pid for process in processes if process.report is None]
            unanswered = f" Processes {silent} do not answer; are they stopped?" if silent else ""
            print(
                f"altorch trace: no process on this machine has a group of backend 'al' that can be asked.{unasked}"
                f"{unanswered} Ranks in containers are asked inside; ALTORCH_TRACE=off keeps a process from answering.",
                file=sys.stderr,
            )
        return 1
    for job in jobs:
        _print(job, dumps)
    return 0


def _unsupported_reason(pid: int, others: list[int]) -> str:
    if pid in others:
        return f"process {pid} belongs to another user; ask as that user, or as root."
    if not state_of(pid):
        return f"there is no process {pid}; `altorch trace` without numbers lists those that can be asked."
    return (
        f"process {pid} cannot be asked: it has no group of backend 'al' now, or ALTORCH_TRACE=off, or runs in a "
        "container with a network of its own (ask inside)."
    )


def _dump(jobs: list[Job]) -> dict[int, str]:
    wanted = {process.pid for job in jobs for process in job.processes.values()}
    answered, _ = ask_all("dump")
    return {
        p.pid: str((p.report or {}).get("dump", "it did not answer")) for p in answered if p.pid in wanted
    }


def _write_page(file: Path, documents: list[dict[str, Any]]) -> str:
    """Why there is no page; empty: there is one."""
    from altorch import report

    try:
        report.write_trace(file, {"jobs": documents})
    except ValueError as error:
        return str(error)
    return ""


def _document(job: Job, dumps: dict[int, str]) -> dict[str, Any]:
    found = findings(job)
    return {
        "job": job.name,
        "ranks": {
            rank: {
                "pid": process.pid,
                "state": process.state,
                "dump": dumps.get(process.pid),
                **(process.report or {}),
            }
            for rank, process in sorted(job.processes.items())
        },
        "silent": job.silent,
        "findings": [vars(each) for each in found],
        "conclusion": conclusion(job, found),
    }


# ---------------------------------------------------------------------------------------------------- tables


def _print(job: Job, dumps: dict[int, str]) -> None:
    hosts = sorted({process.report["host"] for process in job.processes.values() if process.report})
    pids = ", ".join(str(process.pid) for _, process in sorted(job.processes.items())[:8])
    more = ", ..." if len(job.processes) > 8 else ""
    answer = f"{len(job.processes)} of {len(job.ranks())} rank(s) answer"
    print(f"Job: {answer}, on {', '.join(hosts)} (processes {pids}{more})\n")
    idle = []
    for key in job.group_keys():
        rows = {rank: group for rank in job.ranks() if (group := job.group(rank, key))}
        first = next(iter(rows.values()))
        if any(
            group["under_way"] or group["closed"] or group.get("made_since_ns") for group in rows.values()
        ):
            _print_group(job, rows, first)
        else:
            calls = first.get("calls", first["sequence"])
            idle.append(f"{group_text(first)} of {len(first['global_ranks'])} rank(s), {calls} call(s)")
    if idle:
        print("No rank is in a call of: " + "; ".join(idle) + "\n")
    for rank, why in job.silent.items():
        print(f"rank {rank} {why}")
    found = findings(job)
    long = [each for each in found if each.seconds >= LONG]
    for each in long:
        print(f"- {each.text}")
    if end := conclusion(job, found):
        print(f"\n{end}.")
    if not long:
        print(f"No rank has been in a call for more than {LONG:g} s.")
    for pid, where in dumps.items():
        print(f"flight record of process {pid}: {where}")
    print()


def _print_group(job: Job, rows: dict[int, Group], first: Group) -> None:
    title = f"{group_text(first)}, {len(first['global_ranks'])} rank(s)"
    if first["transport"]:
        title += f", over {first['transport']}"
    table = []
    for rank in sorted({*rows, *first["global_ranks"]}):
        group = rows.get(rank)
        if group is None:
            table.append([rank, "", job.silent.get(rank, "has no such group"), "", "", ""])
            continue
        table += _rows(job, rank, group)
    print_table(
        title, ["rank", "process", "in", "for", "thread", "done last"], table, right=["rank", "process"]
    )


def _rows(job: Job, rank: int, group: Group) -> list[list[Any]]:
    pid = job.processes[rank].pid
    last, ended = group.get("last_done"), "nothing"
    if last:
        how = " (failed)" if last["state"] == "failed" else ""
        ended = f"{call_text(group, last)}{how}, {seconds_text(age(job, rank, last['ended_ns']))} ago"
    if group.get("made_since_ns"):
        return [[rank, pid, "being made", seconds_text(age(job, rank, group["made_since_ns"])), "", ended]]
    if group["closed"]:
        return [[rank, pid, f"closed: {group['closed']}", "", "", ended]]
    rows = []
    for call in group["under_way"][:4]:
        name = call_text(group, call) + (" (queued)" if call["state"] == "queued" else "")
        since = seconds_text(age(job, rank, call["since_ns"]))
        rows.append([rank, pid, name, since, thread_text(pid, call["thread"]), ended])
    if (more := group["calls_under_way"] - len(rows)) > 0:
        rows.append(["", "", f"and {more} more", "", "", ""])
    return rows or [[rank, pid, "no call" if group["recorded"] else "not recorded", "", "", ended]]
