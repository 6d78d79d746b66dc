# SPDX-License-Identifier: BSD-3-Clause
"""The ranks that are left after a loss go on in the same processes.

Over every carrier, also where the store went with its host; no rank hangs, and what comes out is right.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import CARRIERS, PATIENCE, Cluster

import altorch

STAY = timedelta(seconds=20 * PATIENCE)


def use(world, group=None):
    """Every kind of call, of all ranks that there are now."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for count in (3, 100_003):
        x = torch.full((count,), float(rank + 1))
        dist.all_reduce(x, group=group)
        assert torch.equal(x, torch.full((count,), size * (size + 1) / 2))
        parts = torch.empty(size * count)
        dist.all_gather_into_tensor(parts, torch.full((count,), float(rank)), group=group)
        assert torch.equal(parts, torch.arange(size).repeat_interleave(count).float())
    last = torch.tensor([float(rank)])
    dist.broadcast(last, group_src=size - 1, group=group)
    assert last.item() == size - 1
    if size > 1:
        to, source = (rank + 1) % size, (rank - 1) % size
        got = torch.empty(5)
        work = dist.isend(torch.full((5,), float(rank)), group_dst=to, group=group)
        dist.recv(got, group_src=source, group=group)
        work.wait()
        assert torch.equal(got, torch.full((5,), float(source)))
    dist.barrier(group=group)


def refused_before_anything_is_ended(world):
    """Of a group that torch keeps no store of; it goes on as it is."""
    group = dist.group.WORLD.split_group([0, 1], timeout=STAY, group_name="of a method")
    with pytest.raises(NotImplementedError, match=r"dist\.split_group"):
        altorch.survivors(group, patience=STAY)
    x = torch.ones(3)
    group.allreduce([x]).wait()
    assert x.tolist() == [2.0] * 3
    dist.barrier()


@pytest.mark.skipif(
    not hasattr(dist.ProcessGroup, "merge_remote_group"), reason="this torch has no such methods"
)
def test_groups_of_methods_are_refused():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(refused_before_anything_is_ended)


def go_on(world, victims):
    """The victims die; the others notice, go on, make further groups, and use them. Returns rank, size, seconds."""
    dist.new_group(list(range(world.size)))  # which goes with the world
    use(world)
    if world.rank in victims:
        with_a_thread_that_kills(0.05 * victims.index(world.rank))
        with suppress(dist.DistBackendError):  # the other one was faster
            while True:
                dist.all_reduce(torch.ones(1_000_003))
        time.sleep(1000)
    with pytest.raises(dist.DistBackendError):
        for _ in range(100_000):
            dist.all_reduce(torch.ones(1_000_003))
    started = time.monotonic()
    group = altorch.survivors(patience=STAY)
    seconds = time.monotonic() - started
    assert group is dist.group.WORLD
    use(world)
    further = dist.new_group(list(reversed(range(dist.get_world_size()))))
    use(world, further)
    return dist.get_rank(), dist.get_world_size(), seconds


def with_a_thread_that_kills(after):
    threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()


def left_of(outcomes, victims):
    all_ranks = "\n".join(outcome.report() for outcome in outcomes)
    for outcome in outcomes:
        assert outcome.status == ("died" if outcome.rank in victims else "ok"), all_ranks
    return [outcome.value for outcome in outcomes if outcome.rank not in victims]


def hosted_here():
    """A store that outlives every rank, as torchrun's does; torchrun itself ends the other ranks when one is lost."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return store, {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": str(store.port)}


@pytest.mark.parametrize(
    ("route", "host", "victims"),
    [
        ("shm", "here", [0, 2]),
        ("shm", "rank 0", [1]),
        ("shm", "rank 0", [0, 2]),
        ("mpi", "rank 0", [0, 2]),
        ("gloo", "rank 0", [0, 2]),
        ("nodes", "here", [0, 2]),  # lost, the store has a successor on one node alone: see the next test
    ],
)
def test_the_ranks_that_are_left_go_on(route, host, victims):
    _store, env = hosted_here() if host == "here" else (None, {})
    with Cluster(4, launcher="plain", env=CARRIERS[route] | env) as cluster:
        left = left_of(cluster.run(go_on, victims=victims), victims)
        assert [rank for rank, _, _ in left] == list(range(4 - len(victims)))
        assert {size for _, size, _ in left} == {4 - len(victims)}
        assert max(seconds for *_, seconds in left) < 10 * PATIENCE


def go_on_while_the_host_ends(world, is_killed):
    """Rank 0, which hosts the store, ends as soon as it may; torch connects rank 1 to the store a second later."""
    from torch.distributed import distributed_c10d

    finalize = distributed_c10d._finalize_shrunk_group
    store = distributed_c10d._get_default_store()

    def slow(*args):
        if world.rank == 1:
            store.set("registering", "")
            time.sleep(1)
        elif is_killed:
            store.wait(["registering"])
            os.kill(os.getpid(), signal.SIGKILL)
        return finalize(*args)

    distributed_c10d._finalize_shrunk_group = slow
    began = time.monotonic()
    if is_killed and world.rank == 1:
        with pytest.raises(dist.DistBackendError, match="the job's store has gone"):
            altorch.survivors(patience=STAY / 4)
        return time.monotonic() - began
    altorch.survivors(patience=STAY / 4)
    dist.destroy_process_group()
    return time.monotonic() - began


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_host_of_the_store_ends_first(is_killed):
    with Cluster(2, launcher="plain", env=CARRIERS["shm"]) as cluster:
        left = left_of(cluster.run(go_on_while_the_host_ends, is_killed=is_killed), [0] if is_killed else [])
    assert max(left) < 20 * PATIENCE


def go_on_with_cuda_tensors(world, victim):
    """On one GPU, which is enough: ranks may share it."""
    torch.cuda.set_device(world.rank % torch.cuda.device_count())
    x = torch.full((10_001,), float(world.rank), device="cuda")
    dist.all_reduce(x)
    assert x.sum().item() == 10_001 * 3
    if world.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError):
        for _ in range(100_000):
            dist.all_reduce(torch.ones(10_001, device="cuda"))
            torch.cuda.synchronize()
    began = time.monotonic()
    altorch.survivors(patience=STAY)
    for count in (5, 1_000_003):
        x = torch.full((count,), float(dist.get_rank() + 1), device="cuda")
        dist.all_reduce(x)
        assert torch.equal(x, torch.full_like(x, 3))
    seconds = time.monotonic() - began
    use(world)
    return seconds


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="no GPU is visible")
@pytest.mark.parametrize("victim", [0, 2])
def test_the_ranks_that_are_left_go_on_with_cuda_tensors(victim):
    with Cluster(3, launcher="plain") as cluster:
        left = left_of(cluster.run(go_on_with_cuda_tensors, victim=victim), [victim])
        print(f"computing again after {max(left):.2f} s")
        assert max(left) < 10 * PATIENCE


def without_a_place_to_meet(world):
    use(world)
    if world.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError):
        for _ in range(100_000):
            dist.all_reduce(torch.ones(3))
    with pytest.raises(dist.DistBackendError, match="Host the store outside of the ranks"):
        altorch.survivors(patience=STAY)


def test_a_store_that_is_lost_among_several_nodes_is_an_error_that_says_so():
    with Cluster(4, launcher="plain", env=CARRIERS["nodes"]) as cluster:
        left_of(cluster.run(without_a_place_to_meet), [0])


def leave_at_once(world):
    """Rank 1 dies. Rank 0, its only neighbour, ends its groups while a call still waits for it."""
    near, far = dist.new_group([0, 1]), dist.new_group([1, 2])
    pids = torch.zeros(3, dtype=torch.int64)
    dist.all_gather_into_tensor(pids, torch.tensor([os.getpid()]))
    if world.rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    if world.rank == 0:
        pending = dist.all_reduce(torch.ones(3), group=near, async_op=True)
        select.select([os.pidfd_open(int(pids[1]))], [], [])
        dist.destroy_process_group()
        return pending.is_completed()
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1 is lost"):
        dist.all_reduce(torch.ones(3), group=far)
    return time.monotonic() - began


def test_a_rank_that_leaves_has_told_other_nodes_of_a_death():
    _store, env = hosted_here()
    with Cluster(3, launcher="plain", env={"ALTORCH_TEST_NODES": "0,0,1"} | env) as cluster:
        _, seconds = left_of(cluster.run(leave_at_once), [1])
        assert seconds < 6 * PATIENCE


def go_on_again_and_again(world):
    """One rank after another is lost, the lowest and the highest by turns."""
    sizes = []
    while dist.get_world_size() > 1:
        use(world)
        size = dist.get_world_size()
        sizes.append(size)
        if dist.get_rank() == (0 if size % 2 else size - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(dist.DistBackendError):
            for _ in range(100_000):
                dist.all_reduce(torch.ones(3))
        altorch.survivors(patience=STAY)
    use(world)
    return sizes


@pytest.mark.parametrize("route", ["gloo"])
def test_until_one_is_left(route):
    with Cluster(5, launcher="plain", env=CARRIERS[route]) as cluster:
        outcomes = cluster.run(go_on_again_and_again)
        ended = [outcome for outcome in outcomes if outcome.status == "ok"]
        assert len(ended) == 1, "\n".join(outcome.report() for outcome in outcomes)
        assert ended[0].value == [5, 4, 3, 2], "\n".join(outcome.report() for outcome in outcomes)
        assert [outcome.status for outcome in outcomes].count("died") == 4


def no_rank_is_lost(world):
    """An error that closes the group, and all live on."""
    use(world)
    if world.rank == 0:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(3))
    else:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(4))
    altorch.survivors(patience=STAY)
    use(world)
    assert (dist.get_rank(), dist.get_world_size()) == (world.rank, world.size)
    again = altorch.survivors(
        dist.new_group(), patience=STAY
    )  # of the same ranks: torch's names would come again
    use(world, again)
    half = dist.new_group([0, 1])
    if world.rank < 2:  # a part of the world, which goes on beside it
        use(world, half)
        half = altorch.survivors(half, patience=STAY)
        use(world, half)
    use(world)
    return altorch.stats()[0]["route"].split(":")[0]


@pytest.mark.parametrize("route", ["mpi", "nodes"])
def test_a_group_that_lost_no_rank_is_made_once_more(route):
    with Cluster(3, launcher="plain", env=CARRIERS[route]) as cluster:
        carriers = cluster.check(no_rank_is_lost)
        assert carriers == [{"nodes": "mpi"}.get(route, route)] * 3


def one_comes_too_late(world, late):
    use(world)
    patience = timedelta(seconds=1.5 * PATIENCE)
    if world.rank == late:
        time.sleep(4 * PATIENCE)
        with pytest.raises(dist.DistBackendError, match=r"gone on without this one|store|agreed"):
            altorch.survivors(patience=patience)
        return 0
    altorch.survivors(patience=patience)
    use(world)
    size = dist.get_world_size()
    if late != 0:
        time.sleep(4 * PATIENCE)  # rank 0 hosts the store
    return size


@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_that_comes_too_late_is_left_out_and_told(late):
    with Cluster(3, launcher="plain") as cluster:
        assert sorted(cluster.check(one_comes_too_late, late=late)) == [0, 2, 2]


def lose_more_meanwhile(world, seed):
    """Ranks 1 and 2 die at about the time at which the others look for who is left."""
    use(world)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if world.rank == 2:
        with_a_thread_that_kills(0.15 + 0.01 * (seed % 20))
    with pytest.raises(dist.DistBackendError):
        for _ in range(100_000):
            dist.all_reduce(torch.ones(3))
    altorch.survivors(patience=STAY)
    while dist.get_world_size() > 2:
        with pytest.raises(dist.DistBackendError):
            for _ in range(100_000):
                dist.all_reduce(torch.ones(3))
        altorch.survivors(patience=STAY)
    use(world)
    return dist.get_rank()


@pytest.mark.parametrize("seed", [0, 9])
def test_another_loss_in_the_middle_of_it(seed):
    with Cluster(4, launcher="plain") as cluster:
        assert left_of(cluster.run(lose_more_meanwhile, seed=seed), [1, 2]) == [0, 1]


def store_sockets_of(pid):
    """The names of the sockets at which this process hosts a job's next store. Other jobs have some of their own."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return {
        line[7][1:]
        for line in lines
        if line[7:] and line[7].startswith("@altorch-store/") and line[6] in inodes
    }


def a_stranger_asks(world):
    """It connects to the place where the next store is found, and leaves without a word; rank 2 comes after it."""
    use(world)
    pids = [None] * world.size
    dist.all_gather_object(pids, os.getpid())
    if world.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError):
        for _ in range(100_000):
            dist.all_reduce(torch.ones(3))
    if world.rank == 2:
        end, asked = time.monotonic() + STAY.total_seconds() / 2, 0
        while asked < 5 and time.monotonic() < end:
            for name in store_sockets_of(pids[1]):  # the lowest rank that is left
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger, suppress(OSError):
                    stranger.connect("\0" + name)
                    asked += 1
            time.sleep(0.02)
        assert asked
    altorch.survivors(patience=STAY)
    use(world)
    return dist.get_world_size()


def test_a_client_that_asks_for_the_next_store_does_no_harm():
    with Cluster(3, launcher="plain") as cluster:
        assert left_of(cluster.run(a_stranger_asks), [0]) == [2, 2]


def shrink_by_torch(world):
    """torch's own function, whose caller knows whom to leave out."""
    use(world)
    if world.rank == 1:
        return None
    dist.shrink_group([1])
    use(world)
    dist.barrier()
    return dist.get_rank()


def test_shrink_group_of_torch():
    with Cluster(3, launcher="plain") as cluster:
        assert cluster.check(shrink_by_torch) == [0, None, 1]


def refuse(world):
    mixed = dist.new_group(backend="cpu:gloo") if world.rank < world.size else None
    with pytest.raises(NotImplementedError, match="'gloo' carries a part of group"):
        altorch.survivors(mixed)
    own = dist.group.WORLD._get_backend(torch.device("cpu"))
    with pytest.raises(ValueError, match="rank 7 is not in group"):
        own.shrink([7])
    with pytest.raises(ValueError, match="must not call this"):
        own.shrink([world.rank])
    use(world)


def test_what_cannot_go_on_is_refused_and_the_group_goes_on():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(refuse)
