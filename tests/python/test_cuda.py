# SPDX-License-Identifier: BSD-3-Clause
"""CUDA tensors: operations against a reference, order with streams, lifetime, graphs, frameworks, faults.

Marked gpu: skipped where no GPU is visible. They run over the route that altorch chooses: NCCL, or host_staged where
ranks share a GPU, or what ALTORCH_ROUTE=cuda=... says. `make test-gpu` runs them over every route on a GPU machine.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import re
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import Cluster, on_ranks

pytestmark = pytest.mark.gpu
GPUS = torch.cuda.device_count()
REDUCED = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "complex64"]
SIZES = (0, 1, 7, 1024, 100_003)
NAMES = ("_make_premul_sum", "_make_nccl_premul_sum")
SPIN = 200_000_000  # device cycles: about 0.1 s


def device(world):
    index = world.rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cuda"))


def shares_gpus(world):
    return torch.cuda.device_count() < world.size


def co_resident(world):
    """Whether a kernel of one rank can wait for another's: sh cmake/with_mps.sh makes it so on a shared GPU."""
    return not shares_gpus(world) or "CUDA_MPS_PIPE_DIRECTORY" in os.environ


# The route that ALTORCH_ROUTE=cuda=<route>[/<protocol>] names, or "".
FORCED, _, PROTOCOL = os.environ.get("ALTORCH_ROUTE", "").removeprefix("cuda=").partition("/")


def route(world):
    """The route of operations that are not small."""
    if world.size == 1 and FORCED == "peer":
        return "host_staged"  # a rank alone has no peer
    return FORCED or ("nccl" if not shares_gpus(world) else "peer" if co_resident(world) else "host_staged")


def small_route(world):
    return FORCED or ("peer" if co_resident(world) else "host_relay")


def can_be_captured(world):
    """Whether a CUDA graph can hold small calls."""
    return route(world) != "host_relay" and co_resident(world) and PROTOCOL != "pieces"


def needs_nccl(world):
    """For tests that compare with torch's own NCCL backend."""
    if torch.cuda.device_count() < world.size:
        pytest.skip(f"NCCL needs {world.size} GPUs, {torch.cuda.device_count()} are visible")


def data(world, count, dtype, rank=None, seed=0):
    """What `rank` contributes; every rank can compute that of all ranks."""
    rank = world.rank if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * seed + 17 * rank + count)
    kind = getattr(torch, dtype)
    if kind.is_floating_point or kind.is_complex:
        return torch.randn(count, generator=generator, dtype=torch.float64).to(kind)
    return torch.randint(0, 5, (count,), generator=generator).to(kind)


def wide(tensor):
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def close(got, want, dtype):
    tolerance = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "complex64": 1e-4, "float64": 1e-12}.get(
        dtype, 0
    )
    torch.testing.assert_close(wide(got.cpu()), wide(want), rtol=tolerance, atol=tolerance)


def all_ranks(world, count, dtype, seed=0):
    return [data(world, count, dtype, rank, seed) for rank in range(world.size)]


def halved(factor=0.5):
    """PREMUL_SUM by one half; torch 2.13 renamed its maker."""
    return next(getattr(dist, name) for name in NAMES if hasattr(dist, name))(factor)


def finish(work):
    if work is not None:
        work.wait()


@on_ranks(1, 2, 4)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("dtype", REDUCED)
def test_reductions(world, dtype, asynchronous):
    here = device(world)
    for count in SIZES:
        world.case = f"{count} elements"
        parts = all_ranks(world, count, dtype)
        total = sum(wide(part) for part in parts)
        x = parts[world.rank].to(here)
        finish(dist.all_reduce(x, async_op=asynchronous))
        close(x, total.to(wide(x).dtype), dtype)
        root = world.size - 1
        x = parts[world.rank].to(here)
        finish(dist.reduce(x, root, async_op=asynchronous))
        if world.rank == root:
            close(x, total, dtype)
        blocks = all_ranks(world, count * world.size, dtype, seed=1)
        want = sum(wide(block) for block in blocks)[count * world.rank : count * (world.rank + 1)]
        out = torch.empty(count, dtype=getattr(torch, dtype), device=here)
        finish(dist.reduce_scatter_tensor(out, blocks[world.rank].to(here), async_op=asynchronous))
        close(out, want, dtype)


@on_ranks(2)
def test_operators(world):
    here = device(world)
    parts = [part + 1 for part in all_ranks(world, 33, "int64")]
    stack = torch.stack(parts)
    for op, want in {
        dist.ReduceOp.MAX: stack.amax(0),
        dist.ReduceOp.MIN: stack.amin(0),
        dist.ReduceOp.PRODUCT: stack.prod(0),
    }.items():
        x = parts[world.rank].to(here)
        dist.all_reduce(x, op)
        assert torch.equal(x.cpu(), want)
    x = torch.full((5,), float(world.rank + 1), device=here)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert torch.equal(x.cpu(), torch.full((5,), (world.size + 1) / 2))
    of_a_gpu = torch.tensor(0.5, device=here)
    for dtype, factor in itertools.product(
        (torch.float32, torch.bfloat16, torch.float16, torch.float64), (0.5, of_a_gpu)
    ):
        x = torch.full((5,), float(world.rank + 1), device=here, dtype=dtype)
        dist.all_reduce(x, halved(factor))
        assert torch.equal(
            x.cpu().double(), torch.full((5,), world.size * (world.size + 1) / 4, dtype=torch.float64)
        )
    flags = torch.tensor([world.rank == 0, False, True], device=here)
    dist.all_reduce(flags)
    assert flags.tolist() == [True, False, True]
    bits = torch.tensor([1, 3, 7 - world.rank], dtype=torch.int32, device=here)
    dist.all_reduce(bits, dist.ReduceOp.BXOR)  # which NCCL does not have
    assert bits.tolist() == [0, 0, 1]


@on_ranks(2)
def test_stats_name_the_route(world):
    from altorch import stats

    here = device(world)
    # Larger than what `peer` takes in NCCL's place between two GPUs.
    dist.reduce_scatter_tensor(torch.ones(1 << 24, device=here), torch.ones(1 << 25, device=here))
    dist.broadcast(torch.ones(3, device=here), 0)
    seen = [(row["operation"], row["route"]) for row in stats()]
    assert ("reduce_scatter", f"cuda:{route(world)}") in seen
    small = small_route(world)
    assert ("broadcast", f"cuda:{small}") in seen, "small operations have a route of their own"


@on_ranks(1, 2, 4)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("dtype", [*REDUCED, "bool", "int16", "float8_e4m3fn"])
def test_moves(world, dtype, asynchronous):
    here = device(world)
    kind = getattr(torch, dtype)

    def equal(got, want):
        assert torch.equal(got.cpu().view(torch.uint8), want.view(torch.uint8)), (got, want)

    for count in SIZES:
        world.case = f"{count} elements"
        source = "float32" if dtype.startswith("float8") else dtype
        parts = [part.to(kind) for part in all_ranks(world, count, source)]
        mine = parts[world.rank].to(here)
        x = mine.clone()
        finish(dist.broadcast(x, 0, async_op=asynchronous))
        equal(x, parts[0])
        out = torch.empty(count * world.size, dtype=kind, device=here)
        finish(dist.all_gather_into_tensor(out, mine, async_op=asynchronous))
        equal(out, torch.cat(parts))
        outs = [torch.empty(count, dtype=kind, device=here) for _ in parts]
        finish(dist.all_gather(outs, mine, async_op=asynchronous))
        for got, want in zip(outs, parts, strict=True):
            equal(got, want)
        outs = [torch.empty(count, dtype=kind, device=here) for _ in parts]
        finish(dist.gather(mine, outs if world.rank == 0 else None, 0, async_op=asynchronous))
        if world.rank == 0:
            for got, want in zip(outs, parts, strict=True):
                equal(got, want)
        x = torch.empty(count, dtype=kind, device=here)
        finish(
            dist.scatter(
                x, [p.to(here) for p in parts] if world.rank == 0 else None, 0, async_op=asynchronous
            )
        )
        equal(x, parts[world.rank])
        grid = [[p.to(kind) for p in all_ranks(world, count, source, seed=5 + r)] for r in range(world.size)]
        out = torch.empty(count * world.size, dtype=kind, device=here)
        finish(dist.all_to_all_single(out, torch.cat(grid[world.rank]).to(here), async_op=asynchronous))
        equal(out, torch.cat([grid[r][world.rank] for r in range(world.size)]))


@on_ranks(2, 4)
def test_uneven(world):
    here = device(world)
    lengths = [3 + 2 * rank for rank in range(world.size)]
    parts = [data(world, length, "float32", rank) for rank, length in enumerate(lengths)]
    outs = [torch.empty(length, device=here) for length in lengths]
    dist.all_gather(outs, parts[world.rank].to(here))
    for got, want in zip(outs, parts, strict=True):
        assert torch.equal(got.cpu(), want)
    inputs = [torch.full((length,), float(world.rank + 1), device=here) for length in lengths]
    out = torch.empty(lengths[world.rank], device=here)
    dist.reduce_scatter(out, inputs)
    assert torch.equal(out.cpu(), torch.full_like(out.cpu(), world.size * (world.size + 1) / 2))
    sent = [world.rank + peer for peer in range(world.size)]
    out = torch.empty(sum(sent), device=here)
    dist.all_to_all_single(out, torch.full((sum(sent),), float(world.rank), device=here), sent, sent)
    want = torch.cat([torch.full((world.rank + peer,), float(peer)) for peer in range(world.size)])
    assert torch.equal(out.cpu(), want)
    outs = [torch.empty(4, device=here) for _ in range(world.size)]
    dist.all_to_all(
        outs, [torch.full((4,), 10.0 * world.rank + peer, device=here) for peer in range(world.size)]
    )
    assert [int(t[0]) for t in outs] == [10 * peer + world.rank for peer in range(world.size)]


def bytes_between(one, other, call):
    """Alike in both directions or not: nothing, a little, much."""
    return (0, 1, 4099, 30_000, 70_001, 1 << 20)[(3 * one + other + call) % 6]


@on_ranks(2, 4)
def test_small_and_large_blocks_to_each_rank(world):
    here = device(world)
    group = dist.new_group(timeout=timedelta(seconds=60))
    pending = []
    for call in range(60):
        sent = [bytes_between(world.rank, peer, call) for peer in range(world.size)]
        taken = [bytes_between(peer, world.rank, call) for peer in range(world.size)]
        tag = [(7 * world.rank + 3 * peer + call) % 251 for peer in range(world.size)]
        want = [(7 * peer + 3 * world.rank + call) % 251 for peer in range(world.size)]
        x = torch.tensor(tag, dtype=torch.uint8).repeat_interleave(torch.tensor(sent)).to(here)
        out = torch.full((sum(taken),), 255, dtype=torch.uint8, device=here)
        work = dist.all_to_all_single(out, x, taken, sent, group=group, async_op=call % 3 == 0)
        if work is not None:
            work.wait()
        pending.append((out, torch.tensor(want, dtype=torch.uint8).repeat_interleave(torch.tensor(taken))))
    for call, (out, want) in enumerate(pending):
        assert torch.equal(out.cpu(), want), call


@on_ranks(2, 4)
def test_sparse_sums(world):
    """Duplicates, dense dimensions, ranks without elements; synchronous and not; the future of DDP's reducer."""
    here = device(world)
    for dtype in ("float32", "float16", "bfloat16", "int64"):
        kind = getattr(torch, dtype)
        for sizes, sparse in (((50,), 1), ((20, 3), 1), ((6, 5, 2), 2)):
            world.case = f"{dtype} {sizes}"
            inputs = []
            for rank in range(world.size):
                generator = torch.Generator().manual_seed(rank)
                count = (12, 0, 5, 40)[rank % 4]
                indices = torch.stack(
                    [torch.randint(0, n, (count,), generator=generator) for n in sizes[:sparse]]
                )
                values = torch.randint(0, 4, (count, *sizes[sparse:]), generator=generator).to(kind)
                inputs.append(torch.sparse_coo_tensor(indices, values, sizes))
            want = sum(each.to_dense().double() for each in inputs).to(kind)
            for asynchronous in (False, True):
                tensor = inputs[world.rank].to(here)
                work = dist.all_reduce(tensor, async_op=asynchronous)
                if asynchronous:
                    assert torch.equal(work.get_future().wait()[0].to_dense().cpu(), want)
                    work.wait()
                assert tensor.is_sparse and tensor.is_coalesced()
                assert torch.equal(tensor.to_dense().cpu(), want)
                world.identical(tensor.values())
    wrong = torch.sparse_coo_tensor([[0]], torch.ones(1), (5 + world.rank,)).to(here)
    with pytest.raises(RuntimeError, match=r"(?s)rank 0 of the group has.*rank 1 has"):
        dist.all_reduce(wrong)
    with pytest.raises(ValueError, match="SUM"):
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
    check = torch.ones(3, device=here)
    dist.all_reduce(check)
    assert check.eq(world.size).all()


@on_ranks(2)
def test_ddp_with_sparse_embeddings(world):
    here = device(world)
    torch.manual_seed(5)
    bag = torch.nn.EmbeddingBag(30, 4, mode="sum", sparse=True, device=here)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(bag, torch.nn.Linear(4, 1, device=here)), device_ids=[here.index]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(world.rank)
    before = bag.weight.detach().clone()
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randint(0, 30, (4, 5), generator=generator).to(here)).square().mean().backward()
        assert bag.weight.grad.is_sparse
        optimizer.step()
    assert not torch.equal(before, bag.weight)
    for parameter in model.parameters():
        world.identical(parameter)


@on_ranks(2)
def test_non_contiguous(world):
    here = device(world)
    x = torch.arange(12.0, device=here).view(3, 4).t()
    dist.all_reduce(x)
    assert torch.equal(x.cpu(), 2 * torch.arange(12.0).view(3, 4).t())
    base = torch.zeros(4, 2, device=here)
    work = dist.all_gather(
        [base[:2, 0], base[2:, 0]], torch.full((2,), world.rank + 1.0, device=here), async_op=True
    )
    work.wait()
    assert base.cpu().tolist() == [[1, 0], [1, 0], [2, 0], [2, 0]]


@on_ranks(2)
def test_messages(world):
    here = device(world)
    peer = 1 - world.rank
    x = torch.full((1000,), float(world.rank), device=here)
    if world.rank == 0:
        dist.send(x, peer)
        dist.recv(x, peer)
    else:
        y = torch.empty_like(x)
        dist.recv(y, peer)
        dist.send(y + 5, peer)
    if world.rank == 0:
        assert x.eq(5).all()
    mine, theirs = (
        torch.full((3_000_000,), float(world.rank), device=here),
        torch.empty(3_000_000, device=here),
    )
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]
    ):
        work.wait()
    assert theirs.eq(peer).all()
    all_ranks = [torch.empty(1000, device=here) for _ in range(world.size)]
    batch = [dist.P2POp(dist.irecv, t, rank) for rank, t in enumerate(all_ranks)]
    mine = torch.full((1000,), world.rank + 1.0, device=here)
    batch += [dist.P2POp(dist.isend, mine, rank) for rank in range(world.size)]  # itself too
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert [int(t[0]) for t in all_ranks] == list(range(1, world.size + 1))
    with pytest.raises((RuntimeError, ValueError), match="sends itself"):
        dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, world.rank)])
    with pytest.raises((RuntimeError, NotImplementedError), match=r"host_(staged|relay): .*src"):
        dist.recv(x)


@on_ranks(2)
def test_coalescing(world):
    here = device(world)
    tensors = [torch.full((n,), world.rank + 1.0, device=here) for n in (3, 5, 7)]
    dist.all_reduce_coalesced(tensors)
    assert all(t.eq(3).all() for t in tensors)
    with dist._coalescing_manager(device=here, async_ops=True) as manager:
        for t in tensors:
            dist.all_reduce(t)
    manager.wait()
    assert all(t.eq(6).all() for t in tensors)


@on_ranks(2)
def test_order_with_streams(world):
    """Operations begin after what the stream holds, and the stream goes on after them; the host never waits."""
    here = device(world)
    warm = torch.ones(50_000, device=here)  # a kernel's first use loads it, which waits for the device
    dist.all_reduce(warm)
    dist.all_reduce(warm * 2, async_op=True).wait()
    torch.cuda._sleep(100)
    torch.cuda.synchronize()
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
    for number, stream in enumerate(streams):
        for asynchronous in (False, True):
            world.case = f"stream {number}, {'async' if asynchronous else 'sync'}"
            with torch.cuda.stream(stream):
                x = torch.full((50_000,), -1e9, device=here)  # poison
                stream.synchronize()
                began = time.perf_counter()
                torch.cuda._sleep(SPIN)
                x.fill_(world.rank + 1.0)
                work = dist.all_reduce(x, async_op=asynchronous)
                issued = time.perf_counter() - began
                if work is not None:
                    assert not work.is_completed(), "the device cannot be done yet"
                    work.wait()
                y = x * 2
                x.fill_(-1e9)
                waited = time.perf_counter() - began
                stream.synchronize()
                took = time.perf_counter() - began
                assert y.eq(6).all(), y
                assert waited < took / 2, (
                    f"the host waited: issued after {issued}, went on after {waited} of {took} s"
                )
                if work is not None:
                    assert work.is_completed()


@on_ranks(2)
def test_threads_with_groups_of_their_own(world):
    here = device(world)
    groups = [dist.new_group() for _ in range(2)]
    for group in groups:
        dist.all_reduce(torch.ones(4, device=here), group=group)
    failures = []

    def call(number):
        try:
            torch.cuda.set_device(here)
            with torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(30):
                    count = 1 << 18 if turn % 3 == 0 else 100
                    x = torch.full((count,), float(world.rank + number), device=here)
                    work = dist.all_reduce(x, group=groups[number], async_op=turn % 2 == 1)
                    if work is not None:
                        work.wait()
                    if not x.eq(1 + 2 * number).all():
                        failures.append(f"group {number}, turn {turn}: {x}")
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert not failures and not any(thread.is_alive() for thread in threads), failures


@on_ranks(2)
def test_wait_with_a_timeout_blocks_the_host(world):
    here = device(world)
    x = torch.ones(10, device=here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    torch.cuda._sleep(SPIN)
    work = dist.all_reduce(x, async_op=True)
    with pytest.raises(RuntimeError, match="timed out after 10 ms"):
        work.wait(timedelta(milliseconds=10))
    assert work.wait(timedelta(seconds=30))
    assert work.is_completed()


@on_ranks(2)
def test_barrier_blocks_the_host(world):
    here = device(world)
    dist.all_reduce(torch.ones(1, device=here))
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(SPIN)
    done.record()
    dist.barrier()
    assert done.query()


@on_ranks(2)
def test_futures(world):
    here = device(world)
    torch.cuda._sleep(SPIN // 4)
    x = torch.full((1000,), world.rank + 1.0, device=here)
    future = dist.all_reduce(x, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    result = doubled.wait()
    assert result.eq(6).all()


@on_ranks(2)
def test_a_future_waits_for_its_call_alone(world):
    """Rank 0 asks for the Futures in the wrong order, and rank 1 makes its second call once rank 0 has the first."""
    here = device(world)
    x, y = torch.ones(1000, device=here), torch.ones(1000, device=here)
    dist.all_reduce(x)
    assert x.eq(2).all()  # CUDA may load a kernel only once no other one runs
    first = dist.all_reduce(x, async_op=True)
    if world.rank == 0:
        second = dist.all_reduce(y, async_op=True)
        later, future = second.get_future(), first.get_future()
        future.wait()
        torch.cuda.current_stream().synchronize()
        assert x.eq(4).all()
        dist.send(torch.zeros(1), 1)
        later.wait()
    else:
        dist.recv(torch.zeros(1), 0)
        first.wait()
        dist.all_reduce(y)
    assert x.eq(4).all() and y.eq(2).all()


@on_ranks(2)
def test_a_captured_work_says_that_it_cannot_tell(world):
    x = torch.ones(1000, device=device(world))
    if captured(dist.all_reduce, x) is None:
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work = dist.all_reduce(x, async_op=True)
        work.wait()
    for ask in (work.is_completed, work.is_success, lambda: work.wait(timedelta(seconds=9))):
        with pytest.raises(ValueError, match="a CUDA graph has captured this call"):
            ask()
    x.fill_(1)
    graph.replay()
    assert x.eq(2).all()


@on_ranks(1, 2)
def test_a_stream_that_is_destroyed_behind_the_call(world):
    """A stream of CUDA's own: altorch does not ask it for anything once the call has returned."""
    here = device(world)
    runtime = torch.cuda.cudart()
    for turn in range(20):
        address = ctypes.c_uint64(0)
        assert int(runtime.cudaStreamCreate(ctypes.addressof(address))) == 0
        x = torch.full((1000,), float(world.rank + turn), device=here)
        torch.cuda.synchronize(here)
        with torch.cuda.stream(torch.cuda.ExternalStream(address.value, here)):
            dist.all_reduce(x)
            if turn % 2:
                dist.all_reduce(x)
        torch.cuda.synchronize(here)
        assert int(runtime.cudaStreamDestroy(address.value)) == 0
        factor = world.size if turn % 2 else 1
        want = factor * sum(rank + turn for rank in range(world.size))
        assert x.eq(want).all(), (turn, x[0].item(), want)
        if turn % 5 == 0:
            time.sleep(0.3)  # al-cuda-poll looks ten times a second
    y = torch.ones(10, device=here)
    dist.all_reduce(y)
    assert y.eq(world.size).all()


@on_ranks(2)
def test_memory_of_operations_that_no_caller_waits_for(world):
    here = device(world)
    x = torch.ones(1 << 16, device=here)
    for _ in range(200):
        dist.all_reduce(x.clone(), async_op=True)
    torch.cuda.synchronize()
    time.sleep(0.5)
    gc.collect()
    before = torch.cuda.memory_allocated()
    for turn in range(10_000):
        dist.all_reduce(x.clone(), async_op=True)
        if turn % 500 == 0:
            torch.cuda.synchronize()
            time.sleep(0.15)
    torch.cuda.synchronize()
    time.sleep(0.5)
    grown = torch.cuda.memory_allocated() - before
    assert grown < 4 << 20, f"{grown >> 20} MiB more"


@on_ranks(2)
def test_tensors_live_until_the_device_is_done(world):
    here = device(world)
    for _ in range(20):
        torch.cuda._sleep(SPIN // 20)
        x = torch.full((1 << 20,), world.rank + 1.0, device=here)
        y = torch.empty(2 << 20, device=here)
        work = dist.all_gather_into_tensor(y, x, async_op=True)
        del x
        torch.full((1 << 20,), -7.0, device=here)  # would land in x's memory if it were free
        work.wait()
        assert y[: 1 << 20].eq(1).all() and y[1 << 20 :].eq(2).all()


@on_ranks(2)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_graphs(world, asynchronous):
    here = device(world)
    x = torch.zeros(1000, device=here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    if not can_be_captured(world):
        with pytest.raises(RuntimeError, match="captured"), torch.cuda.graph(graph):
            dist.all_reduce(x, async_op=asynchronous)
        torch.cuda.synchronize()
        dist.all_reduce(x)
        return
    with torch.cuda.graph(graph):
        y = x + 1
        work = dist.all_reduce(y, async_op=asynchronous)
        if work is not None:
            work.wait()
        z = y * 2
    for turn in range(5):
        x.fill_(float(turn + world.rank))
        graph.replay()
        torch.cuda.synchronize()
        assert z.eq(2.0 * (2 * turn + 1 + 2)).all(), z[:3]
    dist.all_reduce(x)
    torch.cuda.synchronize()


def captured(function, *arguments, **options):
    """A graph that holds the call, or None where the route cannot be captured."""

    def call():
        function(*arguments, **options)

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError as error:
        assert "captured" in str(error), error
        torch.cuda.synchronize()
        return None
    return graph


@on_ranks(2)
@pytest.mark.parametrize("count", [1000, 300_000])
def test_a_graph_of_two_streams_keeps_the_order_of_the_calls(world, count):
    here = device(world)
    a, b = torch.ones(count, device=here), torch.full((count,), 2.0, device=here)

    def both():
        work = dist.all_reduce(a, async_op=True)
        dist.all_reduce(b)
        work.wait()

    graph = captured(both)
    if graph is None:
        return
    for turn in range(50):
        a.fill_(turn + world.rank)
        b.fill_(100.0 * turn + world.rank)
        graph.replay()
        torch.cuda.synchronize()
        assert a.eq(2 * turn + 1).all() and b.eq(200.0 * turn + 1).all(), (turn, a[:3], b[:3])


@on_ranks(2, 4)
@pytest.mark.parametrize("count", [1, 1000, 300_000])
def test_graphs_replay_among_each_other_and_eager_calls(world, count):
    here = device(world)
    size, rank = world.size, world.rank
    own = data(world, count, "float32").to(here)
    parts = all_ranks(world, count, "float32")
    x, y = own.clone(), torch.empty(count * size, device=here)
    scattered, exchanged = torch.empty(count, device=here), torch.empty(count * size, device=here)
    blocks = data(world, count * size, "float32", seed=1).to(here)
    given = own.clone()

    def reduce():
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, own)

    def move():
        dist.reduce_scatter_tensor(scattered, blocks)
        dist.all_to_all_single(exchanged, blocks)
        dist.broadcast(given, size - 1)

    graphs = [captured(reduce), captured(move)]
    if None in graphs:
        small = 4 * count * size <= 64 << 10
        # Beside NCCL host_staged leaves it the all_to_all of a graph.
        beside_nccl = route(world) == "host_staged" and not shares_gpus(world)
        assert route(world) == "host_relay" or not co_resident(world) or not small or beside_nccl
        return
    every = [data(world, count * size, "float32", other, seed=1) for other in range(size)]
    mine = slice(count * rank, count * (rank + 1))
    for turn in range(30):
        for tensor, value in ((x, own), (given, own + turn)):
            tensor.copy_(value)
        for tensor in (y, scattered, exchanged):
            tensor.zero_()
        for graph in graphs if turn % 2 else reversed(graphs):
            if turn % 5 == 0:
                z = own.clone()
                dist.all_reduce(z)
                close(z, sum(wide(part) for part in parts), "float32")
            graph.replay()
        close(x, sum(wide(part) for part in parts), "float32")
        close(y, torch.cat(parts), "float32")
        close(scattered, sum(wide(block) for block in every)[mine], "float32")
        close(exchanged, torch.cat([block[mine] for block in every]), "float32")
        close(given, parts[size - 1] + turn, "float32")


@on_ranks(2)
def test_one_group_takes_both_kinds_of_tensors(world):
    here = device(world)
    on_cpu, on_gpu = torch.full((5,), world.rank + 1.0), torch.full((5,), world.rank + 1.0, device=here)
    works = [dist.all_reduce(on_cpu, async_op=True), dist.all_reduce(on_gpu, async_op=True)]
    for work in works:
        work.wait()
    assert on_cpu.eq(3).all() and on_gpu.eq(3).all()
    gathered = [None] * world.size
    dist.all_gather_object(gathered, {"rank": world.rank})
    assert gathered == [{"rank": rank} for rank in range(world.size)]
    with pytest.raises((RuntimeError, ValueError), match="device"):
        dist.all_gather([on_cpu.clone(), on_cpu.clone()], on_gpu)


def calls_something_else(world):
    here = device(world)
    dist.all_reduce(torch.ones(4, device=here))  # from here on the ranks can compare
    torch.cuda.synchronize()
    x = torch.ones((1 + world.rank) << 20, device=here)
    errors = []
    for _ in range(100):  # at the latest, a later call says it
        try:
            dist.all_reduce(x) if world.rank == 0 else dist.broadcast(x, 0)
            time.sleep(0.05)
        except RuntimeError as error:
            errors.append(str(error))
            break
    return errors


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
@pytest.mark.skipif("relay" in os.environ.get("ALTORCH_ROUTE", ""), reason="of host_staged's shared memory")
def test_different_calls_are_an_error_on_every_rank():
    with Cluster(2, launcher="plain") as cluster:
        for outcome in cluster.run(calls_something_else, deadline=60):
            assert outcome.ok, outcome.report()
            assert len(outcome.value) == 1
            assert "all_reduce" in outcome.value[0] and "broadcast" in outcome.value[0], outcome.value


@on_ranks(2)
def test_uneven_calls_may_wait_for_long(world):
    """Longer than ranks wait before they compare what they called: their own counts differ, and rightly."""
    here = device(world)
    if world.rank == 0:
        torch.cuda._sleep(25 * SPIN)
    parts = [torch.empty(1000 * (rank + 1), device=here) for rank in range(2)]
    dist.all_gather(parts, torch.full((1000 * (world.rank + 1),), float(world.rank), device=here))
    torch.cuda.synchronize()
    assert parts[0].eq(0).all() and parts[1].eq(1).all()


@on_ranks(2)
def test_bad_input(world):
    here = device(world)
    x = torch.ones(4, device=here)
    dist.all_reduce(x)
    errors = (RuntimeError, ValueError, TypeError)
    with pytest.raises(errors, match=r"device|cpu"):
        dist.all_gather([torch.ones(4), torch.ones(4, device=here)], x)
    with pytest.raises(errors, match=r"dtype|type"):
        dist.all_gather([torch.ones(4, device=here, dtype=torch.int32) for _ in range(2)], x)
    with pytest.raises(errors, match="elements"):
        dist.all_gather_into_tensor(torch.ones(7, device=here), x)
    with pytest.raises(errors, match=r"dst|src|rank"):
        dist.broadcast(x, 5)


def one_rank_uses_another_gpu(world):
    here = device(world)
    dist.all_reduce(torch.ones(1 << 20, device=here))
    torch.cuda.synchronize()
    try:
        work = dist.all_reduce(torch.ones(1 << 20, device="cuda:0"), async_op=True)
        work.wait(timedelta(seconds=30))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


@pytest.mark.skipif(GPUS < 2, reason="two GPUs are needed")
def test_a_tensor_on_another_gpu_is_an_error_on_every_rank():
    with Cluster(2, launcher="plain") as cluster:
        outcomes = cluster.run(one_rank_uses_another_gpu, deadline=60)
        for outcome in outcomes:
            assert outcome.ok, outcome.report()
            assert "cuda:0" in outcome.value and "cuda:1" in outcome.value, outcome.value
        assert "aborted it" in outcomes[0].value


def finds_no_route(world):
    here = device(world)
    try:
        dist.all_reduce(torch.ones(4, device=here))
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
def test_without_any_route_each_is_named_with_its_reason():
    """More ranks than GPUs, and NCCL alone allowed."""
    with Cluster(GPUS + 1, launcher="plain", env={"ALTORCH_ROUTE": "cuda=nccl"}) as cluster:
        for outcome in cluster.run(finds_no_route, deadline=60):
            assert outcome.ok, outcome.report()
            assert "nccl: ranks" in outcome.value and "share one GPU" in outcome.value, outcome.value


def connects_at_once(world):
    here = device(world)
    world.start(device_id=here)
    began = time.perf_counter()
    x = torch.ones(4, device=here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    half = dist.new_group(list(range(world.size)))
    dist.all_reduce(x, group=half)
    assert x.eq(world.size**2).all()
    dist.destroy_process_group()
    return took


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
def test_a_group_bound_to_a_device_is_connected_at_once():
    with Cluster(2, launcher="plain") as cluster:
        outcomes = cluster.run(connects_at_once, deadline=120, group=False)
        for outcome in outcomes:
            assert outcome.ok, outcome.report()


def splits(world):
    import altorch

    here = device(world)
    world.start(device_id=here)
    x = torch.full((1 << 20,), float(world.rank), device=here)
    dist.all_reduce(x)
    options = altorch.Options(is_high_priority_stream=False, max_ctas=8)
    pairs = [[0, 1], [2, 3]] if world.size == 4 else [[1, 0]]
    mine = dist.split_group(split_ranks=pairs, pg_options=options)
    part = torch.full((1 << 20,), float(world.rank), device=here)
    dist.all_reduce(part, group=mine)
    assert part.eq(5 if world.rank > 1 else 1).all()
    alone = dist.split_group(split_ranks=[[0]])
    if world.rank == 0:
        dist.all_reduce(part, group=alone)
        assert part.eq(1).all()
    assert not backend_of(mine).options.is_high_priority_stream
    count = backend_of().comm_split_count()
    dist.barrier()  # rank 0 has the store, which the others' splits need
    dist.destroy_process_group()
    return count


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
@pytest.mark.parametrize("size", [2, 4])
def test_split_groups(size):
    with Cluster(size, launcher="plain") as cluster:
        outcomes = cluster.run(splits, deadline=120, group=False)
        for outcome in outcomes:
            assert outcome.ok, outcome.report()
        over_nccl = size <= GPUS and not os.environ.get("ALTORCH_ROUTE")
        assert [outcome.value for outcome in outcomes] == [2 if over_nccl else 0] * size


@on_ranks(2)
def test_memory_registered_with_nccl(world):
    here = device(world)
    if route(world) != "nccl":
        with pytest.raises(RuntimeError, match="no NCCL communicator yet"):
            backend_of().add_buffer(4096, 4096, False)
        return
    dist.all_reduce(torch.ones(1 << 20, device=here))
    for symmetric in (False, True):
        pool = torch.cuda.MemPool(backend_of().mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            x = torch.full((1 << 20,), world.rank + 1.0, device=here)
        assert pool.snapshot()
        backend_of().register_mem_pool(pool, symm=symmetric)
        for _ in range(3):
            y = x.clone()
            dist.all_reduce(y)
            dist.all_reduce(x)
            assert torch.equal(x, y)
            x.fill_(world.rank + 1.0)
        torch.cuda.synchronize()
        backend_of().deregister_mem_pool(pool)
        del x, pool


@on_ranks(4)
def test_subgroups(world):
    here = device(world)
    evens, odds = dist.new_group([0, 2]), dist.new_group([1, 3])
    mine = evens if world.rank % 2 == 0 else odds
    x = torch.full((10,), float(world.rank), device=here)
    dist.all_reduce(x, group=mine)
    assert x.eq(2 if world.rank % 2 == 0 else 4).all()
    dist.barrier()


def train(world, here, group, wrap):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(here)
    model = wrap(model, group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(5):
        torch.manual_seed(100 * step + world.rank)
        inputs, labels = torch.randn(32, 64, device=here), torch.randint(0, 10, (32,), device=here)
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@on_ranks(2)
def test_ddp_equals_nccl(world):
    from torch.nn.parallel import DistributedDataParallel as DDP

    here = device(world)
    needs_nccl(world)
    nccl = dist.new_group(backend="nccl")

    def wrap(model, group):
        return DDP(model, device_ids=[here.index], process_group=group, gradient_as_bucket_view=True)

    assert train(world, here, None, wrap) == pytest.approx(train(world, here, nccl, wrap), rel=1e-5)
    dist.destroy_process_group(nccl)


@on_ranks(2)
def test_fsdp2_equals_nccl(world):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    here = device(world)
    needs_nccl(world)
    nccl = dist.new_group(backend="nccl")

    def wrap(model, group):
        mesh = DeviceMesh.from_group(group if group is not None else dist.group.WORLD, "cuda")
        for layer in model:
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    assert train(world, here, None, wrap) == pytest.approx(train(world, here, nccl, wrap), rel=1e-5)
    dist.destroy_process_group(nccl)


def results_of_works(world):
    here, result = device(world), torch._C._distributed_c10d.WorkResult
    hasty = dist.new_group(timeout=timedelta(seconds=60))
    works = [dist.all_reduce(torch.ones(n, device=here), group=hasty, async_op=True) for n in (3, 1 << 20)]
    assert [result(work.get_future_result().wait()) for work in works] == [result.SUCCESS] * 2
    torch.cuda.synchronize()
    assert result(works[0].get_future_result().wait()) == result.SUCCESS  # asked for again, later
    hasty.set_timeout(timedelta(seconds=2))
    dist.barrier()
    if world.rank == 1:
        time.sleep(6)
        return
    late = dist.all_reduce(torch.ones(3, device=here), group=hasty, async_op=True)
    assert result(late.get_future_result().wait()) == result.TIMEOUT
    with pytest.raises(RuntimeError, match=r"timed out|not there"):
        late.wait()


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
def test_the_result_of_a_work_says_how_it_ended():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(results_of_works)


def calls_for_the_first_time(world, fate, connected):
    """Ranks come together on the host then; NCCL connects with the peers."""
    here = device(world)
    hasty = dist.new_group(timeout=timedelta(seconds=10))  # NCCL takes some to begin
    torch.cuda.synchronize()
    if connected:
        dist.all_reduce(torch.ones(4, device=here), group=hasty)
        torch.cuda.synchronize()
    dist.barrier()
    if world.rank == 1:
        if fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(20)
        return ""
    began = time.monotonic()
    x = torch.ones(1 << 20, device=here)
    try:
        while time.monotonic() < began + 40:
            dist.all_to_all_single(torch.empty_like(x), x, group=hasty)
            time.sleep(0.1)
    except RuntimeError as error:
        assert time.monotonic() < began + 18
        return str(error)
    raise AssertionError("no error was raised")


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
@pytest.mark.parametrize(
    ("fate", "reason"), [("asleep", "its timeout of 10 s|not there after 10 s"), ("killed", "lost|NCCL")]
)
@pytest.mark.parametrize("connected", [True, False])
def test_a_peer_that_never_comes_is_an_error_in_time(fate, reason, connected):
    with Cluster(2, launcher="plain") as cluster:
        outcome = cluster.run(calls_for_the_first_time, deadline=60, fate=fate, connected=connected)[0]
        assert outcome.ok, outcome.report()
        assert "all_to_all" in outcome.value and re.search(reason, outcome.value), outcome.value


def leaves_a_call_unanswered(world):
    here = device(world)
    group = dist.new_group()
    dist.all_reduce(torch.ones(4, device=here), group=group)
    if world.rank == 0:
        dist.all_reduce(torch.ones(4, device=here), group=group)
    began = time.monotonic()
    dist.destroy_process_group(group)
    del group
    gc.collect()
    torch.cuda.synchronize()
    return time.monotonic() - began


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
def test_a_group_can_be_destroyed_while_a_call_waits_for_a_peer():
    with Cluster(2, launcher="plain") as cluster:
        for outcome in cluster.run(leaves_a_call_unanswered, deadline=60):
            assert outcome.ok, outcome.report()
            assert outcome.value < 25


def all_reduce_for_ever(world, count):
    here = device(world)
    x = torch.ones(count, device=here)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        for _ in range(1000):
            dist.all_reduce(x)
            torch.cuda.synchronize()
            time.sleep(0.01)
    except RuntimeError as error:
        assert "lost" in str(error) or "NCCL" in str(error), error
        assert "all_reduce" in str(error), error
        return time.monotonic() - began
    raise AssertionError("no error was raised")


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
@pytest.mark.parametrize("count", [4, 1 << 20])
def test_a_killed_peer_is_an_error_within_seconds(count):
    with Cluster(2, launcher="plain") as cluster:
        outcomes = cluster.run(all_reduce_for_ever, deadline=60, count=count)
        assert outcomes[0].status == "ok", outcomes[0].report()
        assert outcomes[0].value < 20


def replay_for_ever(world):
    here = device(world)
    x = torch.ones(1000, device=here)
    graph = captured(dist.all_reduce, x)
    if graph is None:
        return None
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    time.sleep(0.5)  # nothing is under way
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    graph.replay()
    torch.cuda.synchronize()
    took = time.monotonic() - began
    assert x.isnan().all(), x[:3]
    with pytest.raises(RuntimeError, match="lost"):
        dist.all_reduce(torch.ones(4, device=here))
    return took


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
def test_a_replayed_graph_ends_when_a_peer_is_killed():
    with Cluster(2, launcher="plain") as cluster:
        outcomes = cluster.run(replay_for_ever, deadline=60)
        assert outcomes[0].status == "ok", outcomes[0].report()
        if outcomes[0].value is None:
            pytest.skip("this route cannot be captured")
        assert outcomes[0].value < 5


@on_ranks(2)
def test_a_graph_outlives_its_group(world):
    here = device(world)
    group = dist.new_group()
    x = torch.ones(1000, device=here)
    graph = captured(dist.all_reduce, x, group=group)
    if graph is None or small_route(world) == "nccl":
        pytest.skip("this route cannot be captured, or is NCCL's business")
    dist.destroy_process_group(group)
    del group
    gc.collect()
    torch.cuda.synchronize()
    x.fill_(world.rank + 1.0)
    dist.barrier()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert x.eq(12).all(), x[:3]
    y = torch.ones(1000, device=here)
    dist.all_reduce(y)
    assert y.eq(2).all()
    dist.barrier()


@on_ranks(2)
def test_compiled_into_graphs(world):
    pytest.importorskip("triton")
    if not can_be_captured(world):
        pytest.skip("this route cannot be captured")
    here = device(world)

    @torch.compile(mode="reduce-overhead")
    def step(x, weight):
        hidden = torch.relu(x @ weight)
        return torch.ops._c10d_functional.wait_tensor(
            torch.ops._c10d_functional.all_reduce(hidden, "sum", dist.group.WORLD.group_name)
        ).sum(1)

    weight = torch.full((16, 16), 0.25 * (world.rank + 1), device=here)
    for turn in range(6):
        x = torch.full((4, 16), float(turn), device=here)
        torch.compiler.cudagraph_mark_step_begin()
        got = step(x, weight).clone()
        assert torch.allclose(got, torch.full((4,), 16 * 16 * turn * 0.25 * 3, device=here)), (turn, got)


SECONDS = float(os.environ.get("ALTORCH_TEST_SECONDS", "8"))


@on_ranks(2, 4, deadline=SECONDS + 60)
def test_random_calls_streams_groups_and_graphs(world):
    """The same random calls on every rank, compared with what all ranks would compute; ALTORCH_TEST_SECONDS long."""
    here, size, rank = device(world), world.size, world.rank
    random = torch.Generator().manual_seed(7)

    def number(below):
        return int(torch.randint(below, (1,), generator=random))

    def placed(values, shift):
        """Where kernels can load 16 bytes at once, or one element behind that."""
        there = torch.empty(len(values) + shift, dtype=values.dtype, device=here)[shift:]
        return there.copy_(values)

    groups = [dist.group.WORLD, dist.new_group()]
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    graphs = []
    held = torch.zeros(777, device=here)
    graph = captured(dist.all_reduce, held, group=groups[1])
    if graph is not None:
        graphs.append(graph)
    calls = 0
    until = time.monotonic() + SECONDS
    while True:
        going = torch.tensor([float(rank > 0 or time.monotonic() < until)])
        dist.all_reduce(going, dist.ReduceOp.MIN)  # on the CPU: rank 0 says when it is over
        if not going.item():
            break
        for _ in range(50):
            count = (1, 3, 255, 4096, 33_333, 65_536, 400_001, 600_000)[number(8)]
            dtype, shift = ("float32", "bfloat16", "int64", "uint8")[number(4)], number(2)
            group, stream = groups[number(2)], streams[number(2)]
            asynchronous, kind, root, seed = number(2) == 1, number(7), number(size), number(1000)
            parts = all_ranks(world, count, dtype, seed=seed)
            own = placed(parts[rank], shift)
            stream.wait_stream(torch.cuda.current_stream())
            # One group's calls are in one order on every rank, whichever streams they are on.
            with torch.cuda.stream(stream):
                if kind == 0 and graphs:
                    held.fill_(rank + 1.0)
                    graphs[0].replay()
                    got, want = held, torch.full((777,), size * (size + 1) / 2)
                elif kind == 1:
                    got = torch.empty(count * size, dtype=own.dtype, device=here)
                    finish(dist.all_gather_into_tensor(got, own, group=group, async_op=asynchronous))
                    want = torch.cat(parts)
                elif kind == 2:
                    whole = all_ranks(world, count * size, dtype, seed=seed)
                    got = torch.empty(count, dtype=own.dtype, device=here)
                    finish(
                        dist.reduce_scatter_tensor(
                            got, placed(whole[rank], shift), group=group, async_op=asynchronous
                        )
                    )
                    want = sum(wide(part) for part in whole)[count * rank : count * (rank + 1)]
                elif kind == 3:
                    got, want = own, parts[root]
                    finish(dist.broadcast(got, root, group=group, async_op=asynchronous))
                elif kind == 4:
                    whole = all_ranks(world, count * size, dtype, seed=seed)
                    got = torch.empty(count * size, dtype=own.dtype, device=here)
                    finish(
                        dist.all_to_all_single(
                            got, placed(whole[rank], shift), group=group, async_op=asynchronous
                        )
                    )
                    want = torch.cat([part[count * rank : count * (rank + 1)] for part in whole])
                else:
                    got, want = own, sum(wide(part) for part in parts)
                    if dtype == "uint8":
                        want = want % 256
                    finish(dist.all_reduce(got, group=group, async_op=asynchronous))
            torch.cuda.current_stream().wait_stream(stream)
            close(got, want, dtype if got is not held else "float32")
            calls += 1
    torch.cuda.synchronize()
    print(f"rank {rank}: {calls} calls right")


@on_ranks(2, 3)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_sums_with_a_norm_behind_them(world, dtype):
    """In one kernel where the route does it, by torch behind the sum where not: the same sums, bit by bit."""
    from test_ops import check

    import altorch.ops

    here = device(world)
    shapes = (
        (1, 4096),
        (32, 4096),
        (3, 7),
        (5, 1030),
        (2, 3, 64),
        (0, 8),
        (400, 128),
        (2, 16_384),
        (1, 50_000),
    )
    for seed, shape in enumerate(shapes):
        for weighs in (True, False):
            world.case = f"{shape}, {weighs=}"
            check(
                world, altorch.ops.all_reduce_rms_norm, getattr(torch, dtype), shape, weighs, here, seed=seed
            )


@on_ranks(2)
def test_sums_with_a_norm_in_graphs_and_among_other_calls(world):
    import altorch.ops

    here = device(world)
    x, residual, weight = (torch.zeros(8, 1024, device=here, dtype=torch.bfloat16) for _ in range(3))
    weight = weight[0] + 2
    graph = captured(altorch.ops.all_reduce_rms_norm, x, residual, weight)
    if graph is None:
        pytest.skip("this route cannot be captured")
    out = []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.extend(altorch.ops.all_reduce_rms_norm(x, residual, weight))
        dist.all_reduce(x)
        out.append(x + 1)
    for turn in range(20):
        x.fill_(float(world.rank + turn))
        residual.fill_(float(turn))
        graph.replay()
        normed, summed, after = out
        eager = torch.full_like(x, float(world.rank + turn))
        again = altorch.ops.all_reduce_rms_norm(eager, residual, weight)
        assert summed.eq(3 * turn + 1).all() and again[1].equal(summed)
        assert after.eq(2 * turn + 2).all()
        torch.testing.assert_close(normed, torch.full_like(normed, 2.0))
        assert again[0].equal(normed)


@on_ranks(2)
def test_a_norm_is_compiled_into_graphs(world):
    pytest.importorskip("triton")
    if not can_be_captured(world):
        pytest.skip("this route cannot be captured")
    import altorch.ops

    here = device(world)

    @torch.compile(mode="reduce-overhead")
    def layer(x, weight, residual):
        return altorch.ops.all_reduce_rms_norm(x @ weight, residual)

    weight = torch.full((64, 64), 0.5, device=here)
    with torch.no_grad():
        for turn in range(6):
            x = torch.full((4, 64), float(turn), device=here)
            torch.compiler.cudagraph_mark_step_begin()
            normed, summed = (each.clone() for each in layer(x, weight, x))
            assert summed.eq(2 * 32.0 * turn + turn).all(), (turn, summed)
            assert torch.allclose(normed, torch.full_like(normed, 1.0 if turn else 0.0), atol=1e-4)


def norm_beside_the_dead(world, shape):
    import altorch.ops

    here = device(world)
    x = torch.ones(shape, device=here)
    altorch.ops.all_reduce_rms_norm(x, x)
    torch.cuda.synchronize()
    dist.barrier()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    normed, summed = altorch.ops.all_reduce_rms_norm(x, x)
    torch.cuda.synchronize()
    assert normed.isnan().all() and summed.isnan().any(), (normed, summed)
    with pytest.raises(RuntimeError, match="rank 1"):
        altorch.ops.all_reduce_rms_norm(x, x)


@pytest.mark.skipif(GPUS < 1, reason="no GPU is visible")
@pytest.mark.parametrize("shape", [(1, 4096), (1, 200_000)], ids=["in one kernel", "apart"])
def test_a_killed_peer_marks_what_has_a_norm_behind_it(shape):
    with Cluster(2, launcher="plain") as cluster:
        outcome = cluster.run(norm_beside_the_dead, deadline=60, shape=shape)[0]
        assert outcome.ok, outcome.report()
