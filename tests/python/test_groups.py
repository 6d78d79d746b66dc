# SPDX-License-Identifier: BSD-3-Clause
"""Groups, objects, sequence numbers, deadlines and futures: the calls around the collectives."""

from __future__ import annotations

import copy
import time
from contextlib import suppress
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks

WORLDS = (1, 2, 3, 4)


def check_sum(group, size):
    tensor = torch.tensor([1.0, 2.0])
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor, torch.tensor([1.0, 2.0]) * size), tensor


@on_ranks(*WORLDS)
def test_object_collectives(world):
    thing = {"rank": world.rank, "text": "x" * (100 * world.rank), "list": list(range(world.rank))}
    everything = [None] * world.size
    dist.all_gather_object(everything, thing)
    assert [item["rank"] for item in everything] == list(range(world.size))
    assert everything[-1]["text"] == "x" * (100 * (world.size - 1))

    root = world.size - 1
    items = ["first", {"second": 2}, None] if world.rank == root else [None, None, None]
    dist.broadcast_object_list(items, root)
    assert items == ["first", {"second": 2}, None]

    gathered = [None] * world.size if world.rank == root else None
    dist.gather_object(thing, gathered, root)
    if world.rank == root:
        assert [item["rank"] for item in gathered] == list(range(world.size))

    output = [None]
    dist.scatter_object_list(
        output, [f"for {rank}" for rank in range(world.size)] if world.rank == 0 else None, 0
    )
    assert output == [f"for {world.rank}"]


@on_ranks(2, 3)
def test_send_and_recv_object_list(world):
    if world.rank == 0:
        dist.send_object_list(["hello", 7], 1)
    elif world.rank == 1:
        items = [None, None]
        assert dist.recv_object_list(items, 0) == 0
        assert items == ["hello", 7]
    dist.barrier()


@on_ranks(*WORLDS)
def test_new_group(world):
    groups = [dist.new_group(list(range(size))) for size in range(1, world.size + 1)]
    for size, group in enumerate(groups, start=1):
        if world.rank < size:
            assert dist.get_world_size(group) == size
            check_sum(group, size)
        else:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
    for size, group in enumerate(groups, start=1):
        if world.rank < size:
            dist.destroy_process_group(group)
    check_sum(None, world.size)


@on_ranks(3, 4)
def test_groups_that_overlap_do_not_deadlock(world):
    """Asynchronous operations of independent groups, started in a different order on every rank."""
    pairs = [(a, b) for a in range(world.size) for b in range(a + 1, world.size)]
    groups = {pair: dist.new_group(list(pair)) for pair in pairs}
    mine = [pair for pair in pairs if world.rank in pair]
    mine = mine[world.rank :] + mine[: world.rank]
    for _ in range(10):
        tensors = {pair: torch.full((100,), float(world.rank)) for pair in mine}
        works = [dist.all_reduce(tensors[pair], group=groups[pair], async_op=True) for pair in mine]
        for work in works:
            work.wait()
        for pair in mine:
            assert torch.equal(tensors[pair], torch.full((100,), float(sum(pair)))), pair
    for pair in mine:
        dist.destroy_process_group(groups[pair])


@on_ranks(2, 3, 4)
def test_new_group_with_ranks_in_another_order(world):
    """torch sorts the ranks unless told otherwise: rank in group and root follow."""
    group = dist.new_group(list(reversed(range(world.size))))
    tensor = torch.tensor([float(world.rank)])
    dist.broadcast(tensor, src=world.size - 1, group=group)
    assert tensor.item() == world.size - 1
    dist.destroy_process_group(group)


# A pool of its own: after such a call torch numbers later groups differently on members and others.
@on_ranks(2, 3, 4, env={"ALTORCH_TEST_POOL": "local synchronization"})
def test_use_local_synchronization(world):
    """Only the members call new_group; torch itself wants a name that the members alone can form."""
    if world.rank < world.size - 1 or world.size == 2:
        ranks = list(range(world.size if world.size == 2 else world.size - 1))
        group = dist.new_group(ranks, use_local_synchronization=True)
        check_sum(group, len(ranks))
        dist.destroy_process_group(group)
    dist.barrier()


@on_ranks(2, 4)
def test_new_subgroups(world):
    group, _ = dist.new_subgroups(group_size=2)
    check_sum(group, 2)
    dist.destroy_process_group(group)


@on_ranks(2, 3, 4)
def test_split_group(world):
    if not world.is_al:
        pytest.skip("Gloo's split needs a store that torch only passes from 2.13 on")
    half = (world.size + 1) // 2
    kwargs = {"split_ranks": [list(range(half)), list(range(half, world.size))]}
    try:
        group = dist.split_group(**kwargs)
    except RuntimeError as error:
        if "device_id" in str(error) or "bound" in str(error) or "device" in str(error):
            pytest.skip(f"this torch splits only groups bound to a device: {error}")
        raise
    size = half if world.rank < half else world.size - half
    assert dist.get_world_size(group) == size
    check_sum(group, size)
    again = dist.split_group(**kwargs)
    check_sum(again, size)
    dist.destroy_process_group(again)
    dist.destroy_process_group(group)
    # Ranks of the parent that belong to no part still take part in the call.
    only = dist.split_group(split_ranks=[[0]])
    if world.rank == 0:
        check_sum(only, 1)
        dist.destroy_process_group(only)
    check_sum(None, world.size)


@on_ranks(2, 3)
def test_monitored_barrier(world):
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=20))
    except ValueError as error:
        pytest.skip(f"this torch refuses by name: {error}")
    dist.barrier()


@on_ranks(2, 3)
def test_monitored_barrier_names_the_late_rank(world):
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=20))
    except ValueError as error:
        pytest.skip(f"this torch refuses by name: {error}")
    group = dist.new_group()
    late = world.size - 1
    if world.rank == 0:
        started = time.monotonic()
        with pytest.raises(RuntimeError, match=rf"(?i)rank\D*{late}"):
            dist.monitored_barrier(group, timeout=timedelta(seconds=1), wait_all_ranks=True)
        assert time.monotonic() - started < 10
    elif world.rank != late:
        with suppress(RuntimeError):  # Gloo releases those that came; an error is right, too
            dist.monitored_barrier(group, timeout=timedelta(seconds=3))
    elif world.is_al:  # is in another call, and told what the others are in
        with pytest.raises(RuntimeError, match=r"barrier #1: .*, of monitored_barrier"):
            dist.barrier(group)
    dist.barrier()


def sequence_number(group):
    try:
        return group._get_sequence_number_for_group()
    except RuntimeError as error:
        if "does not yet support sequence numbers" not in str(error):
            raise
        pytest.skip(f"this torch has no sequence numbers for other backends: {error}")


@on_ranks(2)
def test_a_barrier_with_a_device_is_one_call(world):
    """It has a place among the CUDA calls, too, and counts once."""
    group = dist.new_group()
    for turn in range(3):
        tensor = torch.full((7,), float(world.rank + turn))
        dist.barrier(group, device_ids=[0])
        dist.all_reduce(tensor, group=group)
        dist.barrier(group)
        assert tensor.eq(2 * turn + 1).all()
    assert sequence_number(group) == 9


@on_ranks(1, 2, 3)
def test_sequence_numbers_count_collectives(world):
    group = dist.new_group()
    before = sequence_number(group)
    for _ in range(5):
        dist.all_reduce(torch.ones(2), group=group)
    dist.barrier(group)
    after = group._get_sequence_number_for_group()
    # Gloo numbers a group from a random start; what counts is that all ranks agree and that it
    # advances.
    assert after >= before + 5, (before, after)
    numbers = [None] * world.size
    dist.all_gather_object(numbers, after)
    assert len(set(numbers)) == 1, numbers
    dist.destroy_process_group(group)


@on_ranks(2, 3)
def test_set_timeout_ends_a_wait_for_a_late_rank(world):
    """One rank stays away from a group of its own: the others get a timeout, and the world goes on."""
    group = dist.new_group()
    dist.barrier(group)
    group.set_timeout(timedelta(seconds=1))
    if world.rank != world.size - 1:
        started = time.monotonic()
        with pytest.raises(RuntimeError) as caught:
            dist.all_reduce(torch.ones(3), group=group)
        assert 0.5 < time.monotonic() - started < 15
        if world.is_al:
            text = str(caught.value).lower()
            assert "time" in text and "all_reduce" in text, text
            assert str(world.size - 1) in text, f"the late rank {world.size - 1} is not named: {text}"
    dist.barrier()
    check_sum(None, world.size)


@on_ranks(2)
def test_timeout_of_a_new_group(world):
    group = dist.new_group(timeout=timedelta(seconds=1))
    dist.barrier(group)
    if world.rank == 0:
        with pytest.raises(RuntimeError):
            dist.recv(torch.ones(3), 1, group=group)
    dist.barrier()


@on_ranks(2, 3)
def test_work_wait_with_a_timeout(world):
    if not world.is_al:
        pytest.skip("al's promise")
    group = dist.new_group()
    tensor = torch.ones(3)
    if world.rank == 0:
        time.sleep(2)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    if world.rank != 0:
        started = time.monotonic()
        with pytest.raises(RuntimeError, match=r"all_reduce #1: wait\(timeout=300 ms\) timed out"):
            work.wait(timedelta(seconds=0.3))
        assert time.monotonic() - started < 1.2
    work.wait()
    assert tensor.tolist() == [world.size] * 3
    dist.barrier()


@on_ranks(1, 2, 3)
def test_futures(world):
    tensor = torch.tensor([float(world.rank)])
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda done: done.value()[0] * 2).then(lambda done: done.value() + 1)
    total = world.size * (world.size - 1) / 2
    assert doubled.wait().item() == 2 * total + 1
    work.wait()
    assert future.done()
    assert work.is_completed()


@on_ranks(2, 3)
def test_a_callback_may_start_another_collective(world):
    """DDP's hooks chain: a callback of one all_reduce starts the next."""

    def then_again(done):
        return dist.all_reduce(done.value()[0], async_op=True).get_future()

    tensor = torch.ones(10)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    inner = future.then(then_again).wait()
    result = inner.wait()
    assert torch.equal(result[0], torch.full((10,), float(world.size) ** 2))


@on_ranks(2, 3)
def test_futures_of_many_operations_complete_in_any_order(world):
    tensors = [torch.full((n + 1,), 1.0) for n in range(64)]
    futures = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in tensors]
    torch.futures.wait_all(list(reversed(futures)))
    for tensor in tensors:
        assert (tensor == world.size).all()


@on_ranks(2, 3)
def test_work_dropped_without_wait(world):
    """A Work that no caller waits for keeps its tensors alive and does its part."""
    for n in range(50):
        dist.all_reduce(torch.full((1000 + n,), 1.0), async_op=True)
    check_sum(None, world.size)
    dist.barrier()


@on_ranks(2, 3)
def test_sync_and_async_operations_of_one_group_keep_their_order(world):
    tensor = torch.ones(100)
    works = []
    for n in range(30):
        if n % 3 == 0:
            dist.all_reduce(tensor.clone())
        else:
            other = torch.full((10,), float(n))
            works.append((n, other, dist.broadcast(other, n % world.size, async_op=True)))
    for n, other, work in works:
        work.wait()
        assert (other == n).all()


@on_ranks(2, 3)
def test_collectives_from_several_threads_on_their_own_groups(world):
    from threading import Thread

    groups = [dist.new_group() for _ in range(3)]
    errors = []

    def work(group, index):
        try:
            for _ in range(50):
                tensor = torch.full((20,), float(index))
                dist.all_reduce(tensor, group=group)
                assert (tensor == index * world.size).all()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=work, args=(group, index)) for index, group in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    for group in groups:
        dist.destroy_process_group(group)


@on_ranks(2, 3)
def test_collectives_from_several_threads_on_one_group(world):
    """Alike, so that it does not matter which thread comes first on which rank."""
    from threading import Thread

    if not world.is_al:
        pytest.skip(f"{world.backend} leaves the order to the program")
    group = dist.new_group(timeout=timedelta(seconds=20))
    errors = []

    def work(asynchronous):
        try:
            for _ in range(200):
                tensor = torch.ones(20)
                pending = dist.all_reduce(tensor, group=group, async_op=asynchronous)
                if pending is not None:
                    pending.wait()
                assert (tensor == world.size).all()
        except BaseException as error:
            errors.append(error)

    for kinds in ((False, True), (False, False, False), (True, True)):
        threads = [Thread(target=work, args=(kind,)) for kind in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
    dist.destroy_process_group(group)


@on_ranks(2, 3)
def test_all_reduce_in_a_coalescing_window(world):
    tensors = [torch.full((n + 1,), float(n)) for n in range(5)]
    try:
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
    except RuntimeError as error:
        if world.is_al:
            raise
        pytest.skip(f"{world.backend}: {error}")
    for n, tensor in enumerate(tensors):
        assert (tensor == n * world.size).all()


@on_ranks(2)
def test_an_empty_coalescing_window(world):
    with dist._coalescing_manager():
        pass
    check_sum(None, world.size)


@on_ranks(2, 3, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
def test_debug_detail(world):
    """The wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL checks each collective, and finds one that differs."""
    check_sum(None, world.size)
    output = torch.empty(3 * world.size)
    dist.all_gather_into_tensor(output, torch.full((3,), float(world.rank)))
    assert torch.equal(output.reshape(world.size, 3)[:, 0], torch.arange(float(world.size)))
    dist.barrier()
    got = [None] * world.size
    dist.all_gather_object(got, world.rank)
    assert got == list(range(world.size))
    group = dist.new_group()
    check_sum(group, world.size)
    with pytest.raises(RuntimeError, match=r"(?i)mismatch|differ|detected"):
        dist.all_reduce(torch.ones(2 + world.rank), group=group)


@on_ranks(1, 2)
def test_backend_names_itself(world):
    assert dist.get_backend() == world.backend
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (world.size,))
    check_sum(mesh.get_group(), world.size)


@on_ranks(4)
def test_device_mesh_of_two_dimensions(world):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    for name in ("replica", "shard"):
        check_sum(mesh.get_group(name), 2)


@on_ranks(2)
def test_options_belong_to_one_group(world):
    """One object for two groups, and a split with a timeout of its own: no settings of another group change."""
    if not world.is_al:
        pytest.skip("al's options")
    import altorch

    given = altorch.Options(timeout_seconds=77.0)
    first = dist.new_group(timeout=timedelta(seconds=21), pg_options=given)
    second = dist.new_group(timeout=timedelta(seconds=43), pg_options=given)

    def options(group):
        return group._get_backend(torch.device("cpu")).options

    assert given._timeout == timedelta(seconds=77)
    assert [options(group)._timeout.total_seconds() for group in (first, second)] == [21, 43]
    copied = copy.deepcopy(given)
    assert copied is not given and copied._timeout == given._timeout
    if hasattr(first, "split_group"):
        name = options(first).group_name
        child = first.split_group([0, 1], timeout=timedelta(seconds=5))
        assert options(first)._timeout == timedelta(seconds=21)
        assert options(first).group_name == name
        assert options(child)._timeout == timedelta(seconds=5)
        assert isinstance(options(child), altorch.Options)
        check_sum(child, 2)
    for group in (first, second):
        check_sum(group, 2)
