# SPDX-License-Identifier: BSD-3-Clause
"""Groups whose ranks change in place: torch's reconfigure(). What comes out is right, whichever ranks left or came."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import CARRIERS, PATIENCE, Cluster
from test_survivors import hosted_here, left_of, use

import altorch

HAS_IT = hasattr(dist, "_reconfigure")
pytestmark = pytest.mark.skipif(not HAS_IT, reason=f"torch {torch.__version__} has no reconfigure()")
WITHIN = timedelta(seconds=30 * PATIENCE)


class Change:
    """What the ranks of a test do together, in the same order: they find each other's handles in the store."""

    def __init__(self, world):
        self.world, self.count = world, 0
        world.start("al", enable_reconfigure=True)
        self.store = dist.distributed_c10d._get_default_store()

    def handles(self, of, key=""):
        """Of these ranks (as they were started), in their order; `key`: where not all ranks have counted alike."""
        self.count += 1
        place = f"test/{key or self.count}"
        self.store.set(f"{place}/{self.world.rank}", dist._get_reconfigure_handle())
        return [self.store.get(f"{place}/{rank}").decode() for rank in of]

    def to(self, uuid, handles, timeout=WITHIN):
        dist._reconfigure(uuid, handles, timeout=timeout).wait()

    def all_come(self, key):
        self.store.set(f"test/come/{key}/{self.world.rank}", "1")
        for rank in range(self.world.size):
            self.store.get(f"test/come/{key}/{rank}")


def grow_and_shrink(world):
    change = Change(world)
    all_ranks = list(range(world.size))
    assert dist._supports_reconfigure()
    with pytest.raises(dist.DistBackendError, match="has no ranks yet"):
        dist.all_reduce(torch.ones(1))
    # Alone, all together, without one in the middle, with it as the last, in another order, all
    # again.
    change.to(100 + world.rank, [dist._get_reconfigure_handle()])
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    use(world)
    change.to(1, change.handles(all_ranks))
    assert (dist.get_rank(), dist.get_world_size()) == (world.rank, world.size)
    use(world)
    handles = change.handles(all_ranks)
    middle = world.size // 2
    if world.rank != middle:
        change.to(2, handles[:middle] + handles[middle + 1 :])
        assert dist.get_world_size() == world.size - 1
        use(world)
    order = [rank for rank in all_ranks if rank != middle] + [middle]
    change.to(3, change.handles(order))
    assert dist.get_rank() == order.index(world.rank)
    use(world)
    change.to(4, change.handles(all_ranks[::-1]))
    assert dist.get_rank() == world.size - 1 - world.rank
    use(world)
    change.to(5, set(change.handles(all_ranks[::-1])))  # without an order: as they were started
    assert dist.get_rank() == world.rank
    use(world)
    # Two halves beside each other, and together again.
    handles, half = change.handles(all_ranks), world.size // 2
    change.to(*((6, handles[:half]) if world.rank < half else (7, handles[half:])))
    use(world)
    change.to(8, change.handles(all_ranks))
    use(world)
    route = altorch.stats()[0]["route"].split(":")[0]
    further = dist.new_group(all_ranks[::-1])
    use(world, further)
    return route


@pytest.mark.parametrize("route", ["shm", "gloo", "nodes"])
def test_ranks_leave_and_come(route):
    with Cluster(4, launcher="plain", env=CARRIERS[route], group=False) as cluster:
        assert cluster.check(grow_and_shrink) == [{"nodes": "gloo"}.get(route, route)] * 4


def one_dies(world, victim):
    change = Change(world)
    change.to(1, change.handles(range(world.size)))
    use(world)
    if world.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError):
        for _ in range(100_000):
            dist.all_reduce(torch.ones(1_000_003))
    began = time.monotonic()
    change.to(2, change.handles([rank for rank in range(world.size) if rank != victim]))
    use(world)
    return time.monotonic() - began


@pytest.mark.parametrize("route", ["shm", "gloo", "nodes"])
@pytest.mark.parametrize("victim", [0, 1])
def test_the_others_go_on_after_a_death(route, victim):
    _store, env = hosted_here()
    with Cluster(3, launcher="plain", env=CARRIERS[route] | env, group=False) as cluster:
        left_of(cluster.run(one_dies, victim=victim), [victim])


def one_dies_in_it(world):
    """While the others already wait for it; then they go on without it."""
    change = Change(world)
    change.to(1, change.handles(range(world.size)))
    handles = change.handles(range(world.size))
    if world.rank == 1:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        change.to(2, handles, timeout=timedelta(seconds=4 * PATIENCE))
    assert time.monotonic() - began < 10 * PATIENCE
    change.to(3, change.handles([0, 2]))
    use(world)


def test_a_death_meanwhile_is_an_error_on_all_and_the_next_attempt_works():
    _store, env = hosted_here()
    with Cluster(3, launcher="plain", env=env, group=False) as cluster:
        left_of(cluster.run(one_dies_in_it), [1])


def one_never_comes(world):
    """It has told its handle, and dies before it comes: no peer has ever met it."""
    change = Change(world)
    handles = change.handles(range(world.size))
    if world.rank == world.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=f"rank {world.size - 1}"):
        change.to(1, handles)
    assert time.monotonic() - began < 6 * PATIENCE
    change.to(2, change.handles(range(world.size - 1)))
    use(world)


@pytest.mark.parametrize("route", ["shm", "nodes"])
def test_who_dies_before_he_comes_is_missed_at_once(route):
    _store, env = hosted_here()
    with Cluster(4, launcher="plain", env=CARRIERS[route] | env, group=False) as cluster:
        left_of(cluster.run(one_never_comes), [3])


def after_an_error(world, kind):
    change = Change(world)
    change.to(1, change.handles(range(world.size)))
    use(world)
    if kind == "abort":
        pending = dist.all_reduce(torch.ones(3), async_op=True) if world.rank == 0 else None
        change.all_come("begun")
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        if pending is not None:
            with pytest.raises(dist.DistBackendError, match="abort"):
                pending.wait()
    elif kind == "timeout":
        dist.group.WORLD.set_timeout(timedelta(seconds=0.3))
        if world.rank == 1:
            with pytest.raises(dist.DistBackendError, match="timeout"):
                dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.group.WORLD.set_timeout(WITHIN)
    else:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(3 + world.rank % 2))
    change.all_come("failed")
    change.to(2, change.handles(range(world.size)))
    use(world)


@pytest.mark.parametrize("kind", ["abort", "timeout", "mismatch"])
def test_a_group_that_failed_is_made_anew(kind):
    with Cluster(3, launcher="plain", group=False) as cluster:
        cluster.check(after_an_error, kind=kind)


def what_is_under_way_fails(world):
    """And does so with a sentence; what was done before is whole."""
    change = Change(world)
    change.to(1, change.handles(range(world.size)))
    handles = change.handles(range(world.size))
    x = torch.zeros(7)
    late = dist.irecv(x, src=1) if world.rank == 0 else None
    last = torch.full((1_000_003,), float(world.rank))
    if world.rank == 2:  # the others are in reconfigure() long before
        time.sleep(0.5)
    dist.all_reduce(last)
    assert torch.equal(last, torch.full_like(last, 3))
    change.to(2, handles)
    if late is not None:
        with pytest.raises(dist.DistBackendError, match="reconfigured"):
            late.wait()
        assert not x.any()
    use(world)


def test_what_is_under_way_fails_and_says_so():
    with Cluster(3, launcher="plain", group=False) as cluster:
        cluster.check(what_is_under_way_fails)


def left_out_and_waiting(world):
    """A rank that is left out, and does not know it yet, is told."""
    change = Change(world)
    change.to(1, change.handles(range(world.size)))
    handles = change.handles(range(world.size))
    if world.rank == 2:
        began = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="reconfigured"):
            dist.all_reduce(torch.ones(4))
        assert time.monotonic() - began < 10 * PATIENCE
    else:
        time.sleep(0.5)
        change.to(2, handles[:2])
        use(world)
    change.to(3, change.handles(range(world.size)))
    use(world)


def test_a_rank_that_is_left_out_is_told_and_may_come_back():
    with Cluster(3, launcher="plain", group=False) as cluster:
        cluster.check(left_out_and_waiting)


def refusals(world):
    change = Change(world)
    own = dist._get_reconfigure_handle()
    for wrong, words in [
        ([], "is not among"),
        (["gloo:0:0"], "is no handle"),
        ([own, "al:x:0:1"], "is no handle"),
        ([own, own], "twice"),
        ([own + "0"], "is not among"),
    ]:
        with pytest.raises(ValueError, match=words):
            change.to(9, wrong)
    change.to(1, change.handles(range(world.size)))
    use(world)
    # No rank is lost, and the group stays what it was.
    handles = change.handles(range(world.size))
    with pytest.raises(dist.DistBackendError, match="uuid 1 was already used"):
        change.to(1, handles)
    use(world)
    # A handle of before.
    with pytest.raises(ValueError, match="is not among"):
        change.to(2, handles)
    use(world)
    # One rank stays away: an error that names it, and the group stays.
    handles = change.handles(range(world.size))
    if world.rank != 1:
        with pytest.raises(dist.DistBackendError, match="has not come"):
            change.to(3, handles, timeout=timedelta(seconds=1))
    change.all_come("stayed away")
    use(world)
    change.to(4, change.handles(range(world.size)))
    use(world)
    dist.destroy_process_group()


def test_what_cannot_be_is_refused_and_the_group_stays():
    with Cluster(3, launcher="plain", group=False) as cluster:
        cluster.check(refusals)


def one_fails_to_make_it(world):
    """A rank whose half fails: an error on all ranks, and no rank goes on with the new group."""
    from altorch import _backend

    change = Change(world)
    change.to(1, change.handles(range(world.size)))
    handles = change.handles(range(world.size))
    original = _backend.Group.create
    if world.rank == 1:

        def fails(self):
            original(self)
            raise OSError("no room for it")

        _backend.Group.create = fails
    with pytest.raises(dist.DistBackendError, match="rank 1: no room for it"):
        change.to(2, handles)
    _backend.Group.create = original
    use(world)  # as it was
    change.to(3, change.handles(range(world.size)))
    use(world)


def test_one_that_fails_to_make_it_is_an_error_on_all():
    with Cluster(3, launcher="plain", group=False) as cluster:
        cluster.check(one_fails_to_make_it)


def hooks_and_settings_stay(world):
    change = Change(world)
    group, told = dist.group.WORLD, []
    group.register_abort_hook(3, lambda: told.append(1))
    group.set_timeout(timedelta(seconds=1 * PATIENCE))
    change.to(1, change.handles(range(world.size)))
    assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=1 * PATIENCE)
    if world.rank == 0:
        with pytest.raises(dist.DistBackendError, match="all_reduce"):
            dist.all_reduce(torch.ones(4))
    change.all_come("timeout")
    group.set_timeout(WITHIN)
    change.to(2, change.handles(range(world.size)))
    tensor = altorch.empty(5)
    window = altorch.new_window(tensor)
    window.put(torch.full((1,), float(world.rank)), (world.rank + 1) % world.size, world.rank)
    window.fence()
    assert tensor[(world.rank - 1) % world.size] == (world.rank - 1) % world.size
    del window
    backend = group._get_backend(torch.device("cpu"))
    backend.suspend()
    assert backend.memory_stats()["total"] == 0
    backend.resume()
    return len(told)


def test_hooks_and_timeouts_stay_and_windows_are_of_the_ranks_of_now():
    with Cluster(2, launcher="plain", group=False) as cluster:
        assert cluster.check(hooks_and_settings_stay)[0] == 1


def many_times(world, rounds):
    """Threads, descriptors and shared memory do not grow with the number of changes."""
    change = Change(world)

    def left():
        own = Path("/proc/self")
        return (
            threading.active_count(),
            len(list((own / "task").iterdir())),
            len(list((own / "fd").iterdir())),
            (own / "maps").read_text().count("altorch"),
        )

    seen = []
    for count in range(rounds):
        handles = change.handles(range(world.size))
        out = count % world.size
        if world.rank != out:
            change.to(2 * count, handles[:out] + handles[out + 1 :])
            use(world)
        change.to(2 * count + 1, change.handles(range(world.size)))
        use(world)
        seen.append(left())
    half = rounds // 2
    for kind, counts in zip(
        ("threads of Python", "threads", "descriptors", "maps"), zip(*seen, strict=True), strict=True
    ):
        assert min(counts[half:]) <= max(counts[1:half]), f"{kind}: {counts}"
    return seen[1], seen[-1]


@pytest.mark.parametrize(("route", "rounds"), [("shm", 20), ("gloo", 8)])
def test_nothing_is_left_behind_by_many_changes(route, rounds):
    with Cluster(3, launcher="plain", env=CARRIERS[route], group=False) as cluster:
        print(cluster.check(many_times, rounds=rounds))


def without_mpi_where_a_launcher_brings_one(world):
    change = Change(world)
    change.to(1, change.handles(range(world.size)))
    use(world)
    return altorch.stats()[0]["route"].split(":")[0]


def test_it_goes_without_mpi_under_a_launcher_of_mpi():
    env = {"ALTORCH_SHM_BYTES": "0"}
    with Cluster(2, launcher="mpirun", env=env, group=False) as cluster:
        assert cluster.check(without_mpi_where_a_launcher_brings_one) == ["gloo"] * 2


def go_on_with_cuda_tensors(world):
    torch.cuda.set_device(world.rank % torch.cuda.device_count())
    change = Change(world)
    for uuid, members in enumerate(([0, 1, 2], [0, 2], [0, 1, 2], [2, 1])):
        handles = change.handles(range(3))
        if world.rank in members:
            change.to(uuid, [handles[rank] for rank in members])
            size = len(members)
            for count in (5, 1_000_003):
                x = torch.full((count,), float(dist.get_rank() + 1), device="cuda")
                dist.all_reduce(x)
                assert torch.equal(x, torch.full_like(x, size * (size + 1) / 2))
            use(world)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="no GPU is visible")
def test_ranks_leave_and_come_with_cuda_tensors():
    with Cluster(3, launcher="plain", group=False) as cluster:
        cluster.check(go_on_with_cuda_tensors)


def halves_make_groups(world):
    """Of the same names and numbers in both halves: each is one of its own half."""
    change = Change(world)
    change.to(1, change.handles(range(4)))
    handles, half = change.handles(range(4)), world.rank // 2
    change.to(2 + half, handles[2 * half : 2 * half + 2])
    for _ in range(3):
        group = dist.new_group([0, 1])
        x = torch.tensor([10.0**world.rank])
        dist.all_reduce(x, group=group)
        assert x.item() == (11, 1100)[half], x


@pytest.mark.parametrize("route", ["shm", "gloo"])
def test_groups_of_two_halves_do_not_meet(route):
    with Cluster(4, launcher="plain", env=CARRIERS[route], group=False) as cluster:
        cluster.check(halves_make_groups)


def newcomers_make_groups(world):
    change = Change(world)
    if world.rank != 2:
        change.to(1, change.handles([0, 1], "first"))
        use(world, dist.new_group([0, 1]))
        use(world, dist.new_group([1, 0]))
    change.to(2, change.handles(range(3), "all"))
    for members in ([0, 1, 2], [2, 0], [0, 1, 2]):
        group = dist.new_group(members)
        if world.rank in members:
            use(world, group)


def test_groups_with_a_newcomer_meet():
    with Cluster(3, launcher="plain", group=False) as cluster:
        cluster.check(newcomers_make_groups)


def one_stays_within(world):
    """It is there, and then for long not: within the timeout, and some seconds, all know that it was in vain."""
    from altorch import _backend

    change = Change(world)
    change.to(1, change.handles(range(world.size)))
    handles = change.handles(range(world.size))
    original = _backend.Group.create
    if world.rank == 1:

        def sleeps(self):
            made = original(self)
            time.sleep(12 * PATIENCE)
            return made

        _backend.Group.create = sleeps
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="have not made it together"):
        change.to(2, handles, timeout=timedelta(seconds=2 * PATIENCE))
    if world.rank != 1:
        assert time.monotonic() - began < 9 * PATIENCE
    _backend.Group.create = original
    change.to(3, change.handles(range(world.size)))
    use(world)


def test_one_that_is_late_in_the_middle_of_it_holds_no_peer():
    with Cluster(3, launcher="plain", group=False) as cluster:
        cluster.check(one_stays_within)


def ended_by_another_thread(world, how, moment):
    """Who waits for ranks that do not come is told at once; afterwards the group is made again."""
    change = Change(world)
    change.to(1, change.handles([0, 1]))
    handles = change.handles([0, 1])
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if world.rank == 0:
        ended = threading.Timer(0.5 * PATIENCE, getattr(backend, how))
        ended.start()
        began = time.monotonic()
        with pytest.raises(dist.DistBackendError, match=r"another thread (aborted|destroyed) the group"):
            change.to(2, handles)
        assert time.monotonic() - began < 3 * PATIENCE
        ended.join()
    elif moment == "meanwhile":
        # It has come, and makes the transport no further: the commit decision tells it.
        from altorch import _backend

        original = _backend.Group.create

        def sleeps(self):
            time.sleep(1 * PATIENCE)
            return original(self)

        _backend.Group.create = sleeps
        with pytest.raises(dist.DistBackendError, match=r"another thread|not there|not come"):
            change.to(2, handles, timeout=timedelta(seconds=3 * PATIENCE))
        _backend.Group.create = original
    change.all_come("ended")
    if how == "abort":
        change.to(3, change.handles([0, 1]))
        use(world)
    elif world.rank == 0:
        with pytest.raises(dist.DistBackendError, match="was destroyed"):
            change.to(3, [dist._get_reconfigure_handle()])


@pytest.mark.parametrize("how", ["abort", "shutdown"])
@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_another_thread_ends_it(how, moment):
    with Cluster(2, launcher="plain", group=False) as cluster:
        cluster.check(ended_by_another_thread, how=how, moment=moment)


def read_while_it_changes(world):
    """Who looks at the group's backend holds Python's lock; hooks of Python's want it."""
    change = Change(world)
    stop, seen = threading.Event(), []
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for number in range(200):
        dist.group.WORLD.register_abort_hook(number, lambda: None)

    def look():
        while not stop.is_set():
            seen.append(backend.now)
            del seen[:]

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for uuid in range(20):
        change.to(uuid, [dist._get_reconfigure_handle()])
    stop.set()
    for thread in threads:
        thread.join()
    use(world)


def test_threads_that_look_at_it_meanwhile():
    with Cluster(1, launcher="plain", group=False) as cluster:
        cluster.check(read_while_it_changes)
