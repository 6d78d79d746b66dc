# SPDX-License-Identifier: BSD-3-Clause
"""Windows: what ranks put, get and count in each other's tensors, over whatever carries the group."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest
import reference as ref
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster, names_all, on_ranks

import altorch

MEMORY = pytest.mark.parametrize("memory", ["plain", "shareable"])


def allocate(memory, count, dtype=torch.float32):
    if memory == "plain":
        return (
            torch.zeros(count, dtype=torch.uint8)
            .repeat(torch.empty((), dtype=dtype).element_size())
            .view(dtype)
        )
    return altorch.empty(count, dtype=dtype)


def opened(world, tensor):
    """A window over a group of its own, its tensor, and the ranks behind and before this one."""
    if not world.is_al:
        pytest.skip("no other backend has windows for CPU tensors")
    return altorch.new_window(tensor), (world.rank + 1) % world.size, (world.rank - 1) % world.size


@on_ranks(1, 2, 3)
@MEMORY
@pytest.mark.parametrize("dtype", ref.MOVABLE, ids=ref.name_of)
def test_put_and_get(world, memory, dtype):
    for size in (0, 1, 17, (3, 5), 70_001):
        world.case = f"{ref.name_of(dtype)} {size}"
        mine = ref.random_tensor(world, dtype, size)
        theirs = ref.random_tensor(world, dtype, size, (world.rank - 1) % world.size)
        window, after, before = opened(world, tensor := allocate(memory, mine.numel() + 7, dtype))
        window.put(mine, after, 4)
        window.signal(after)
        window.wait_signal(before)
        ref.check_equal(world, tensor[4 : 4 + mine.numel()].view(mine.shape), theirs)
        edges = torch.cat([tensor[:4], tensor[4 + mine.numel() :]]).view(torch.uint8)
        assert not edges.any(), "a put has written beside its place"
        back = torch.empty_like(mine)
        window.get(back, after, 4)
        ref.check_equal(world, back, mine)
        window.fence()
        window.tensor_deregister()


@on_ranks(2, 3)
def test_tensors_of_any_layout(world):
    window, after, before = opened(world, tensor := torch.zeros(6, 10))
    mine = torch.arange(24.0).view(4, 6) + 100 * world.rank
    window.put(mine.t(), after)  # staged
    window.signal(after)
    window.wait_signal(before)
    theirs = torch.arange(24.0).view(4, 6) + 100 * before
    assert torch.equal(tensor.view(-1)[:24], theirs.t().reshape(-1))
    window.fence()
    tensor.zero_()
    window.fence()
    window.put_signal(mine[:, ::2], after, 11, target_stride=10, slot=3)  # a block of rows and columns
    window.wait_signal(before, slot=3)
    want = torch.zeros(6, 10)
    want[1:5, 1:4] = theirs[:, ::2]
    assert torch.equal(tensor, want)
    back = torch.zeros(4, 6)
    window.get(back[:, 1::2], after, 11, source_stride=10)
    assert torch.equal(back[:, 1::2], mine[:, ::2])
    work = window.get(back[:, ::2], after, 11, True, source_stride=10)
    work.wait()
    assert torch.equal(back[:, ::2], mine[:, ::2])
    window.fence()
    window.tensor_deregister()


def count_together(world, window, tensor, after):
    """All ranks count in a window over four zeros of integers, which is released then."""
    window.fence()
    drawn = [window.fetch_add(0, 1, 2) for _ in range(50)]
    assert sorted(set(drawn)) == drawn, "a number was drawn twice"
    assert window.compare_swap(after, 2, 5, 6) == 0
    assert window.compare_swap(after, 2, 0, -7) == 0
    assert window.compare_swap(after, 2, -7, 8) == -7
    window.fence()
    if world.rank == 0:
        assert tensor.tolist() == [0, 100 * world.size, 8, 0]
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 4)
@MEMORY
def test_counting(world, memory):
    for dtype in (torch.int32, torch.int64):
        window, after, _before = opened(world, tensor := allocate(memory, 4, dtype))
        count_together(world, window, tensor, after)


@on_ranks(2, 3)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.uint8], ids=str
)
def test_accumulate(world, dtype):
    window, _after, _before = opened(world, tensor := torch.ones(1001).to(dtype))
    mine = torch.full((1000,), world.rank + 1).to(dtype)
    window.fence()
    for peer in range(world.size):
        window.accumulate(mine, peer, 1)
    window.fence()
    total = 1 + sum(range(1, world.size + 1))
    assert tensor.tolist() == [1] + 1000 * [total]
    if dtype != torch.complex64:
        window.fence()
        works = [
            window.accumulate(mine, peer, 1, dist.ReduceOp.MIN, async_op=True) for peer in range(world.size)
        ]
        for work in works:
            work.wait()
        window.fence()
        assert tensor[1:].tolist() == 1000 * [1]
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 3)
def test_many_at_once_keep_their_order(world):
    window, after, before = opened(world, tensor := torch.zeros(4096, dtype=torch.int64))
    for turn in range(20):
        works = [window.put(torch.full((4096,), 100 * turn + step), after, 0, True) for step in range(30)]
        works.append(window.put_signal(torch.tensor([turn]), after, 0, True))
        window.wait_signal(before)
        assert tensor[0] == turn
        assert (tensor[1:] == 100 * turn + 29).all(), "an earlier put came later"
        window.flush(after)
        assert all(work.is_completed() for work in works)
        window.signal(before, slot=1)
        window.wait_signal(after, slot=1)
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 3)
def test_works_and_their_futures(world):
    window, after, before = opened(world, torch.zeros(8))
    work = window.wait_signal(before, True)
    assert not work.is_completed()
    window.fence()
    future = work.get_future()
    window.signal(after)
    future.wait()
    assert work.wait() and work.is_success()
    work = window.wait_signal(before, True, timeout=0.3)
    with pytest.raises(dist.DistBackendError) as raised:
        work.wait()
    assert names_all(str(raised.value), "window", f"wait for a signal of rank {before}", "timeout of 0.3 s")
    dist.barrier()  # the group goes on
    window.put(torch.ones(1), after, 0, True).wait()
    window.fence()
    window.tensor_deregister()


@on_ranks(2)
@MEMORY
def test_threads_that_share_a_window(world, memory):
    """Counting, and messages in one slot for each thread."""
    window, after, before = opened(world, tensor := allocate(memory, 64, torch.int64))
    failures = []

    def run(which):
        try:
            for turn in range(40):
                window.fetch_add(0, 0, 1)
                window.put_signal(torch.tensor([1000 * which + turn]), after, 1 + which, slot=which)
                window.wait_signal(before, slot=which)
                assert tensor[1 + which] == 1000 * which + turn
                window.signal(before, slot=4 + which)
                window.wait_signal(after, slot=4 + which)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    window.fence()
    if world.rank == 0:
        assert tensor[0] == 4 * 40 * world.size
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 3)
@MEMORY
def test_threads_with_a_window_each(world, memory):
    """What one of them fences is nothing to the other, nor to the group's collectives."""
    windows = [opened(world, allocate(memory, 1, torch.int64)) for _ in range(2)]
    tensors = [window.map_remote_tensor(world.rank) for window, _, _ in windows]
    wrong = []

    def run(which):
        try:
            window, after, _ = windows[which]
            for turn in range(1, 100):
                window.put(torch.tensor([turn]), after)
                window.fence()
                if tensors[which] != turn:
                    wrong.append((which, turn, tensors[which].item()))
                window.fence()
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        dist.barrier()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:5]
    for window, _, _ in windows:
        window.tensor_deregister()


@on_ranks(2)
def test_release_while_another_thread_goes_on(world):
    """What that thread asks then is refused; else the release would wait for it for ever."""
    window, after, _ = opened(world, torch.zeros(8))
    outcomes = []

    def run():
        try:
            while True:
                window.put(torch.ones(8), after, 0, True)
        except Exception as error:
            outcomes.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.1)
    window.tensor_deregister()
    thread.join()
    assert names_all(outcomes[0], "window", "being released|closed|no tensor"), outcomes
    dist.barrier()  # the group goes on


@on_ranks(2, 3)
def test_torchs_own_interface(world):
    if not hasattr(dist, "_new_window"):
        pytest.skip(f"torch {torch.__version__} has no windows")
    if not world.is_al:
        pytest.skip("no other backend has windows for CPU tensors")
    assert dist._supports_window()
    window = dist._new_window()
    assert isinstance(window, dist.distributed_c10d.Window) and isinstance(window, altorch.Window)
    tensor = altorch.empty(world.size, 10)
    with pytest.raises(dist.DistBackendError, match="tensor_register"):
        window.put(torch.ones(1), 0, 0, False)
    for _ in range(2):
        window.tensor_register(tensor, False)
        after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        for is_async in (False, True):
            mine = torch.full((10,), float(world.rank))
            work = window.put(mine, after, 10 * after, is_async)
            work.wait()
            window.signal(after, is_async).wait()
            window.wait_signal(before, is_async).wait()
            assert (tensor[world.rank] == before).all()
            assert torch.equal(window.map_remote_tensor(world.rank), tensor.view(-1))
            assert window.get_attr(after).access_type == type(window.get_attr(after).access_type).UNIFIED
            dist.barrier()
        window.tensor_deregister()


@on_ranks(2, 3)
def test_mapped_memory_is_the_peers(world):
    window, after, before = opened(world, tensor := altorch.empty(5, dtype=torch.int32))
    tensor.fill_(world.rank)
    window.fence()
    if window.route != "shm":
        with pytest.raises(NotImplementedError, match=r"altorch\.empty"):
            window.map_remote_tensor(after)
    else:
        theirs = window.map_remote_tensor(after)
        assert theirs.tolist() == 5 * [after]
        theirs[2] = 50 + world.rank
        window.signal(after)
        window.wait_signal(before)
        assert tensor.tolist() == [world.rank] * 2 + [50 + before] + [world.rank] * 2
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 3)
def test_windows_of_subgroups_and_several_at_once(world):
    if not world.is_al:
        pytest.skip("no other backend has windows for CPU tensors")
    last_two = [world.size - 2, world.size - 1]
    group = dist.new_group(last_two)
    if world.rank in last_two:
        windows = [altorch.new_window(torch.zeros(4), group) for _ in range(3)]
        peer = 1 - dist.get_rank(group)
        for number, window in enumerate(windows):
            window.put_signal(torch.full((1,), float(number)), peer)
        for number, window in reversed(list(enumerate(windows))):
            window.wait_signal(peer)
            mine = torch.zeros(1)
            window.get(mine, dist.get_rank(group))
            assert mine.item() == number
        for window in windows:
            window.fence()
            window.tensor_deregister()
        dist.destroy_process_group(group)


@on_ranks(2, 3)
def test_what_is_refused_leaves_everything_as_it_was(world):
    window, after, before = opened(world, tensor := torch.zeros(10))
    window.fence()
    for call, kind, words in (
        (
            lambda: window.put(torch.ones(3), after, 8),
            ValueError,
            ("put to rank", "elements 8 to 10", "10 elements"),
        ),
        (
            lambda: window.put(torch.ones(3), after, -1),
            ValueError,
            (rf"window \d+: put to rank {after}: the offset is -1", "negative"),
        ),
        (
            lambda: window.put(torch.ones(0), after, 11),
            ValueError,
            ("put to rank", "element 11 does not lie", "10 elements"),
        ),
        (
            lambda: window.accumulate(torch.ones(0), after, 1 << 40),
            ValueError,
            ("accumulate", "does not lie"),
        ),
        (
            lambda: window.fetch_add(after, -1, 1),
            ValueError,
            (rf"window \d+: fetch_add at rank {after}", "negative"),
        ),
        (lambda: window.flush(99), ValueError, (r"window \d+: flush: there is no rank 99",)),
        (lambda: window.flush(-1), ValueError, ("no rank -1 ",)),
        (lambda: window.flush(-5), ValueError, ("no rank -5 ",)),
        (lambda: window.flush(1 << 33), ValueError, (f"no rank {1 << 33}",)),
        (lambda: window.map_remote_tensor(-1), ValueError, ("no rank -1 ",)),
        (lambda: window.put(torch.ones(3), after, 1 << 62), ValueError, ("do not lie within",)),
        (lambda: window.put(torch.ones(3), world.size), ValueError, (f"no rank {world.size}",)),
        (lambda: window.put(torch.ones(3), -1), ValueError, ("no rank -1",)),
        (lambda: window.put(torch.ones(3).double(), after), TypeError, ("float64", "float32")),
        (lambda: window.get(torch.ones(2, 3), after, target_stride=2), TypeError, ()),
        (
            lambda: window.get(torch.ones(2, 3), after, source_stride=2),
            ValueError,
            (rf"window \d+: get from rank {after}", "stride is 2", "3 elements"),
        ),
        (lambda: window.get(torch.ones(2, 3), after, source_stride=8), ValueError, ("elements 0 to 10",)),
        (lambda: window.get(torch.ones(1).expand(3), after), ValueError, ()),
        (lambda: window.fetch_add(after, 0, 1), TypeError, ("int32 and int64",)),
        (lambda: window.accumulate(torch.ones(1), after, 0, "BXOR"), TypeError, ("BXOR of float32",)),
        (lambda: window.accumulate(torch.ones(1), after, 0, "AVG"), ValueError, ("accumulate takes",)),
        (lambda: window.accumulate(torch.ones(1), after, 0, "mean"), ValueError, ("MEAN",)),
        (lambda: window.signal(after, slot=8), ValueError, ("signal slot 8",)),
        (lambda: window.wait_signal(after, slot=-1), ValueError, ("signal slot -1",)),
        (
            lambda: window.signal(after, slot=-1),
            ValueError,
            (rf"window \d+: signal to rank {after}: .*signal slot -1",),
        ),
        (lambda: window.put_signal(torch.ones(1), after, slot=-1), ValueError, ("signal slot -1",)),
        (lambda: window.put_signal(torch.ones(1), after, slot=-2), ValueError, ("signal slot -2",)),
        (lambda: window.wait_signal(before, timeout=0.2), dist.DistBackendError, ("timeout of 0.2 s",)),
        (
            lambda: window.put(torch.ones(3, device="meta"), after),
            ValueError,
            (rf"window \d+: put to rank {after}: the tensor is on device meta",),
        ),
        (lambda: window.tensor_register(tensor), ValueError, ("tensor_deregister",)),
    ):
        with pytest.raises(kind) as raised:
            call()
        assert names_all(str(raised.value), *words), raised.value
    window.fence()
    assert not tensor.any()
    window.fence()
    window.put_signal(torch.ones(1), after)
    window.wait_signal(before)
    window.fence()
    window.tensor_deregister()
    with pytest.raises(dist.DistBackendError, match=rf"window: put to rank {after}: .*tensor_register"):
        window.put(torch.ones(1), after)
    with pytest.raises(dist.DistBackendError, match=r"window: flush: .*tensor_register"):
        window.flush()


@on_ranks(1, 2)
def test_moves_within_ones_own_tensor(world):
    """Where the source overlaps with what is written."""
    window, _after, _before = opened(world, tensor := torch.arange(1000))
    window.put_signal(tensor[:-1], world.rank, 1)
    window.wait_signal(world.rank)
    assert tensor.tolist() == [0, *range(999)]
    window.get(tensor[:-1], world.rank, 1)
    assert tensor.tolist() == [*range(999), 998]
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 3)
def test_counting_in_what_another_rank_registered(world):
    """Its type is all that matters: this rank may have registered nothing that can be counted in."""
    last = world.size - 1
    mine = torch.zeros(1, dtype=torch.int64 if world.rank == last else torch.float32)
    window, _after, _before = opened(world, mine)
    seen = window.fetch_add(last, 0, 1)
    assert 0 <= seen < world.size
    window.fence()
    assert window.compare_swap(last, 0, -1, 7) == world.size
    if world.rank == 0:
        with pytest.raises(TypeError, match="int32 and int64"):
            window.fetch_add(0, 0, 1)
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 3)
def test_one_rank_that_cannot_register_is_told_to_all(world):
    if not world.is_al:
        pytest.skip("no other backend has windows for CPU tensors")
    for bad in (torch.ones(3, device="meta"), torch.ones(4, 4).t(), torch.ones(2).to_sparse()):
        with pytest.raises(ValueError, match="rank 1 of the group has nothing to register"):
            altorch.new_window(bad if world.rank == 1 else torch.ones(4))
    window, after, before = opened(world, torch.zeros(1))
    window.signal(after)
    window.wait_signal(before)
    window.tensor_deregister()


@on_ranks(2)
def test_a_window_that_is_dropped_still_serves_the_others(world):
    """No peer may write to a tensor that is gone, whatever became of its owner's handle."""
    window, _after, _before = opened(world, torch.zeros(1 << 20))
    window.fence()
    if world.rank == 1:
        del window
        gc.collect()
        rubbish = [torch.full((1 << 20,), 3.0) for _ in range(4)]
        dist.barrier()
        dist.barrier()
        assert all((each == 3).all() for each in rubbish)
    else:
        dist.barrier()
        window.put(torch.ones(1 << 20), 1)
        back = torch.zeros(1 << 20)
        window.get(back, 1)
        assert back.eq(1).all()
        dist.barrier()


@on_ranks(2)
def test_a_wait_that_its_window_does_not_outlive(world):
    """A thread of altorch's sleeps on the window's memory meanwhile."""
    for _ in range(20):
        window, _, before = opened(world, torch.zeros(1))
        work = window.wait_signal(before, True)
        time.sleep(0.01)
        window.tensor_deregister()
        with pytest.raises(dist.DistBackendError, match="closed"):
            work.wait()
        del work, window
        gc.collect()


@on_ranks(2)
@MEMORY
def test_a_tensor_that_is_given_other_memory(world, memory):
    """The registered bytes stay, and the others write to nothing else."""
    window, after, before = opened(world, tensor := allocate(memory, 100_000))
    with pytest.raises(RuntimeError, match="resize"):
        tensor.resize_(10_000_000)
    tensor.data = torch.zeros(10)
    rubbish = [torch.full((100_000,), 3.0) for _ in range(8)]
    window.fence()
    window.put_signal(torch.ones(100_000), after)
    window.wait_signal(before)
    assert all((each == 3).all() for each in rubbish) and not tensor.any()
    assert window.map_remote_tensor(world.rank).eq(1).all()
    window.fence()
    window.tensor_deregister()


@on_ranks(1, 2)
@MEMORY
def test_a_tensor_of_two_windows_is_kept_until_both_let_go(world, memory):
    tensor = allocate(memory, 1000)
    first, second = altorch.new_window(tensor), altorch.new_window(tensor.view(10, 100))
    for window in (second, first):
        with pytest.raises(RuntimeError, match="resiz"):
            tensor.untyped_storage().resize_(16000)
        window.tensor_deregister()
    if memory == "plain":
        tensor.untyped_storage().resize_(16000)
    dist.barrier()


@on_ranks(2)
def test_flush_waits_for_copies_too(world):
    window, after, _ = opened(world, torch.ones(600, 500))
    window.fence()
    for _ in range(10):
        back = torch.zeros(500, 600).t()
        window.get(back, after, 0, True)
        window.flush()
        assert back.eq(1).all()
    window.fence()
    window.tensor_deregister()


@on_ranks(2)
def test_numbers_that_do_not_fit(world):
    window, after, before = opened(world, tensor := torch.zeros(1, dtype=torch.int32))
    for call in (
        lambda: window.fetch_add(after, 0, 1 << 32),
        lambda: window.compare_swap(after, 0, 1 << 32, 7),
        lambda: window.compare_swap(after, 0, 0, -(1 << 31) - 1),
        lambda: window.wait_signal(before, timeout=float("nan")),
        lambda: window.wait_signal(before, timeout=-1),
    ):
        with pytest.raises(ValueError):
            call()
    window.fence()
    assert tensor.item() == 0
    window.signal(after)
    window.wait_signal(before, timeout=float("inf"))
    window.fence()
    window.tensor_deregister()


@on_ranks(2)
@MEMORY
def test_a_forked_child_leaves_its_parents_windows_alone(world, memory):
    window, after, before = opened(world, tensor := allocate(memory, 8))
    window.fence()
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: window.put(torch.ones(1), after), window.flush, window.tensor_deregister):
            try:
                call()
            except dist.DistBackendError as error:
                refused += "forked" in str(error)
        del window
        gc.collect()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    window.fence()
    window.put_signal(torch.ones(8), after)
    window.wait_signal(before)
    assert tensor.eq(1).all()
    window.fence()
    window.tensor_deregister()


def use_a_window(world, what):
    """The last rank dies; the others are in a window."""
    window = altorch.new_window(altorch.empty(1 << 16) if "mapped" in what else torch.zeros(1 << 16))
    window.fence()
    dead = world.size - 1
    if world.rank == dead:
        time.sleep(0.3)
        os.kill(os.getpid(), 9)
    started = time.monotonic()
    data = torch.ones(1 << 16)
    try:
        while time.monotonic() - started < 60:
            if what.startswith("signal"):
                window.wait_signal(dead)
            elif what.startswith("counter"):
                window.accumulate(data, dead)
            else:
                window.put(data, dead)
    except Exception as error:
        return str(error), time.monotonic() - started
    return "no error", 0


@pytest.mark.parametrize(
    "what", ["signal", "signal, mapped", "put", "put, mapped", "counter", "counter, mapped"]
)
def test_a_killed_peer(what):
    with Cluster(3, launcher="plain") as cluster:
        if not cluster.check(is_al)[0]:
            pytest.skip("no other backend has windows for CPU tensors")
        outcomes = cluster.run(use_a_window, deadline=60, what=what)
        assert [outcome.status for outcome in outcomes] == ["ok", "ok", "died"], [
            o.report() for o in outcomes
        ]
        for outcome in outcomes[:2]:
            text, seconds = outcome.value
            assert names_all(text, "window 1", "rank"), text
            assert seconds < 10 * PATIENCE, (seconds, text)
        assert any("rank 2" in outcome.value[0] for outcome in outcomes[:2])
        assert cluster.end([0, 1], deadline=20) == []


def complete_after_a_death(world, what):
    """The last rank is dead for a while when the others ask whether all is done."""
    window = altorch.new_window(altorch.empty(8))
    window.fence()
    dead = world.size - 1
    if world.rank == dead:
        os.kill(os.getpid(), 9)
    time.sleep(2)
    started = time.monotonic()
    try:
        window.fence() if what == "fence" else window.flush(dead)
    except Exception as error:
        return str(error), time.monotonic() - started
    return "no error", 0


@pytest.mark.parametrize("what", ["flush", "fence"])
def test_nothing_is_complete_at_a_rank_that_has_died(what):
    with Cluster(2, launcher="plain") as cluster:
        if not cluster.check(is_al)[0]:
            pytest.skip("no other backend has windows for CPU tensors")
        outcomes = cluster.run(complete_after_a_death, deadline=60, what=what)
        assert outcomes[0].ok and outcomes[1].status == "died", [o.report() for o in outcomes]
        text, seconds = outcomes[0].value
        assert names_all(text, f"window 1: {what}", "rank 1 is lost"), text
        assert seconds < 5 * PATIENCE, (seconds, text)
        assert cluster.end([0], deadline=20) == []


def is_al(world):
    dist.barrier()
    return world.is_al


def leave_in_the_middle(world, waits):
    window = altorch.new_window(torch.zeros(1 << 18))
    window.fence()
    if world.rank == 0:
        dist.destroy_process_group()
        return ""
    try:
        for _ in range(100_000):
            if waits:
                window.wait_signal(0)
            window.put(torch.ones(1 << 18), 0)
    except Exception as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("waits", [False, True], ids=["put", "wait_signal"])
def test_a_peer_that_ends_its_group(waits):
    """It took its tensor with it; a rank that writes to it, or waits for it, is told so."""
    with Cluster(2, launcher="plain") as cluster:
        if not cluster.check(is_al)[0]:
            pytest.skip("no other backend has windows for CPU tensors")
        outcomes = cluster.run(leave_in_the_middle, deadline=60, waits=waits)
        assert [outcome.status for outcome in outcomes] == ["ok", "ok"], [o.report() for o in outcomes]
        assert names_all(
            outcomes[1].value, "put to rank 0|wait for a signal of rank 0", "closed|lost|ended"
        ), outcomes[1].value


def open_late(world):
    group = dist.new_group(timeout=__import__("datetime").timedelta(seconds=2))
    dist.barrier(group)
    if world.rank == 1:
        time.sleep(5)
        return ""
    started = time.monotonic()
    try:
        altorch.new_window(torch.zeros(1), group)
    except Exception as error:
        return f"{error} after {time.monotonic() - started:.0f} s"
    return "no error"


def test_a_rank_that_does_not_register():
    with Cluster(2, launcher="plain") as cluster:
        if not cluster.check(is_al)[0]:
            pytest.skip("no other backend has windows for CPU tensors")
        outcomes = cluster.run(open_late, deadline=60)
        assert names_all(outcomes[0].value, "window", "rank 1", "after [23] s"), outcomes[0].value
