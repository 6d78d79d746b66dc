# SPDX-License-Identifier: BSD-3-Clause
"""Windows over CUDA tensors: what is written to the memory of other ranks' GPUs, in the order of streams, in graphs.

Marked gpu. Ranks may share one GPU: with the Multi-Process Service as between GPUs, without it streams wait for numbers
in pinned memory (docs/windows.md). ALTORCH_ROUTE=window=host_staged: as if the GPUs mapped nothing of each other;
window=host_relay: as if the ranks were on nodes of their own; window=nvshmem: over NVSHMEM, with a GPU for each rank,
or MPS and NVSHMEM_IGNORE_CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=1.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import time

import pytest
import reference as ref
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster, names_all, on_ranks
from test_cuda import SPIN, backend_of, co_resident, device
from test_one_sided import count_together

import altorch
from altorch._extension import extension

pytestmark = pytest.mark.gpu
GPUS = torch.cuda.device_count()
FORCED = os.environ.get("ALTORCH_ROUTE", "").partition("window=")[2]
STAGED = FORCED in ("host_staged", "host_relay", "nvshmem")  # nothing is mapped, nothing goes into graphs
OVER_NVSHMEM = FORCED == "nvshmem"
MPS = "CUDA_MPS_PIPE_DIRECTORY" in os.environ
NEEDED_GPUS = 2 if OVER_NVSHMEM and not MPS else 1
ROUTE = FORCED or "peer"
TYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.complex128, torch.float8_e4m3fn]


def empty(*size, dtype=torch.float32, device):
    """Memory of the kind that the route wants."""
    if not OVER_NVSHMEM:
        return altorch.empty(*size, dtype=dtype, device=device)
    if dist.get_world_size() == 1 or (dist.get_world_size() > GPUS and not MPS):
        pytest.skip("NVSHMEM needs several ranks, and a GPU for each or MPS")
    return from_pool(*size, dtype=dtype, device=device)


def from_pool(*size, dtype=torch.float32, device):
    pool = torch.cuda.MemPool(backend_of().mem_allocator)
    with torch.cuda.use_mem_pool(pool, device=device):
        return torch.empty(*size, dtype=dtype, device=device)


def opened(world, *size, dtype=torch.float32):
    """A window over zeros that others can reach, its tensor, and the ranks behind and before this one."""
    tensor = empty(*size, dtype=dtype, device=device(world)).zero_()
    torch.cuda.synchronize()
    return altorch.new_window(tensor), tensor, (world.rank + 1) % world.size, (world.rank - 1) % world.size


@on_ranks(1, 2, 3)
@pytest.mark.parametrize("dtype", TYPES, ids=ref.name_of)
def test_put_and_get(world, dtype):
    where = device(world)
    for size in (0, 1, 17, (3, 5), 5000, 300_001):
        world.case = f"{ref.name_of(dtype)} {size}"
        mine = ref.random_tensor(world, dtype, size)
        theirs = ref.random_tensor(world, dtype, size, (world.rank - 1) % world.size)
        window, tensor, after, before = opened(world, mine.numel() + 7, dtype=dtype)
        assert window.route == ROUTE
        window.put_signal(mine.to(where), after, 4)
        window.wait_signal(before)
        ref.check_equal(world, tensor[4 : 4 + mine.numel()].view(mine.shape).cpu(), theirs)
        edges = torch.cat([tensor[:4], tensor[4 + mine.numel() :]]).view(torch.uint8)
        assert not edges.any(), "a put has written beside its place"
        back = torch.empty_like(mine, device=where)
        window.get(back, after, 4)
        ref.check_equal(world, back.cpu(), mine)
        window.fence()
        window.tensor_deregister()


@on_ranks(2, 3)
def test_tensors_of_any_layout(world):
    window, tensor, after, before = opened(world, 6, 10)
    mine = torch.arange(24.0, device=tensor.device).view(4, 6) + 100 * world.rank
    theirs = mine + 100 * (before - world.rank)
    window.put_signal(mine.t(), after)  # staged
    window.wait_signal(before)
    assert torch.equal(tensor.view(-1)[:24], theirs.t().reshape(-1))
    window.fence()
    tensor.zero_()
    window.fence()
    window.put_signal(mine[:, ::2], after, 11, target_stride=10, slot=3)  # a block of rows and columns
    window.wait_signal(before, slot=3)
    want = torch.zeros(6, 10, device=tensor.device)
    want[1:5, 1:4] = theirs[:, ::2]
    assert torch.equal(tensor, want)
    back = torch.zeros(4, 6, device=tensor.device)
    window.get(back[:, 1::2], after, 11, source_stride=10)
    assert torch.equal(back[:, 1::2], mine[:, ::2])
    window.get(back[:, ::2], after, 11, True, source_stride=10).wait()
    assert torch.equal(back[:, ::2], mine[:, ::2])
    window.fence()
    window.tensor_deregister()


@on_ranks(2, env={"ALTORCH_ROUTE": "window=nvshmem"})
def test_over_nvshmem(world):
    """Memory that NVSHMEM cannot register goes by another route; what it can register goes by NVSHMEM."""
    row = next(row for row in extension().window_routes() if row["name"] == "nvshmem")
    if not row["viable"] or (GPUS < 2 and not MPS):
        pytest.skip("NVSHMEM needs a GPU for each rank or MPS" if row["viable"] else row["reason"])
    here, other = device(world), 1 - world.rank
    plain = altorch.new_window(torch.zeros(1000, device=here))
    assert plain.route == "host_staged"
    tensor = from_pool(5000, dtype=torch.int32, device=here).zero_()
    torch.cuda.synchronize()
    window = altorch.new_window(tensor)
    assert window.route == "nvshmem"
    side = torch.cuda.Stream()
    for turn in range(20):
        with torch.cuda.stream(side if turn % 2 else torch.cuda.current_stream()):
            mine = torch.full((4000,), 100 * turn + world.rank, dtype=torch.int32, device=here)
            window.put_signal(mine, other, 7, slot=turn % 8)
            window.wait_signal(other, slot=turn % 8)
            assert tensor[7:4007].eq(100 * turn + other).all()
            window.fence()
            window.accumulate(torch.ones(4000, dtype=torch.int32, device=here), other, 7)
            window.signal(other)
            window.wait_signal(other)
            assert tensor[7:4007].eq(100 * turn + other + 1).all()
            back = torch.empty(4000, dtype=torch.int32, device=here)
            window.get(back, other, 7)
            assert back.eq(100 * turn + world.rank + 1).all()
            window.fence()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="does not go into a CUDA graph"), torch.cuda.graph(graph):
        window.signal(other)
    for each in (window, plain):
        each.fence()
        each.tensor_deregister()


@on_ranks(2, 3)
def test_counting(world):
    for dtype in (torch.int32, torch.int64):
        window, tensor, after, _before = opened(world, 4, dtype=dtype)
        count_together(world, window, tensor, after)


@on_ranks(2, 3)
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.complex64,
        torch.complex128,
        torch.uint8,
    ],
    ids=ref.name_of,
)
def test_accumulate(world, dtype):
    window, tensor, _after, _before = opened(world, 100_003, dtype=dtype)
    tensor.fill_(1)
    mine = torch.full((100_000,), world.rank + 1, device=tensor.device).to(dtype)
    window.fence()
    for peer in range(world.size):
        window.accumulate(mine, peer, 1)
    window.fence()
    total = 1 + sum(range(1, world.size + 1))
    want = torch.full((100_003,), total).to(dtype)
    want[0] = want[-2:] = 1
    ref.check_equal(world, tensor.cpu(), want)
    if not dtype.is_complex:
        window.fence()
        works = [window.accumulate(mine, peer, 1, "MIN", async_op=True) for peer in range(world.size)]
        for work in works:
            work.wait()
        window.fence()
        assert tensor.eq(1).all()
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 3)
def test_streams_keep_the_order(world):
    """What is put is what the stream had made before, what is read after a wait is there; the host goes on."""
    count = 1 << 18
    window, tensor, after, before = opened(world, 2, count)
    credit = altorch.new_window(empty(1, device=tensor.device))
    side, sums = torch.cuda.Stream(), []
    torch.cuda.synchronize()
    dist.barrier()
    began = time.monotonic()
    with torch.cuda.stream(side):
        for turn in range(20):
            if turn % 5 == 0:
                torch.cuda._sleep(SPIN // 10)
            part = turn % 2
            if turn >= 2:
                credit.wait_signal(after, slot=part)  # it has read what came two turns ago
            made = torch.full((count,), float(100 * turn + world.rank), device=tensor.device)
            window.put_signal(made, after, part * count, slot=part)
            made.zero_()
            window.wait_signal(before, slot=part)
            sums.append(tensor[part].sum())
            credit.signal(before, slot=part)
    assert time.monotonic() - began < 5
    side.synchronize()
    assert [s.item() for s in sums] == [count * float(100 * turn + before) for turn in range(20)]
    window.fence()
    for each in (window, credit):
        each.tensor_deregister()


@on_ranks(2, 3)
def test_what_is_asynchronous_holds_nothing_up(world):
    window, tensor, after, before = opened(world, 4096)
    for turn in range(20):
        waits = [window.wait_signal(peer, True, slot=1) for peer in range(world.size)]
        mine = torch.full((4096,), float(turn), device=tensor.device)
        work = window.put_signal(mine, after, 0, True)
        mine = None
        for peer in range(world.size):
            window.signal(peer, slot=1)
        for wait in waits:
            wait.wait()
        window.wait_signal(before)
        assert tensor.eq(turn).all()
        work.wait()
        assert work.is_success()
        window.get(tensor.new_empty(4096), after, 0, True).get_future().wait()
        window.fence()
    window.tensor_deregister()


@on_ranks(2)
def test_any_tensor_will_do(world):
    """What no peer can map goes through the host's memory."""
    tensor = torch.zeros(3000, device=device(world))
    window = altorch.new_window(tensor[1000:])
    assert window.route == (ROUTE if STAGED and not OVER_NVSHMEM else "host_staged")
    mine = torch.full((2000,), world.rank + 1.0, device=tensor.device)
    window.put_signal(mine, 1 - world.rank)
    window.wait_signal(1 - world.rank)
    assert tensor[1000:].eq(2 - world.rank).all()
    assert tensor[:1000].eq(0).all()
    window.fence()
    with pytest.raises(RuntimeError, match="cannot be mapped here"):
        window.map_remote_tensor(1 - world.rank)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="cannot go into a CUDA graph"), torch.cuda.graph(graph):
        window.put(mine, 1 - world.rank)
    window.fence()
    window.tensor_deregister()


@on_ranks(2, 3)
@pytest.mark.skipif(STAGED, reason="through the host's memory nothing goes into a graph")
def test_graphs_count_on_the_device(world):
    if not co_resident(world):
        pytest.skip("ranks share a GPU without MPS: no kernel may wait for another rank's")
    window, tensor, after, before = opened(world, 1 << 16)
    source, total = torch.zeros(1 << 16, device=tensor.device), torch.zeros((), device=tensor.device)

    def step(count):
        source.add_(1)
        window.put_signal(source[:count], after)
        window.wait_signal(before)
        total.add_(tensor[:count].sum())
        window.signal(before, slot=1)
        window.wait_signal(after, slot=1)

    step(64)
    torch.cuda.synchronize()
    dist.barrier()
    small, large = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(small):
        step(64)
    with torch.cuda.graph(large):
        step(1 << 16)
    order = [small, large, None, small, None, large] * 10
    want, value = 64.0, 1
    for graph in order:
        value += 1
        want += value * (64 if graph is not large else 1 << 16)
        graph.replay() if graph else step(64)
    torch.cuda.synchronize()
    assert total.item() == want
    dist.barrier()
    window.fence()
    window.tensor_deregister()
    small.replay()  # the window is gone: it writes nothing, and waits for no peer
    torch.cuda.synchronize()


@on_ranks(2)
@pytest.mark.skipif(STAGED, reason="nothing is mapped")
def test_mapped_memory_is_the_peers(world):
    window, tensor, after, _before = opened(world, 1000, dtype=torch.int32)
    tensor.copy_(torch.arange(1000) + 1000 * world.rank)
    window.fence()
    theirs = window.map_remote_tensor(after)
    assert theirs.device == tensor.device
    assert torch.equal(theirs.cpu(), torch.arange(1000, dtype=torch.int32) + 1000 * after)
    window.fence()
    theirs[5] = -7
    window.fence()
    assert tensor[5].item() == -7
    del theirs
    window.tensor_deregister()


@on_ranks(2)
def test_what_is_refused_leaves_everything_as_it_was(world):
    window, tensor, after, before = opened(world, 10)
    ones = torch.ones(4, device=tensor.device)
    for call, words in [
        (lambda: window.put(torch.ones(4), after), "this window takes tensors on cuda"),
        (lambda: window.put(ones, after, 8), "do not lie within"),
        (lambda: window.put(ones.int(), after), "has registered is of float32"),
        (lambda: window.put(ones, 7), "there is no rank 7"),
        (lambda: window.fetch_add(after, 0, 1), "fetch_add takes int32"),
        (lambda: window.signal(after, slot=99), "no signal slot"),
        (lambda: window.wait_signal(9), "there is no rank 9"),
    ]:
        with pytest.raises((ValueError, TypeError, RuntimeError), match=words):
            call()
    with pytest.raises((RuntimeError, ValueError), match=r"is on the CPU|is on a GPU"):
        altorch.new_window(torch.zeros(4) if world.rank else altorch.empty(4, device=tensor.device))
    window.put_signal(ones, after, 6)
    window.wait_signal(before)
    assert tensor.tolist() == 6 * [0.0] + 4 * [1.0]
    window.fence()
    window.tensor_deregister()
    with pytest.raises(RuntimeError, match="has no tensor"):
        window.put(ones, after)


@on_ranks(2, 3)
def test_a_signal_comes_after_what_was_put_asynchronously(world):
    count = 1 << 22
    window, tensor, after, before = opened(world, count)
    for turn in range(1, 6):
        mine = torch.full((count,), float(turn), device=tensor.device)
        work = window.put(mine, after, 0, True)
        window.signal(after)
        window.wait_signal(before)
        assert tensor.eq(turn).all(), "the signal has overtaken what was put before it"
        work.wait()
        window.fence()
    window.tensor_deregister()


@on_ranks(2)
def test_a_fence_does_not_wait_for_signals_that_a_rank_waits_for(world):
    window, _tensor, after, before = opened(world, 16)
    work = window.wait_signal(before, True)
    window.fence()
    window.signal(after)
    work.wait()
    torch.cuda.synchronize()
    window.fence()
    window.tensor_deregister()


@on_ranks(2)
def test_the_current_device_stays(world):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    own = torch.device("cuda", world.rank)
    for current in range(2):
        with torch.cuda.device(current):
            tensor = empty(16, dtype=torch.int64, device=own)
            window = altorch.new_window(tensor)
            window.put_signal(torch.ones(16, dtype=torch.int64, device=own), 1 - world.rank)
            window.wait_signal(1 - world.rank)
            window.fetch_add(1 - world.rank, 0, 1)
            window.fence()
            window.tensor_deregister()
            del window, tensor
            gc.collect()
            assert torch.cuda.current_device() == current


@on_ranks(1)
def test_what_does_not_fit_is_refused(world):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="MiB that other processes could map"):
            altorch.empty(1 << 50, dtype=torch.uint8, device=device(world))
    assert altorch.empty(16, device=device(world)).eq(0).all()


def is_mapped(address):
    """Whether CUDA knows the address."""
    memory_type = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    value = ctypes.c_uint()
    asked = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute
    return asked(ctypes.byref(value), memory_type, ctypes.c_uint64(address)) == 0


@on_ranks(1)
@pytest.mark.parametrize("priority", [0, -1, -3])
@pytest.mark.parametrize("freed_on", ["captured stream", "another stream"])
def test_memory_that_is_freed_during_a_capture_comes_back(world, priority, freed_on):
    here = device(world)
    large = altorch.empty(1 << 20, device=here)
    address = large.data_ptr()
    assert is_mapped(address)
    graph, other = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(priority=priority)):
        x = torch.ones(16, device=here)
        with torch.cuda.stream(other if freed_on == "another stream" else torch.cuda.current_stream()):
            del large  # waiting for the device would end the capture
    graph.replay()
    assert x.eq(1).all()
    altorch.empty(16, device=here)
    assert not is_mapped(address)


@on_ranks(2)
def test_memory_is_given_back(world):
    def use():
        window, tensor, after, before = opened(world, 1 << 22)
        window.put_signal(torch.ones(1 << 22, device=tensor.device), after)
        window.wait_signal(before)
        window.fence()
        window.tensor_deregister()

    def free():
        gc.collect()
        torch.cuda.synchronize()
        dist.barrier()
        value = torch.cuda.mem_get_info()[0]
        dist.barrier()
        return value

    def kept():
        before = free()
        for _ in range(10):
            use()
        return before - free()

    use()
    # What other processes take of the GPU meanwhile is not there again the next time; what is left
    # behind is. Beside other tests it may take many turns until one is quiet.
    most, alike = 24 << 20, []
    until = time.monotonic() + (20 if "PYTEST_XDIST_WORKER" in os.environ else 0)
    while len(alike) < 3 or time.monotonic() < until:
        alike.append(kept())
        # All ranks stop together.
        quiet = torch.tensor(int(len(alike) >= 3 and min(alike) < most))
        dist.all_reduce(quiet, dist.ReduceOp.MIN)
        if quiet:
            break
    assert min(alike) < most, f"windows leave their memory behind: {alike}"


SECONDS = float(os.environ.get("ALTORCH_TEST_SECONDS", "4"))


@on_ranks(2, 3)
def test_random_calls(world):
    """Each rank writes its own part of the tensors of all ranks, by any call and size, and all compare."""
    part = 200_000
    window, tensor, _after, _before = opened(world, world.size * part, dtype=torch.int64)
    mirror = torch.zeros(
        world.size, part, dtype=torch.int64
    )  # what this rank has made of its parts, by target
    chance = random.Random(5 + world.rank)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    deadline, goes_on, turns = time.monotonic() + SECONDS, torch.ones(1), 0
    window.fence()
    while goes_on.item():
        with torch.cuda.stream(stream := chance.choice(streams)):
            for _ in range(chance.randint(1, 6)):
                target, count = chance.randrange(world.size), chance.choice([1, 3, 100, 5000, part])
                at = chance.randint(0, part - count)
                values = torch.randint(-9, 9, (count,), dtype=torch.int64)
                there = world.rank * part + at
                if chance.random() < 0.5:
                    window.put(values.to(tensor.device), target, there)
                    mirror[target, at : at + count] = values
                else:
                    window.accumulate(values.to(tensor.device), target, there)
                    mirror[target, at : at + count] += values
            for peer in range(world.size):
                window.signal(peer, slot=2)
            for peer in range(world.size):
                window.wait_signal(peer, slot=2)
            got = tensor.clone()
        stream.synchronize()
        wanted = torch.empty(world.size, world.size, part, dtype=torch.int64)  # by source, target
        dist.all_gather_into_tensor(wanted, mirror)
        assert torch.equal(got.cpu().view(world.size, part), wanted[:, world.rank]), f"turn {turns}"
        turns += 1
        goes_on[0] = time.monotonic() < deadline
        dist.broadcast(goes_on, 0)
    assert turns > 3
    window.fence()
    window.tensor_deregister()


def wait_for_the_dead(world, fate):
    """The last rank dies, or sleeps; the others' streams wait for it."""
    tensor = empty(1 << 16, device=device(world))
    window = altorch.new_window(tensor)
    window.fence()
    if world.rank == world.size - 1:
        time.sleep(0.3)
        if fate == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(8)
        return "", 0, True
    started = time.monotonic()
    try:
        while time.monotonic() - started < 60:
            window.wait_signal(world.size - 1, timeout=3.0 if fate == "asleep" else None)
            torch.cuda.synchronize()
    except RuntimeError as error:
        seconds = time.monotonic() - started
        torch.cuda.synchronize()
        return str(error), seconds, bool(tensor.isnan().all().item())
    return "no error", 0, False


@pytest.mark.skipif(GPUS < NEEDED_GPUS, reason="too few GPUs are visible")
@pytest.mark.parametrize("fate", ["killed", "asleep"])
def test_a_peer_that_does_not_signal(fate):
    with Cluster(2, launcher="plain") as cluster:
        outcome = cluster.run(wait_for_the_dead, deadline=60, fate=fate)[0]
        assert outcome.ok, outcome.report()
        text, seconds, marked = outcome.value
        assert names_all(text, "window 1", "rank 1", "lost" if fate == "killed" else "its timeout of 3 s"), (
            text
        )
        assert seconds < 10 * PATIENCE, (seconds, text)
        assert marked, "what was waited for is not marked"


def put_to_the_dead(world):
    tensor = empty(1 << 16, device=device(world))
    window = altorch.new_window(tensor)
    window.fence()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    data = torch.ones(1 << 16, device=tensor.device)
    try:
        while time.monotonic() - started < 60:
            window.put(data, 1)
            torch.cuda.synchronize()
    except RuntimeError as error:
        torch.cuda.synchronize()
        return str(error), time.monotonic() - started
    return "no error", 0


@pytest.mark.skipif(GPUS < NEEDED_GPUS, reason="too few GPUs are visible")
def test_memory_of_the_dead_takes_what_is_written_until_it_is_known():
    with Cluster(2, launcher="plain") as cluster:
        outcome = cluster.run(put_to_the_dead, deadline=60)[0]
        assert outcome.ok, outcome.report()
        text, seconds = outcome.value
        assert names_all(text, "window 1", "rank 1", "lost"), text
        assert seconds < 10 * PATIENCE, (seconds, text)
