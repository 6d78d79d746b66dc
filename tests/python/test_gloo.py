# SPDX-License-Identifier: BSD-3-Clause
"""What only the fallback over torch's Gloo does: its frames and announced messages, its interface, its patience."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import Cluster, on_ranks

from altorch import _gloo

GLOO = {"ALTORCH_MPI": "none", "ALTORCH_SHM_BYTES": "0"}
FRAME = 256 << 10  # bytes: larger messages are announced first


def need_al(world):
    if not world.is_al:
        pytest.skip("needs backend 'al'")


def payload(size, seed):
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("addresses", "own", "chosen"),
    [
        (["127.0.0.1", "127.0.0.1"], "127.0.0.1", "127.0.0.1"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.2", "10.0.0.2"),
        (["127.0.0.1", "10.0.0.2"], "10.0.0.2", ""),
        (["10.0.0.1", ""], "10.0.0.1", ""),
        (["::1", "::1"], "::1", "::1"),
        (["fe80::1%eth0", "fe80::2%eth0"], "fe80::2%eth0", "fe80::2%eth0"),
    ],
)
def test_ranks_agree_on_the_kind_of_address(addresses, own, chosen):
    assert _gloo.agree(addresses, own) == chosen


def test_address_follows_the_route_to_the_master(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert _gloo.local_address() == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert _gloo.local_address() == ""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.delenv("MASTER_ADDR")
    assert _gloo.local_address() == ""


@on_ranks(2, env=GLOO)
def test_statistics_name_the_transport(world):
    need_al(world)
    from altorch._extension import extension

    dist.all_reduce(torch.ones(10))
    rows = extension().stats(dist.group.WORLD._get_backend(torch.device("cpu")))
    routes = [row["route"] for row in rows if row["operation"] == "all_reduce"]
    assert routes and all(route.startswith("gloo:") for route in routes), rows


@on_ranks(2, env=GLOO)
@pytest.mark.parametrize("size", [0, 1, FRAME - 1, FRAME, FRAME + 1, 3 * FRAME])
@pytest.mark.parametrize("late", ["sender", "receiver"])
def test_messages_around_the_size_of_a_frame(world, size, late):
    need_al(world)
    dist.barrier()
    if (world.rank == 0) == (late == "sender"):
        time.sleep(0.2)
    if world.rank == 0:
        dist.send(payload(size, 5), 1)
    else:
        got = torch.zeros(size, dtype=torch.uint8)
        assert dist.recv(got) == 0
        assert torch.equal(got, payload(size, 5))


@on_ranks(2, env=GLOO)
def test_large_messages_both_ways_and_out_of_order(world):
    need_al(world)
    peer, count = 1 - world.rank, 8
    sizes = [FRAME // 2 + n * FRAME // 2 for n in range(count)]
    got = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    sends = [dist.isend(payload(sizes[n], n), peer, tag=n) for n in range(count)]
    receives = [dist.irecv(got[n], peer, tag=n) for n in reversed(range(count))]
    for work in [*receives, *sends]:
        work.wait()
    for n in range(count):
        assert torch.equal(got[n], payload(sizes[n], n)), n


@on_ranks(2, env=GLOO)
@pytest.mark.parametrize(
    ("sent", "awaited"), [(40, 80), (80, 40), (2 * FRAME, FRAME), (2 * FRAME, 3 * FRAME)]
)
def test_wrong_size_is_an_error_and_closes_the_group_alone(world, sent, awaited):
    need_al(world)
    group = dist.new_group()
    if world.rank == 1:
        with pytest.raises(
            dist.DistBackendError, match=f"has {sent} bytes where this rank expects {awaited}"
        ):
            dist.recv(torch.zeros(awaited, dtype=torch.uint8), 0, group=group)
    elif sent <= FRAME:  # gone before the receiver looks at it
        dist.send(payload(sent, 1), 1, group=group)
    else:
        with pytest.raises(dist.DistBackendError, match=f"A message of {sent} bytes has not the size"):
            dist.send(payload(sent, 1), 1, group=group)
    for _ in range(2):
        with pytest.raises(dist.DistBackendError, match="make a new one"):
            dist.all_reduce(torch.ones(3), group=group)
    total = torch.ones(100_000)
    dist.all_reduce(total)
    assert total[-1] == 2
    dist.destroy_process_group(group)


@on_ranks(2, env=GLOO)
@pytest.mark.parametrize("bytes_", [80, 2 * FRAME])
def test_another_type_is_an_error_on_both_ranks(world, bytes_):
    need_al(world)
    group = dist.new_group()
    if world.rank == 1:
        with pytest.raises(dist.DistBackendError, match="is of int32 where this rank expects float32"):
            dist.recv(torch.zeros(bytes_ // 4), 0, group=group)
    elif bytes_ <= FRAME:  # gone before the receiver looks at it
        dist.send(torch.ones(bytes_ // 4, dtype=torch.int32), 1, group=group)
    else:
        with pytest.raises(dist.DistBackendError, match="has not the size or type"):
            dist.send(torch.ones(bytes_ // 4, dtype=torch.int32), 1, group=group)
    dist.barrier()
    dist.destroy_process_group(group)


@on_ranks(2, env=GLOO)
def test_announced_message_may_be_withdrawn(world):
    """What one group gives up, others on the same connection do not notice."""
    need_al(world)
    group = dist.new_group(timeout=timedelta(seconds=1.5))
    try:
        if world.rank == 0:
            with pytest.raises(dist.DistBackendError, match="not done after its timeout"):
                dist.send(payload(2 * FRAME, 1), 1, group=group)
        dist.barrier()
        got = torch.zeros(2 * FRAME, dtype=torch.uint8)
        if world.rank == 1:
            with pytest.raises(dist.DistBackendError, match=r"withdrew the message|aborted"):
                dist.recv(got, 0, group=group)
        dist.barrier()
        if world.rank == 0:
            dist.send(payload(2 * FRAME, 2), 1)
        else:
            dist.recv(got, 0)
            assert torch.equal(got, payload(2 * FRAME, 2))
    finally:
        dist.destroy_process_group(group)


@on_ranks(2, env=GLOO)
def test_idling_longer_than_the_timeout_is_no_failure(world):
    need_al(world)
    group = dist.new_group(timeout=timedelta(seconds=1))
    time.sleep(3)
    total = torch.ones(1000)
    dist.all_reduce(total, group=group)
    assert total[0] == 2
    dist.destroy_process_group(group)


@on_ranks(2, env=GLOO)
@pytest.mark.parametrize("size", [8, FRAME])
def test_what_was_sent_arrives_though_the_sender_leaves(world, size):
    need_al(world)
    group = dist.new_group()
    if world.rank == 0:
        for n in range(12):
            dist.send(payload(size, n), 1, group=group)
        dist.destroy_process_group(group)
        del group
        dist.barrier()
        return
    dist.barrier()
    got = torch.zeros(size, dtype=torch.uint8)
    for n in range(12):
        dist.recv(got, 0, group=group)
        assert torch.equal(got, payload(size, n)), n
    dist.destroy_process_group(group)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@on_ranks(2, env=GLOO)
@pytest.mark.parametrize("kind", ["broadcast", "messages"])
def test_what_no_rank_awaits_yet_fills_no_memory(world, kind):
    need_al(world)
    tensor = torch.full((512 * FRAME,), world.rank, dtype=torch.uint8)
    parts = tensor.split(FRAME)
    dist.barrier()
    works = []
    if kind == "messages" and world.rank == 0:
        works = [dist.isend(part, 1) for part in parts]
    elif world.rank == 1:
        before = resident_bytes()
        time.sleep(1.5)
        assert resident_bytes() - before < 32 << 20
    if kind == "broadcast":
        dist.broadcast(tensor, 0)
    elif world.rank == 1:
        works = [dist.irecv(part, 0) for part in parts]
    for work in works:
        work.wait()
    assert torch.count_nonzero(tensor) == 0


def threads_and_sockets():
    return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))


@on_ranks(3, env=GLOO)
def test_further_groups_cost_no_threads_and_no_sockets(world):
    need_al(world)
    all_ranks = list(range(world.size))
    for _ in range(2):  # every thread that large messages need is there then
        dist.all_reduce(torch.ones(FRAME))
        dist.all_to_all_single(torch.empty(3 * FRAME), torch.ones(3 * FRAME))
    dist.barrier()
    threads, sockets = threads_and_sockets()
    groups = [dist.new_group(ranks) for ranks in (all_ranks, [0, 1], [1, 2], all_ranks, [0, 2]) * 2]
    for group in groups:
        if world.rank in dist.get_process_group_ranks(group):
            x = torch.ones(FRAME)
            dist.all_reduce(x, group=group)
            assert x[-1] == dist.get_world_size(group)
    more_threads, more_sockets = threads_and_sockets()
    assert more_threads <= threads + world.size - 1, "a thread for each connection at most"
    assert more_sockets <= sockets + 2
    for group in groups:
        if world.rank in dist.get_process_group_ranks(group):
            dist.destroy_process_group(group)
    dist.barrier()


@on_ranks(2, env=GLOO)
def test_messages_come_before_the_group_and_stay_in_it(world):
    """The same peers and tags in several groups; on one rank the groups are made late and read backwards."""
    need_al(world)
    dist.barrier()
    if world.rank == 1:
        time.sleep(0.5)
    groups = [dist.new_group() for _ in range(4)]
    sizes = [8, FRAME, 3 * FRAME]
    if world.rank == 0:
        works = [
            dist.isend(payload(size, 10 * n + k), 1, group=group)
            for n, group in enumerate(groups)
            for k, size in enumerate(sizes)
        ]
        for work in works:
            work.wait()
    else:
        for n, group in reversed(list(enumerate(groups))):
            for k, size in enumerate(sizes):
                got = torch.zeros(size, dtype=torch.uint8)
                dist.recv(got, 0, group=group)
                assert torch.equal(got, payload(size, 10 * n + k)), (n, k)
    for group in groups:
        dist.destroy_process_group(group)
    dist.barrier()


@on_ranks(2, env=GLOO)
def test_what_a_destroyed_group_has_not_read_is_dropped(world):
    """More of it than the credit that all groups share: the next group's messages still go."""
    need_al(world)
    for _ in range(4):
        group = dist.new_group()
        if world.rank == 0:
            for n in range(12):
                dist.send(payload(FRAME, n), 1, group=group)
        dist.barrier()
        dist.destroy_process_group(group)
        del group
        dist.barrier()  # its message comes behind the credit that rank 1 gives back
    group = dist.new_group()
    if world.rank == 0:
        for n in range(12):
            dist.send(payload(FRAME, n), 1, group=group)
    dist.barrier()
    if world.rank == 1:
        got = torch.zeros(FRAME, dtype=torch.uint8)
        for n in range(12):
            dist.recv(got, 0, group=group)
            assert torch.equal(got, payload(FRAME, n)), n
    dist.destroy_process_group(group)
    dist.barrier()


@on_ranks(2, env=GLOO)
@pytest.mark.parametrize("size", [8, 3 * FRAME])
@pytest.mark.parametrize("waits_in", ["recv", "send"])
def test_who_waits_for_a_rank_that_has_left_the_group_is_told(world, size, waits_in):
    need_al(world)
    if waits_in == "send" and size <= FRAME:
        pytest.skip("the message is gone before the receiver looks at it")
    group = dist.new_group(timeout=timedelta(seconds=60))
    began = time.monotonic()
    if world.rank == 0:
        time.sleep(0.5)
        dist.destroy_process_group(group)
        del group
    else:
        tensor = torch.zeros(size, dtype=torch.uint8)
        with pytest.raises(dist.DistBackendError, match="global rank 0 is lost"):
            dist.recv(tensor, 0, group=group) if waits_in == "recv" else dist.send(tensor, 0, group=group)
        assert time.monotonic() - began < 30
        dist.destroy_process_group(group)
    x = torch.ones(FRAME)
    dist.all_reduce(x)  # of the other group
    assert x[-1] == 2


@on_ranks(2, env=GLOO)
def test_a_rank_that_is_slow_to_look_for_mpi_is_missed_in_time(world):
    """The group's timeout holds for every step by which it is made, but for MPI's own start."""
    need_al(world)
    from altorch import _backend

    look = _backend.Group._standing
    if world.rank == 1:

        def slowly(group, places):
            time.sleep(12)
            return look(group, places)

        _backend.Group._standing = slowly
    began = time.monotonic()
    who = "rank 1 has not come" if world.rank == 0 else "rank 0 has waited no longer"
    try:
        with pytest.raises(RuntimeError, match=who):
            dist.new_group(timeout=timedelta(seconds=3))
        assert time.monotonic() - began < (11 if world.rank == 0 else 20)
    finally:
        _backend.Group._standing = look
    dist.barrier()


def dies_while_gloo_connects(world):
    if world.rank == 2:
        _gloo.make = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        dist.init_process_group("al", timeout=timedelta(seconds=60))
    except RuntimeError as error:
        return str(error), time.monotonic() - began
    return "no error", 0.0


def test_a_rank_that_dies_while_gloo_connects_is_missed_and_named():
    """Gloo itself would look for it until its timeout."""
    with Cluster(3, group=False, launcher="plain", env=GLOO) as cluster:
        outcomes = cluster.run(dies_while_gloo_connects, deadline=60)
    for outcome in outcomes[:2]:
        assert outcome.ok, outcome.report()
        said, seconds = outcome.value
        assert "rank 2 is lost" in said and seconds < 8, (said, seconds)
