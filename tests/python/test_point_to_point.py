# SPDX-License-Identifier: BSD-3-Clause
"""Messages: order, tags, any source, batches. send and recv of every type: test_matrix.py."""

from __future__ import annotations

import pytest
import reference as ref
import torch
import torch.distributed as dist
from harness import on_ranks


def ring(world):
    return (world.rank + 1) % world.size, (world.rank - 1) % world.size


@on_ranks(2, 3, 4)
def test_isend_and_irecv_around_a_ring(world):
    after, before = ring(world)
    for size in (0, 1, 1000, 300_000):
        world.case = f"ring of isend and irecv, {size}"
        mine = ref.random_tensor(world, torch.float32, size)
        got = torch.empty_like(mine)
        receive = dist.irecv(got, before)
        send = dist.isend(mine, after)
        send.wait()
        receive.wait()
        ref.check_equal(world, got, ref.random_tensor(world, torch.float32, size, before))


@on_ranks(2, 3)
def test_many_messages_in_flight_keep_their_order(world):
    after, before = ring(world)
    count = 100
    outgoing = [torch.full((n % 7 + 1,), float(n + 1000 * world.rank)) for n in range(count)]
    incoming = [torch.empty(n % 7 + 1) for n in range(count)]
    works = []
    for out, into in zip(outgoing, incoming, strict=True):
        works += [dist.isend(out, after), dist.irecv(into, before)]
    for work in reversed(works):
        work.wait()
    for n, into in enumerate(incoming):
        assert torch.equal(into, torch.full((n % 7 + 1,), float(n + 1000 * before))), f"message {n}: {into}"


@on_ranks(2)
def test_tags_choose_the_message(world):
    """Received in the reverse order of sending: only the tag tells them apart."""
    tags = (0, 5, 7, 1000)
    if world.rank == 0:
        works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in tags]
        for work in works:
            work.wait()
    else:
        for tag in reversed(tags):
            got = torch.zeros(1)
            dist.recv(got, 0, tag=tag)
            assert got.item() == tag, f"tag {tag} received {got.item()}"
    dist.barrier()


@on_ranks(2, 3, 4)
def test_recv_from_any_source(world):
    if world.rank == 0:
        seen = []
        for _ in range(world.size - 1):
            got = torch.zeros(3)
            source = dist.recv(got)
            assert torch.equal(got, torch.full((3,), float(source))), f"from {source}: {got}"
            seen.append(source)
        assert sorted(seen) == list(range(1, world.size)), seen
    else:
        dist.send(torch.full((3,), float(world.rank)), 0)
    dist.barrier()


@on_ranks(3)
def test_recv_from_any_source_with_a_tag(world):
    if world.rank == 0:
        for tag in (2, 1):
            seen = set()
            for _ in range(world.size - 1):
                got = torch.zeros(1)
                seen.add(dist.recv(got, tag=tag))
                assert got.item() == tag, f"asked for tag {tag}, got the message of tag {got.item()}"
            assert seen == {1, 2}
    else:
        works = [dist.isend(torch.tensor([float(tag)]), 0, tag=tag) for tag in (1, 2)]
        for work in works:
            work.wait()
    dist.barrier()


@on_ranks(2, 3, 4)
def test_batch_isend_irecv(world):
    after, before = ring(world)
    for size in (1, 1000):
        world.case = f"batch_isend_irecv {size}"
        mine = ref.random_tensor(world, torch.float32, size)
        got = torch.empty_like(mine)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, got, before)]
        ):
            work.wait()
        ref.check_equal(world, got, ref.random_tensor(world, torch.float32, size, before))


@on_ranks(3, 4)
def test_batch_isend_irecv_with_everyone(world):
    """An all-to-all made of point-to-point operations, also to oneself's neighbours on both sides."""
    others = [rank for rank in range(world.size) if rank != world.rank]
    got = {rank: torch.empty(50) for rank in others}
    operations = [dist.P2POp(dist.irecv, got[rank], rank) for rank in others]
    operations += [
        dist.P2POp(dist.isend, torch.full((50,), 10.0 * world.rank + rank), rank) for rank in others
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for rank in others:
        assert torch.equal(got[rank], torch.full((50,), 10.0 * rank + world.rank)), f"from {rank}"


@on_ranks(2, 3)
def test_messages_and_collectives_do_not_meet(world):
    """Open receives with tag 0 do not swallow a collective's messages, nor the reverse."""
    after, before = ring(world)
    got = torch.zeros(4)
    receive = dist.irecv(got, before)
    total = torch.ones(4)
    dist.all_reduce(total)
    dist.barrier()
    send = dist.isend(torch.full((4,), float(world.rank)), after)
    dist.all_reduce(total)
    receive.wait()
    send.wait()
    assert torch.equal(got, torch.full((4,), float(before)))
    assert torch.equal(total, torch.full((4,), float(world.size) ** 2))


@on_ranks(3)
def test_point_to_point_in_a_subgroup_uses_its_ranks(world):
    group = dist.new_group([0, 2])
    if world.rank in (0, 2):
        peer = 2 - world.rank  # global rank
        got = torch.zeros(1)
        works = [
            dist.irecv(got, peer, group=group),
            dist.isend(torch.tensor([float(world.rank)]), peer, group=group),
        ]
        for work in works:
            work.wait()
        assert got.item() == peer
        # The same peer by its rank within the group.
        in_group = 1 - dist.get_rank(group)
        send = dist.isend(torch.tensor([5.0]), group=group, group_dst=in_group)
        dist.recv(got, group=group, group_src=in_group)
        send.wait()
        assert got.item() == 5.0
        dist.destroy_process_group(group)
    dist.barrier()


@on_ranks(2)
def test_work_of_a_receive_names_its_source(world):
    if world.rank == 1:
        work = dist.irecv(torch.zeros(2), 0)
        work.wait()
        assert work.is_completed()
        if world.is_al:
            assert work._source_rank() == 0
    else:
        dist.send(torch.ones(2), 1)
    dist.barrier()


@on_ranks(1, 2, 3)
@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_messages_to_oneself(world, size):
    """In the order of their tags' calls, whichever of the two ends comes first."""
    skip_without_own_messages(world)
    me = world.rank
    first, second = torch.zeros(size), torch.zeros(size)
    works = [dist.irecv(first, me, tag=3), dist.irecv(second, me, tag=3)]
    works += [dist.isend(torch.full((size,), n), me, tag=3) for n in (1.0, 2.0)]
    for work in works:
        work.wait()
    assert first.eq(1).all() and second.eq(2).all()
    works = [dist.isend(torch.full((size,), float(tag)), me, tag=tag) for tag in (5, 6, 5)]
    other, third = torch.zeros(size), torch.zeros(size)
    for tensor, tag in ((other, 6), (first, 5), (third, 5)):
        dist.recv(tensor, me, tag=tag)
    for work in works:
        work.wait()
    assert other.eq(6).all() and first.eq(5).all() and third.eq(5).all()
    assert works[0].is_completed()


@on_ranks(2, 3)
def test_batch_with_everyone_and_oneself(world):
    skip_without_own_messages(world)
    got = [torch.full((rank + 1,), -1.0) for rank in range(world.size)]
    operations = []
    for rank in range(world.size):
        operations.append(dist.P2POp(dist.irecv, got[rank], rank))
        operations.append(
            dist.P2POp(dist.isend, torch.full((world.rank + 1,), 10.0 * world.rank + rank), rank)
        )
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for rank, tensor in enumerate(got):
        assert tensor.eq(10.0 * rank + world.rank).all(), (rank, tensor)


@on_ranks(1, 2)
def test_recv_from_any_source_finds_oneself(world):
    skip_without_own_messages(world)
    got = torch.zeros(3)
    send = dist.isend(torch.full((3,), 4.0), world.rank, tag=9)
    receive = dist.irecv(got, tag=9)
    receive.wait()
    send.wait()
    assert got.eq(4).all() and receive._source_rank() == world.rank


@on_ranks(1, 2)
def test_sizes_of_messages_to_oneself_must_agree(world):
    skip_without_own_messages(world)
    group = dist.new_group()
    send = dist.isend(torch.ones(5), group=group, group_dst=dist.get_rank(group))
    with pytest.raises(RuntimeError, match=r"20.*12|12|size"):
        dist.recv(torch.zeros(3), group=group, group_src=dist.get_rank(group))
    send.wait()
    dist.barrier()


def skip_without_own_messages(world):
    if not world.is_al:
        pytest.skip("Gloo has none")
