# SPDX-License-Identifier: BSD-3-Clause
"""The memory of asynchronous CUDA calls stays with them until the device is done, whichever stream waits for them.

torch's allocator hands freed memory out at once on the stream that it was allocated on. Each test frees a tensor of a
call that cannot have ended yet, and looks at what the allocator gives next: no timing decides.
"""

from __future__ import annotations

import gc
import os
import time
import traceback
import weakref

import pytest
import torch
import torch.distributed as dist
from harness import Cluster, on_ranks
from test_cuda import SPIN, captured, device

from tests.ranks.launch import backend_under_test

pytestmark = pytest.mark.gpu
COUNT = 1 << 20
CYCLES_PER_SECOND = 2_000_000_000  # of an H200; on a slower GPU it takes longer


def begin_all_reduce(world, x):
    return dist.all_reduce(x, async_op=True)


def begin_broadcast(world, x):
    return dist.broadcast(x, 0, async_op=True)


def begin_message(world, x):
    return dist.isend(x, 1) if world.rank == 0 else dist.irecv(x, 0)


def begin_coalesced(world, x):
    with dist._coalescing_manager(device=x.device, async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(x)
    return manager


def begin_list(world, x):
    return dist.all_gather([torch.empty_like(x) for _ in range(world.size)], x, async_op=True)


FORMS = {
    "all_reduce": begin_all_reduce,
    "broadcast": begin_broadcast,
    "message": begin_message,
    "coalesced": begin_coalesced,
    "list": begin_list,
}


def warm_up(world, form):
    FORMS[form](world, torch.ones(COUNT, device=device(world))).wait()
    torch.cuda.synchronize()
    time.sleep(0.3)  # al-cuda-poll lets go of what is done ten times a second
    gc.collect()


@on_ranks(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("end", ["wait", "dropped"])
def test_memory_of_a_call_that_another_stream_waits_for(world, form, end):
    here = device(world)
    warm_up(world, form)
    other = torch.cuda.Stream()
    x = torch.ones(COUNT, device=here)
    place = x.data_ptr()
    torch.cuda._sleep(5 * SPIN)
    work = FORMS[form](world, x)
    del x
    if end == "wait":
        with torch.cuda.stream(other):
            work.wait()
    del work
    kept = [torch.empty(COUNT, device=here) for _ in range(4)]
    assert place not in [tensor.data_ptr() for tensor in kept], "handed out while the call may run"
    torch.cuda.synchronize()
    time.sleep(1)  # al-cuda-poll
    kept += [torch.empty(COUNT, device=here) for _ in range(64)]
    assert place in [tensor.data_ptr() for tensor in kept], (
        "the memory has not come back 1 s after the call's end"
    )


@on_ranks(2)
def test_lists_are_right_where_another_stream_waits(world):
    """The lists travel in a flat copy of altorch's own; what is received shows whether others wrote into it."""
    here = device(world)
    warm_up(world, "list")
    other = torch.cuda.Stream()
    for turn in range(5):
        mine = [torch.full((COUNT + 1,), 10.0 * turn + world.rank, device=here) for _ in range(2)]
        got = [torch.zeros(COUNT + 1, device=here) for _ in range(2)]
        torch.cuda.synchronize()
        if world.rank == 1:
            torch.cuda._sleep(2 * SPIN)  # so rank 0's call waits for this one, and its stream goes on
        work = dist.all_to_all(got, mine, async_op=True)
        with torch.cuda.stream(other):
            work.wait()
        del work
        garbage = [torch.full((count * COUNT,), -7.0, device=here) for count in (1, 2, 3) for _ in range(3)]
        torch.cuda.synchronize()
        assert [part.unique().tolist() for part in got] == [[10.0 * turn], [10.0 * turn + 1]], turn
        del garbage


@on_ranks(2)
@pytest.mark.parametrize("end", ["wait", "dropped"])
def test_memory_of_a_call_that_a_graph_holds(world, end):
    here = device(world)
    if captured(dist.all_reduce, torch.ones(COUNT, device=here)) is None:
        return
    graph, other = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        x = torch.ones(COUNT, device=here)
        place = x.data_ptr()
        work = dist.all_reduce(x, async_op=True)
        del x
        if end == "wait":
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                work.wait()
        del work
        y = torch.full((COUNT,), 5.0, device=here)
        z = torch.ones(COUNT, device=here)
        dist.all_reduce(z)  # brings the group's stream back into the capture
        if end == "wait":
            torch.cuda.current_stream().wait_stream(other)
    assert y.data_ptr() != place, "handed out within the capture"
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert y.eq(5).all() and z.eq(2).all()


@on_ranks(2)
def test_coalesced_messages_come_behind_the_streams_that_they_were_made_on(world):
    """torch keeps collectives of one kind for itself until such a window ends, and hands messages on at once."""
    here = device(world)
    producer = torch.cuda.Stream()
    x, y = torch.zeros(COUNT, device=here), torch.zeros(COUNT, device=here)
    move = dist.isend if world.rank == 0 else dist.irecv
    for turn in range(1, 6):
        torch.cuda.synchronize()
        with dist._coalescing_manager(device=here, async_ops=True) as manager:
            move(x.fill_(turn if world.rank == 0 else 0), 1 - world.rank)
            with torch.cuda.stream(producer):
                torch.cuda._sleep(SPIN)
                move(y.fill_(10 * turn if world.rank == 0 else 0), 1 - world.rank)
        manager.wait()
        assert x.eq(turn).all(), turn
        assert y.eq(10 * turn).all(), turn


def end_with_work_in_flight(world):
    """The group ends 20 s after it was told to, the device comes to the call some 6 s later."""
    here = device(world)
    x = torch.ones(COUNT, device=here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    place = x.data_ptr()
    torch.cuda._sleep(27 * CYCLES_PER_SECOND)
    dist.all_reduce(x, async_op=True)
    del x
    dist.destroy_process_group()
    kept = [torch.full((COUNT,), 3.0, device=here) for _ in range(4)]
    assert place not in [tensor.data_ptr() for tensor in kept]
    torch.cuda.synchronize()
    assert all(tensor.eq(3).all() for tensor in kept)


def test_a_group_that_ends_before_its_device_keeps_the_memory():
    if backend_under_test() != "al":
        pytest.skip("of altorch's groups")
    with Cluster(2) as cluster:
        cluster.check(end_with_work_in_flight, deadline=120)


def holds_group(value):
    """Returns whether a dict or list of torch's contains a process group, at any depth."""
    entries = (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    )
    return any(isinstance(entry, dist.ProcessGroup) or holds_group(entry) for entry in entries)


def forget_groups():
    """As the end of a program does: torch forgets all groups, none is destroyed first."""
    torch_groups = dist.distributed_c10d
    for owner in (torch_groups._world, torch_groups):
        for value in vars(owner).values():
            if isinstance(value, dict) and (owner is torch_groups._world or holds_group(value)):
                value.clear()
    torch_groups._world.default_pg = None
    torch_groups.GroupMember.WORLD = None
    gc.collect()


def forget_in_child():
    """Exits with 0, and with 2 where something still holds the group."""
    try:
        ended = weakref.ref(dist.group.WORLD)
        forget_groups()
        os._exit(0 if ended() is None else 2)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def fork_and_exit(world):
    here = device(world)
    x = torch.ones(COUNT, device=here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    for turn in range(3):
        work = dist.all_reduce(x.fill_(1.0), async_op=True)
        child = os.fork()
        if child == 0:
            del work
            forget_in_child()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        work.wait()
        torch.cuda.synchronize()
        assert x.eq(world.size).all(), turn
    dist.all_reduce(x.fill_(1.0))
    assert x.eq(world.size).all()


def test_a_forked_child_leaves_the_groups_of_its_parent_alone():
    if backend_under_test() != "al":
        pytest.skip("of altorch's groups")
    with Cluster(2) as cluster:
        cluster.check(fork_and_exit, deadline=90)
