# SPDX-License-Identifier: BSD-3-Clause
"""Who waits for whom: the sentences of `altorch trace`, on reports that no process has made."""

from __future__ import annotations

import pytest

from altorch.cli._waits import Process, conclusion, findings, jobs_of

NOW = 100 * 10**9
STATES = {11: "S", 12: "T", 13: "Z"}  # of processes that do not answer


def call(operation, number, seconds, **more):
    return {
        "operation": operation, "state": "under way", "sequence": number, "dtype": "float32", "bytes": 1 << 20,
        "since_ns": NOW - int(seconds * 1e9), "timeout_ms": 60000, "thread": 1,
    } | more  # fmt: skip


def message(operation, peer, tag, seconds, **more):
    made = call(operation, 0, seconds, peer=peer, tag=tag, message=1) | more
    del made["sequence"]
    return made


def done(operation, number, seconds):
    return call(operation, number, seconds + 1, state="done", ended_ns=NOW - int(seconds * 1e9))


def group(name, rank, ranks, *calls, sequence=6, last=None, **more):
    made = {
        "name": name, "description": "undefined", "key": f"key of {name}", "rank": rank, "global_ranks": ranks,
        "transport": "shm", "timeout_ms": 60000, "sequence": sequence, "cuda_sequence": 0, "calls": sequence,
        "closed": "", "recorded": True, "calls_under_way": len(calls), "under_way": list(calls),
    } | more  # fmt: skip
    return made | {"last_done": last} if last else made


def process(rank, *groups, job="job", members=None, deaths=None):
    known = members or {str(each): {"pid": 10 + each, "near": True} for each in range(4)}
    for each in groups:
        if job:
            each.setdefault("job", {"name": job, "rank": rank, "members": known, "deaths": deaths or {}})
    report = {"altorch_trace": 1, "pid": 10 + rank, "host": "here", "now_ns": NOW, "groups": list(groups)}
    return Process(10 + rank, report, "S")


def told(*processes):
    (job,) = jobs_of(processes, lambda pid: STATES.get(pid, ""))
    found = findings(job)
    return [each.text for each in found], conclusion(job, found)


def three(**more):
    return {str(each): {"pid": 10 + each, "near": True} for each in range(3)} | more


def test_the_waiting_the_late_and_the_busy_one():
    ranks = [0, 1, 2]
    sentences, end = told(
        process(
            0,
            group("0", 0, ranks, last=done("all_reduce", 6, 14)),
            group("1", 0, [0, 3], call("broadcast", 6, 12, root=1), description="dp"),
            members=three(),
        ),
        process(1, group("0", 1, ranks, last=done("all_reduce", 6, 14)), members=three()),
        process(2, group("0", 2, ranks, call("all_reduce", 7, 12.3), sequence=7), members=three()),
    )
    assert sentences[0] == (
        "rank 2 waits in all_reduce #7 (float32, 1 MiB) of group '0' for 12.3 s; ranks 0 and 1 have not called it: "
        "rank 0 is in broadcast #6 (root 3, float32, 1 MiB) of group '1' (dp) since 12.0 s, "
        "rank 1 is outside of any call, last all_reduce #6 (float32, 1 MiB), 14.0 s ago"
    )
    assert "rank 3 has not called it: it is not there yet, or cannot be asked from here" in sentences[1]
    assert end.startswith("All waiting ranks wait, in the end, for rank 1, which is outside of any call")
    assert "; rank 3, which" in end


@pytest.mark.parametrize(
    ("rank", "why"),
    [
        (1, "has no group that can be asked any more (process 11, state S)"),
        (2, "is stopped (process 12; `kill -CONT 12` lets it go on)"),
        (3, "has ended (process 13, a zombie)"),
    ],
)
def test_ranks_that_do_not_answer(rank, why):
    waiting = group("0", 0, [0, rank], call("barrier", 3, 5), sequence=3)
    sentences, end = told(process(0, waiting))
    assert sentences[0].endswith(f"rank {rank} has not called it: it {why}")
    assert end == f"All waiting ranks wait, in the end, for rank {rank}, which {why}"


def test_a_rank_that_answers_too_late_a_dead_one_and_one_elsewhere():
    members = {str(each): {"pid": 10 + each, "near": each < 3} for each in range(4)}
    waiting = group("0", 0, [0, 1, 2, 3], call("barrier", 3, 5), sequence=3)
    sentences, _ = told(
        process(0, waiting, members=members, deaths={"2": "process 12 has ended"}), Process(11, None, "D")
    )
    assert "rank 1 does not answer (process 11, state D)" in sentences[0]
    assert "rank 2 is lost (process 12 has ended)" in sentences[0]
    assert "rank 3 is on another machine, or in another container: run `altorch trace` there" in sentences[0]


def test_process_numbers_of_a_container_mean_nothing_here():
    asked = process(0, group("0", 0, [0, 1], call("barrier", 3, 5), sequence=3))
    asked.pid = 5000  # as this shell sees it
    sentences, _ = told(asked)
    assert "another container" in sentences[0]


def test_ranks_that_disagree():
    ranks = [0, 1, 2]
    sentences, _ = told(
        process(0, group("0", 0, ranks, call("all_reduce", 7, 3), sequence=7), members=three()),
        process(1, group("0", 1, ranks, call("broadcast", 7, 3, root=0), sequence=7), members=three()),
        process(2, group("0", 2, ranks, call("all_reduce", 7, 3), sequence=7), members=three()),
    )
    assert sentences == [
        "group '0': the ranks disagree about #7, for 3.0 s: ranks 0 and 2 called all_reduce #7 (float32, 1 MiB); "
        "rank 1 called broadcast #7 (root 0, float32, 1 MiB)"
    ]


def test_all_are_in_it_and_some_are_done():
    two = {str(each): {"pid": 10 + each, "near": True} for each in range(2)}
    both = [
        process(r, group("0", r, [0, 1], call("barrier", 7, 3), sequence=7), members=two) for r in range(2)
    ]
    sentences, end = told(*both)
    assert "ranks 0 and 1 wait in barrier #7" in sentences[0] and "all ranks are in it" in sentences[0]
    assert end == ""
    root = process(0, group("0", 0, [0, 1], sequence=7, last=done("broadcast", 7, 3)), members=two)
    sentences, _ = told(root, both[1])
    assert (
        "all ranks have called it, and rank 0 is done with it: rank 0 is outside of any call" in sentences[0]
    )


def test_two_groups_in_different_orders():
    def at(rank, inside, outside):
        return process(
            rank,
            group(inside, rank, [0, 1], call("barrier", 7, 3), sequence=7),
            group(outside, rank, [0, 1]),
            members={str(each): {"pid": 10 + each, "near": True} for each in range(2)},
        )

    _, end = told(at(0, "a", "b"), at(1, "b", "a"))
    assert end == "Ranks 0 and 1 wait for each other: they make these calls in different orders"


def test_cpu_and_cuda_calls_of_one_group():
    """Rank 0's training waits for rank 1, and rank 1's checkpoint for rank 0: two threads on each make that right."""
    two = {str(each): {"pid": 10 + each, "near": True} for each in range(2)}
    training = call("all_reduce", 7, 3, on_gpu=True)
    sentences, end = told(
        process(0, group("0", 0, [0, 1], training, sequence=2, cuda_sequence=7), members=two),
        process(1, group("0", 1, [0, 1], call("gather", 3, 2), sequence=3, cuda_sequence=6), members=two),
    )
    assert sentences[0].startswith(
        "rank 0 waits in all_reduce #7 (CUDA, float32, 1 MiB) of group '0' for 3.0 s; rank 1 has"
    )
    assert sentences[1].startswith(
        "rank 1 waits in gather #3 (float32, 1 MiB) of group '0' for 2.0 s; rank 0 has"
    )
    assert end.endswith("in different orders, unless different threads make the CPU calls and the CUDA calls")


def test_messages():
    def pair(*calls):
        return told(
            *(
                process(
                    rank,
                    group("0", rank, [0, 1], *own),
                    members={str(each): {"pid": 10 + each, "near": True} for each in range(2)},
                )
                for rank, own in enumerate(calls)
            )
        )

    sentences, end = pair((message("recv", 1, 5, 4),), ())
    assert sentences[0].startswith(
        "rank 0 waits in recv from rank 1, tag 5 (float32, 1 MiB) of group '0' for 4.0 s; rank 1 is "
    )
    assert "not in the matching send: it is outside of any call, and has made none" in sentences[0]
    assert end.startswith("All waiting ranks wait, in the end, for rank 1")
    sentences, end = pair((message("recv", 1, 5, 4),), (message("send", 0, 6, 4),))
    assert "rank 1 is in a send with tag 6: both ends must give the same tag" in sentences[0] and end == ""
    sentences, _ = pair((message("recv", -1, 5, 4),), (message("send", 0, 5, 2),))
    assert "recv from any rank, tag 5" in sentences[0] and "is in the matching recv" in sentences[1]
    wait = message("window", 1, 0, 4, access="wait for a signal of", window=2)
    del wait["tag"]
    sentences, _ = pair((wait,), ())
    assert "rank 0 waits in window 2: wait for a signal of rank 1" in sentences[0]


def test_a_group_that_is_made():
    members = {str(each): {"pid": 10 + each, "near": True} for each in range(2)}
    making = group("1", 0, [0, 1], key="", made_since_ns=NOW - 5 * 10**9, meets_at="h:1", sequence=0)
    sentences, end = told(
        process(0, group("0", 0, [0, 1]), making, members=members),
        process(1, group("0", 1, [0, 1]), members=members),
    )
    assert sentences == [
        "rank 0 makes group '1' for 5.0 s; rank 1 has not come: rank 1 is outside of any call, and has made none"
    ]
    assert "rank 1" in end
    # The first one: no rank knows of a job yet.
    first = [
        process(r, group("0", r, [0, 1, 2], key="", made_since_ns=NOW, meets_at="h:1", sequence=0), job="")
        for r in range(2)
    ]
    (job,) = jobs_of(first, lambda _: "")
    assert job.ranks() == [0, 1, 2]
    assert "rank 2 has not come: rank 2 is not there yet" in findings(job)[0].text


def test_what_takes_no_time_is_no_wait():
    _, end = told(process(0, group("0", 0, [0, 1], call("barrier", 3, 0.01), sequence=3)))
    assert end == ""


def test_jobs_are_told_apart():
    jobs = jobs_of(
        [process(0, group("0", 0, [0])), process(1, group("0", 0, [0]), job="other")], lambda _: ""
    )
    assert [job.name for job in jobs] == ["job", "other"]


def test_a_report_that_makes_no_sense_hides_no_job():
    strange = process(0, group("g", 3, []), job=None)
    jobs = jobs_of([strange, process(1, group("b", 1, [0, 1], call("all_reduce", 7, 5)))], lambda pid: "S")
    assert len(jobs) == 2
