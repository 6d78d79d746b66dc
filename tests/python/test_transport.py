# SPDX-License-Identifier: BSD-3-Clause
"""torch's transport "al": copies between processes of one node that are in no common group."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster

transports = pytest.importorskip(
    "torch.distributed._transport", reason=f"torch {torch.__version__} has no transports"
)


@pytest.fixture
def pair():
    """Two endpoints of this process, connected."""
    with transports.new_transport("al", "cpu") as one, transports.new_transport("al") as other:
        urls = one.bind(), other.bind()
        one.connect(urls[1])
        other.connect(urls[0])
        yield one, other


def remote(memory):
    """As a peer gets it."""
    buffer = memory.to_remote_buffer()
    return type(buffer).deserialize(buffer.serialize())


def test_it_is_found_by_its_name():
    assert "al" in transports.available_transports()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("elements", [1, 7, 100_003, 5_000_001])
def test_what_is_written_and_read_is_right(pair, elements, asynchronous):
    one, other = pair
    source, target = torch.randn(elements), torch.zeros(elements)
    here, there = one.register_memory(source), other.register_memory(target)
    for copy, change in (("write", source), ("read", target)):
        change.copy_(torch.randn(elements))
        done = getattr(one, copy)(here.to_mutable_view(), remote(there), async_op=asynchronous)
        if asynchronous:
            assert done.wait(timedelta(seconds=20 * PATIENCE)) and done.is_success()
            assert done.get_future().wait() == []
        else:
            assert done == 0
        assert torch.equal(source, target)


def test_parts_go_where_they_belong(pair):
    one, other = pair
    source, target = torch.arange(10, dtype=torch.int64), torch.full((10,), -1)
    here, there = one.register_memory(source), other.register_memory(target)
    one.write(here.to_view(16, 24), remote(there))
    assert target.tolist() == [2, 3, 4, -1, -1, -1, -1, -1, -1, -1]
    other.read(there.to_mutable_view(72), remote(here))
    assert target.tolist() == [2, 3, 4, -1, -1, -1, -1, -1, -1, 0]
    one.write(here.to_view(80), remote(there))  # nothing
    for offset, length in ((-1, 1), (0, 81), (80, 1), (8, -1)):
        with pytest.raises(ValueError, match="are not in the 80 of this memory"):
            here.to_view(offset, length)


def test_bad_input_is_refused_and_the_next_copy_is_right(pair):
    one, other = pair
    source, target = torch.ones(8), torch.zeros(4)
    here, there = one.register_memory(source), other.register_memory(target)
    with pytest.raises(ValueError, match="32 bytes do not fit into the 16"):
        one.write(here.to_view(), remote(there))
    with pytest.raises(TypeError, match="to_mutable_view"):
        one.read(here.to_view(), remote(there))
    with pytest.raises(TypeError, match="of another transport"):
        one.write(there.to_view(), remote(there))
    with pytest.raises(ValueError, match="not the connected peer's"):
        one.write(here.to_view(), remote(here))
    with pytest.raises(ValueError, match="number of seconds"):
        one.write(here.to_view(0, 16), remote(there), timeout=-1)
    for wrong in (
        torch.ones(4, 4).t(),
        torch.ones(0),
        torch.ones(3).to_sparse(),
        torch.ones(3, device="meta"),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            one.register_memory(wrong)
    with pytest.raises(TypeError):
        one.register_memory([1.0])
    with pytest.raises(RuntimeError, match="connected already"):
        one.connect(other.bind())
    with pytest.raises(RuntimeError, match="is not connected"), transports.new_transport("al") as alone:
        alone.write(alone.register_memory(torch.ones(1)).to_view(), remote(there))
    with pytest.raises(RuntimeError, match="failed to create") as refused:
        transports.new_transport("al", "cuda")
    assert "altorch.new_window()" in str(refused.value.__cause__)
    one.write(here.to_view(0, 16), remote(there))
    assert target.tolist() == [1.0] * 4


def test_memory_that_is_gone_is_not_touched(pair):
    one, other = pair
    source, target = torch.ones(1000), torch.zeros(1000)
    here, there = one.register_memory(source), other.register_memory(target)
    buffer = remote(there)
    other.unregister_memory(there)
    other.unregister_memory(there)
    for copy in (one.write, one.read):
        with pytest.raises(RuntimeError, match="does not have this memory registered"):
            copy(here.to_mutable_view(), buffer)
    with pytest.raises(RuntimeError, match="does not have this memory registered"):
        one.write(here.to_view(), buffer, async_op=True).wait()
    assert target.sum() == 0
    with pytest.raises(RuntimeError, match="not registered any more"):
        there.to_remote_buffer()
    again = other.register_memory(target)
    one.write(here.to_view(), remote(again))
    assert target.sum() == 1000
    source.resize_(10)
    with pytest.raises(RuntimeError, match="was resized"):
        one.write(here.to_view(), remote(again))
    other.close()
    source.resize_(1000)
    with pytest.raises(RuntimeError, match="does not have this memory registered"):
        one.write(here.to_view(), remote_of(again, buffer))


def test_an_old_handle_ends_no_newer_registration(pair):
    one, other = pair
    source, target = torch.ones(1000), torch.zeros(1000)
    here, first = one.register_memory(source), other.register_memory(target)
    other.unregister_memory(first)
    again = other.register_memory(target)
    buffer = remote(again)
    other.unregister_memory(first)
    one.write(here.to_view(), buffer)
    assert target.sum() == 1000
    other.close()
    with pytest.raises(RuntimeError, match="does not have this memory registered"):
        one.write(here.to_view(), buffer)


def test_bytes_that_are_not_the_values_are_refused(pair):
    for lazy in (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag):
        with pytest.raises(ValueError, match="resolve_conj"):
            pair[0].register_memory(lazy)


def remote_of(memory, old):
    """A closed endpoint gives none: the same place, with the number of then."""
    return type(old)(old.endpoint, old.word, old.number, memory.address, memory.length)


def test_what_is_registered_stays_though_no_caller_holds_it():
    with transports.new_transport("al") as one:
        other = transports.new_transport("al")
        one.connect(other.bind())
        buffer = remote(other.register_memory(torch.full((1_000_000,), 3.0)))
        del other
        gc.collect()
        torch.full((1_000_000,), 4.0)  # where it would be
        target = torch.zeros(1_000_000)
        one.read(one.register_memory(target).to_mutable_view(), buffer)
        assert (target == 3).all()


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\x00", b"[]", b'{"al": 2}', b'{"al": 1, "endpoint": 3}', json.dumps([1] * 1000).encode()],
)
def test_broken_words_are_refused(pair, data):
    _, other = pair
    buffer = other.register_memory(torch.ones(3)).to_remote_buffer()
    with pytest.raises(ValueError, match="this is no"):
        type(buffer).deserialize(data)
    with pytest.raises(ValueError, match="this is no"), transports.new_transport("al") as alone:
        alone.connect(data)
    fields = json.loads(buffer.serialize())
    for name in ("word", "number", "address", "length"):
        for wrong in (-1, 1 << 64, True, 1.5, "1", None):
            with pytest.raises(ValueError, match="this is no"):
                type(buffer).deserialize(json.dumps(fields | {name: wrong}).encode())


def test_a_peer_elsewhere_is_told_apart():
    with transports.new_transport("al") as one, transports.new_transport("al") as other:
        url = json.loads(other.bind())
        with pytest.raises(RuntimeError, match="the peer is elsewhere"):
            one.connect(json.dumps(url | {"node": "another"}).encode())
        with pytest.raises(RuntimeError, match="cannot copy from the peer"):
            one.connect(json.dumps(url | {"number": url["number"] ^ 1}).encode())
        one.connect(other.bind())


def test_asyncio_waits_for_many(pair):
    one, other = pair
    tensors = [torch.full((100_000,), float(index)) for index in range(20)]
    targets = [torch.zeros(100_000) for _ in tensors]
    views = [one.register_memory(tensor).to_view() for tensor in tensors]
    buffers = [remote(other.register_memory(target)) for target in targets]

    async def all_of_them():
        await asyncio.gather(
            *(one.write_async(*each, timeout=20) for each in zip(views, buffers, strict=True))
        )

    asyncio.run(all_of_them())
    assert all(torch.equal(*each) for each in zip(tensors, targets, strict=True))


def test_close_ends_what_is_under_way_and_refuses_the_rest(pair):
    one, other = pair
    source = torch.ones(30_000_000)
    here, there = one.register_memory(source), other.register_memory(torch.zeros(30_000_000))
    works = [one.write(here.to_view(), remote(there), async_op=True) for _ in range(3)]
    with pytest.raises(RuntimeError, match="wait for it first"):
        one.unregister_memory(here)
    one.close()
    one.close()
    assert all(work.is_completed() for work in works)
    for refused in (
        one.bind,
        lambda: one.register_memory(source),
        lambda: one.write(here.to_view(), remote(there)),
    ):
        with pytest.raises(RuntimeError):
            refused()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("al-transport")]


def trains_and_infers(world):
    """Rank 0 is the trainer, with an endpoint for each of the others; they come, read and leave when they like."""
    world.start("gloo")
    store = dist.distributed_c10d._get_default_store()
    weights = [torch.full((1000 + index,), float(index)) for index in range(5)]
    if world.rank == 0:
        for peer in range(1, world.size):
            endpoint = transports.new_transport_rank("al", store=store, peer_rank=peer)
            buffers = [endpoint.register_memory(each).to_remote_buffer().serialize() for each in weights]
            store.set(f"buffers/{peer}", b"\n".join(buffers))
        for step in range(1, 4):
            for each in weights:
                each.add_(100)
            store.set(f"step/{step}", "1")
            for peer in range(1, world.size):
                store.get(f"done/{peer}/{step}")
        return os.getpid()
    endpoint = transports.new_transport_rank("al", store=store, peer_rank=0)
    from altorch.transport import AlRemoteBuffer

    buffers = [AlRemoteBuffer.deserialize(each) for each in store.get(f"buffers/{world.rank}").split(b"\n")]
    own = [torch.zeros(1000 + index) for index in range(5)]
    views = [endpoint.register_memory(each).to_mutable_view() for each in own]
    for step in range(1, 4):
        store.get(f"step/{step}")
        for view, buffer in zip(views, buffers, strict=True):
            endpoint.read(view, buffer)
        assert all((each == index + 100 * step).all() for index, each in enumerate(own))
        store.set(f"done/{world.rank}/{step}", "1")
    world.endpoint, world.view, world.buffer = endpoint, views[0], buffers[0]
    return os.getpid()


def reads_of_the_dead(world):
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="has ended, or its memory is gone"):
        while True:
            world.endpoint.read(world.view, world.buffer)
            assert time.monotonic() < began + 20 * PATIENCE
    with pytest.raises(RuntimeError, match="has ended, or its memory is gone"):
        world.endpoint.write(world.view, world.buffer)
    world.endpoint.close()


def test_weights_go_from_a_trainer_to_others_and_its_death_is_an_error():
    with Cluster(3, group=False) as cluster:
        cluster.check(trains_and_infers)
        cluster.kill(0, signal.SIGKILL)
        for outcome in cluster.run(reads_of_the_dead, ranks=[1, 2], deadline=60):
            assert outcome.status == "ok", outcome
