# SPDX-License-Identifier: BSD-3-Clause
"""What torch's own interfaces are told of a group, and what they may change: abort hooks, temporary timeouts."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, PROGRAM_DEADLINE, Cluster, on_ranks

from tests.ranks.launch import clean_environment, free_port

HAS_HOOKS = hasattr(dist.ProcessGroup, "register_abort_hook")
needs_hooks = pytest.mark.skipif(not HAS_HOOKS, reason=f"torch {torch.__version__} has no abort hooks")


def register(world):
    """A hook that notes what it saw, on a healthy group."""
    group = dist.group.WORLD
    assert group.supports_abort_hooks
    told = []
    group.register_abort_hook(7, lambda: told.append(threading.current_thread().name))
    dist.all_reduce(torch.ones(4))
    with pytest.raises((ValueError, RuntimeError)):  # a slip of one call's, which no group dies of
        dist.all_gather_into_tensor(torch.ones(3), torch.ones(4))
    assert told == []
    return group, told


def told_of_a_timeout(world, asynchronous):
    group, told = register(world)
    group.set_timeout(timedelta(seconds=1 * PATIENCE))
    if world.rank == 1:
        time.sleep(3 * PATIENCE)
        return 1
    with pytest.raises(dist.DistBackendError, match="all_reduce"):
        if asynchronous:
            dist.all_reduce(torch.ones(4), async_op=True).wait()
        else:
            dist.all_reduce(torch.ones(4))
    return len(told)


@needs_hooks
@pytest.mark.parametrize("asynchronous", [False, True])
def test_abort_hooks_run_before_a_call_that_failed_under_way_says_so(asynchronous):
    with Cluster(2, launcher="plain") as cluster:
        assert cluster.check(told_of_a_timeout, asynchronous=asynchronous) == [1, 1]


def told_of_an_abort(world):
    group, told = register(world)

    def fails():
        raise RuntimeError("a hook's own trouble")

    def aborts():
        told.append("aborts")
        group.abort()  # within a hook: no other one begins

    group.register_abort_hook(8, fails)
    group.register_abort_hook(9, aborts)
    group.register_abort_hook(10, lambda: told.append("taken back"))
    group.unregister_abort_hook(10)
    group.unregister_abort_hook(11)  # there is none
    group.abort()
    assert len(told) == 2
    assert told[1] == "aborts"
    with pytest.raises(dist.DistBackendError, match="aborted"):
        dist.all_reduce(torch.ones(4))


@needs_hooks
def test_abort_hooks_run_once_for_an_abort_whatever_one_of_them_throws():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(told_of_an_abort)


def wait_within_the_hook(world):
    """For the very call that failed."""
    group, told = register(world)
    group.set_timeout(timedelta(seconds=1 * PATIENCE))
    if world.rank == 1:
        time.sleep(3 * PATIENCE)
        return []
    work = dist.all_reduce(torch.ones(4), async_op=True)

    def waits():
        try:
            work.wait()
        except dist.DistBackendError as error:
            told.append(str(error))

    group.register_abort_hook(8, waits)
    time.sleep(2 * PATIENCE)  # the thread that notices it then is none of the program's
    with pytest.raises(dist.DistBackendError, match="all_reduce"):
        work.wait()
    return told[1:]


@needs_hooks
def test_a_hook_that_waits_for_the_call_that_failed_is_refused():
    with Cluster(2, launcher="plain") as cluster:
        told = cluster.check(wait_within_the_hook)[0]
        assert len(told) == 1
        assert "cannot wait" in told[0]


def hooks_come_and_go_while_one_aborts(world):
    """Copying a hook takes Python's lock: not under a lock of altorch's, which registering waits for with Python's."""
    group = dist.group.WORLD
    for number in range(100):
        group.register_abort_hook(number, lambda: None)
    end = time.monotonic() + 2

    def aborts():
        while time.monotonic() < end:
            group.abort()

    thread = threading.Thread(target=aborts, daemon=True)
    thread.start()
    while time.monotonic() < end:
        group.register_abort_hook(1000, lambda: None)
        group.unregister_abort_hook(1000)
    thread.join(20 * PATIENCE)
    assert not thread.is_alive()


@needs_hooks
def test_hooks_are_registered_while_another_thread_aborts():
    with Cluster(1, launcher="plain") as cluster:
        cluster.check(hooks_come_and_go_while_one_aborts)


def fails_while_python_is_held(world, seconds):
    """Rank 0 holds Python's lock: the hook of a group that fails waits for it, and other groups must not."""
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    dist.barrier(group=first)
    dist.barrier(group=second)
    first.set_timeout(timedelta(seconds=1 * PATIENCE))
    if world.rank == 0:
        first.register_abort_hook(1, lambda: None)
        late = dist.all_reduce(torch.ones(4), group=first, async_op=True)  # rank 1 never calls it
        fine = dist.all_reduce(torch.ones(100_000), group=second, async_op=True)
        ctypes.PyDLL(None).sleep(seconds)
        fine.wait()
        with pytest.raises(dist.DistBackendError):
            late.wait()
        return 0.0
    time.sleep(2 * PATIENCE)
    began = time.monotonic()
    dist.all_reduce(torch.ones(100_000), group=second)
    return time.monotonic() - began


@needs_hooks
def test_a_hook_that_waits_for_python_holds_up_no_other_group():
    seconds = int(10 * PATIENCE)
    with Cluster(2, launcher="plain", env={"ALTORCH_SHM_BYTES": "0"}) as cluster:
        assert cluster.check(fails_while_python_is_held, seconds=seconds)[1] < seconds / 2


ENDS_WITH_A_HOOK = """
import datetime, faulthandler, os, time, torch, torch.distributed as dist
faulthandler.dump_traceback_later(100)
dist.init_process_group("al")
dist.all_reduce(torch.ones(4))
dist.group.WORLD.set_timeout(datetime.timedelta(seconds=1))  # not before: the store would wait for no longer, too
if os.environ["RANK"] == "1":
    time.sleep(4)
    os._exit(0)
dist.group.WORLD.register_abort_hook(1, lambda: time.sleep(0.001))
work = dist.all_reduce(torch.ones(4), async_op=True)
time.sleep(0.93)  # its deadline comes while the interpreter ends
"""


@needs_hooks
def test_a_call_may_fail_while_the_interpreter_ends():
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", ENDS_WITH_A_HOOK],
            env=clean_environment(
                {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            ),
        )
        for rank in range(2)
    ]
    try:
        deadline = time.monotonic() + PROGRAM_DEADLINE
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [rank.poll() for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()


def extend(world):
    """Rank 1 is late by more than the group's timeout, and by less than it and the extension."""
    group = dist.group.WORLD
    dist.all_reduce(torch.ones(4))
    backend = group._get_backend(torch.device("cpu"))
    group.set_timeout(timedelta(seconds=1 * PATIENCE))
    backend._add_ephemeral_timeout(timedelta(seconds=4 * PATIENCE))
    backend._add_ephemeral_timeout(timedelta(seconds=3 * PATIENCE))
    if world.rank == 1:
        time.sleep(3 * PATIENCE)
    dist.all_reduce(torch.ones(4))  # has both, and is the first that is done
    if world.rank == 1:
        time.sleep(4 * PATIENCE)
        return 0.0
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="all_reduce"):
        dist.all_reduce(torch.ones(4))
    return (time.monotonic() - began) / PATIENCE


@needs_hooks
def test_a_temporary_timeout_ends_with_the_first_call_that_has_it():
    with Cluster(2, launcher="plain") as cluster:
        assert cluster.check(extend)[0] < 3


def told_of_completions(world, size):
    group, told = dist.group.WORLD, []
    dist.all_reduce(torch.ones(3))  # before the hook: not told
    group._register_on_completion_hook(
        lambda info: told.append((info.op_type, info.seq, info.active_duration, info.time_started))
    )
    assert group._has_hooks()
    first = group._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    works = [dist.all_reduce(torch.ones(count), async_op=True) for count in (3, 100_003)]
    dist.broadcast(torch.ones(4), 0)
    for work in works:
        work.wait()
    with pytest.raises((ValueError, RuntimeError)):  # refused: the hook is not told of it
        dist.all_gather_into_tensor(torch.ones(3), torch.ones(4))
    dist.barrier()
    if size > 1:
        if world.rank == 0:
            dist.send(torch.ones(2), 1)
        elif world.rank == 1:
            dist.recv(torch.ones(2), 0)
    group._wait_for_pending_works()
    kinds = [kind for kind, *_ in told]
    names = [str(kind).rsplit(".", 1)[-1] for kind in kinds]
    # Hooks begin in order. One that waits for Python's lock may be overtaken: another thread goes
    # on with the queue.
    messages = [["SEND"], ["RECV"], []][world.rank] if size > 1 else []
    assert sorted(names) == sorted(["ALLREDUCE"] * 3 + ["BROADCAST", "BARRIER", *messages]), names
    collectives = [
        sequence for name, (_, sequence, *_) in zip(names, told, strict=True) if name not in messages
    ]
    assert sorted(collectives)[:4] == [first + each for each in (1, 2, 3, 4)]
    assert all(duration.total_seconds() >= 0 for *_, duration, _ in told)
    last = dist.all_reduce(torch.ones(1_000_003), async_op=True)
    dist.destroy_process_group()  # which waits for it, as there is a hook
    end = time.monotonic() + 5 * PATIENCE
    while not last.is_completed():  # the thread that has just ended it says so next
        assert time.monotonic() < end
    assert len(told) == len(names) + 1
    return len(told)


@pytest.mark.parametrize("size", [1, 3])
def test_a_completion_hook_is_told_of_every_call_that_is_done(size):
    with Cluster(size, launcher="plain") as cluster:
        cluster.check(told_of_completions, size=size)


def told_after_a_failure(world):
    group, told = dist.group.WORLD, []
    group._register_on_completion_hook(lambda info: told.append(info.seq))
    dist.all_reduce(torch.ones(3))
    group.set_timeout(timedelta(seconds=0.5))
    if world.rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        group._wait_for_pending_works()  # ends with the call's deadline
        with pytest.raises(dist.DistBackendError):
            work.wait()
    else:
        time.sleep(2 * PATIENCE)
    return len(told)


def test_a_completion_hook_is_not_told_of_what_failed_and_no_caller_waits_for_it():
    with Cluster(2, launcher="plain") as cluster:
        assert cluster.check(told_after_a_failure) == [1, 1]


@on_ranks(2)
def test_a_group_without_a_gpu_has_no_memory_to_give_back(world):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.memory_stats() == {"suspend": 0, "suspended": 0, "persist": 0, "total": 0, "host": 0}
    backend.suspend()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world.size] * 3
    backend.resume()


def results_of_works(world):
    result = torch._C._distributed_c10d.WorkResult
    done = dist.all_reduce(torch.ones(3), async_op=True).get_future_result()
    assert result(done.wait()) == result.SUCCESS
    dist.group.WORLD.set_timeout(timedelta(seconds=0.5))
    if world.rank == 1:
        time.sleep(2 * PATIENCE)
        return
    late = dist.all_reduce(torch.ones(3), async_op=True)
    waits = late.get_future_result()
    assert not waits.done()
    with pytest.raises(dist.DistBackendError, match="timed out"):
        late.wait()
    assert result(waits.wait()) == result.TIMEOUT
    assert result(late.get_future_result().wait()) == result.TIMEOUT  # asked for again, later


def test_the_result_of_a_work_says_how_it_ended():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(results_of_works)
