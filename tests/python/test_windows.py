# SPDX-License-Identifier: BSD-3-Clause
"""Coalescing windows in which something goes wrong, and windows of several threads."""

from __future__ import annotations

from threading import Thread

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from torch.distributed.distributed_c10d import _world
from torch.testing import assert_close

CPU = torch.device("cpu")


def al_only(world):
    if not world.is_al:
        pytest.skip("Gloo has no coalescing windows")


def check_synchronous_calls(world):
    """Each is done when it returns, though the last rank comes late: its messages are not there earlier."""
    for _ in range(3):
        tensor = torch.full((1 << 14,), float(world.rank + 1))
        dist.barrier()
        dist.all_reduce(tensor)
        assert tensor.eq(world.size * (world.size + 1) / 2).all()
        dist.broadcast(tensor.fill_(world.rank), 0)
        assert tensor.eq(0).all()


@on_ranks(2)
@pytest.mark.parametrize("where", ["torch", "backend"])
def test_batch_that_is_refused_half_way(world, where):
    """torch never ends the window then, if there is one; what was sent before is a message like any other."""
    al_only(world)
    peer = 1 - world.rank
    got = torch.zeros(4)
    refused = got.to_sparse() if where == "torch" else torch.zeros(1).expand(4)
    with pytest.raises((ValueError, NotImplementedError)):
        dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.full((4,), float(world.rank)), peer),
                dist.P2POp(dist.irecv, refused, peer),
            ]
        )
    check_synchronous_calls(world)
    dist.recv(got, peer)
    assert got.eq(peer).all()


@on_ranks(2)
@pytest.mark.parametrize("raised_by", ["the program", "the backend"])
def test_window_that_is_never_ended(world, raised_by):
    """Messages and collectives on the same thread are done when they say so, before and in the next window."""
    al_only(world)
    peer = 1 - world.rank
    group = dist.new_group()
    with pytest.raises((ValueError, KeyError)), dist._coalescing_manager(group, CPU, async_ops=True):
        dist.isend(torch.full((4,), 1.0 + world.rank), peer, group=group)
        if raised_by == "the program":
            raise KeyError
        dist.irecv(torch.zeros(1).expand(4), peer, group=group)
    if raised_by == "the program":
        _world.pg_coalesce_state.clear()  # torch's half, of which the backend hears nothing
    assert group not in _world.pg_coalesce_state
    for late in range(2):
        world.case = f"{raised_by}, rank {late} is late"
        if world.rank == late:
            torch.ones(1 << 22).sort()
        tensor = torch.ones(1 << 14)
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(2).all()
        dist.broadcast(tensor.fill_(world.rank), 1, group=group)
        assert tensor.eq(1).all()
    got = torch.zeros(4)
    dist.recv(got, peer, group=group)
    assert got.eq(1.0 + peer).all()
    with dist._coalescing_manager(group, CPU, async_ops=True) as manager:
        dist.irecv(got, peer, group=group)
        dist.isend(torch.full((4,), 7.0 + world.rank), peer, group=group)
    manager.wait()
    assert got.eq(7.0 + peer).all()
    dist.destroy_process_group(group)


@on_ranks(2, 3)
def test_a_window_ends_with_all_its_calls_done(world):
    al_only(world)
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    got, first, second = torch.zeros(50_000), torch.ones(50_000), torch.full((50_000,), float(world.rank))
    with dist._coalescing_manager(dist.group.WORLD, CPU, async_ops=True) as manager:
        dist.irecv(got, before)
        dist.isend(second.clone(), after)
        dist.broadcast(second, 0, async_op=True)
        dist.broadcast(first.mul_(world.rank + 1), world.size - 1)
    manager.wait()
    assert got.eq(before).all() and second.eq(0).all() and first.eq(world.size).all()


@on_ranks(2)
def test_windows_and_other_threads(world):
    """One thread exchanges batches of messages, another one calls synchronous collectives."""
    al_only(world)
    peer = 1 - world.rank
    errors = []

    def exchange():
        try:
            for n in range(300):
                got = torch.zeros(64)
                for work in dist.batch_isend_irecv(
                    [
                        dist.P2POp(dist.isend, torch.full((64,), float(n)), peer),
                        dist.P2POp(dist.irecv, got, peer),
                    ]
                ):
                    work.wait()
                assert_close(got, torch.full((64,), float(n)))
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=exchange)
    thread.start()
    for _ in range(300):
        tensor = torch.ones(256)
        dist.all_reduce(tensor)
        assert tensor.eq(2).all()
    thread.join()
    assert not errors, errors


@on_ranks(2)
def test_a_window_is_its_thread_s_own(world):
    """Asked of the backend itself: torch keeps one state of windows for all threads."""
    al_only(world)
    backend = dist.group.WORLD._get_backend(CPU)
    wrong = []

    def reduce():
        for _ in range(100):
            tensor = torch.ones(256)
            work = backend.allreduce([tensor])
            if work is not None:
                work.wait()
            wrong.append(not tensor.eq(2).all())

    dist.group.WORLD._start_coalescing(CPU)
    thread = Thread(target=reduce)
    thread.start()
    thread.join()
    dist.group.WORLD._end_coalescing(CPU).wait()
    assert len(wrong) == 100 and not any(wrong)
