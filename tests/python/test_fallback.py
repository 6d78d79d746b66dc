# SPDX-License-Identifier: BSD-3-Clause
"""Groups made in Python over the same engine, as for a torch that altorch has no extension for."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster

import altorch
from altorch import _version_check
from tests.ranks.launch import backend_under_test, clean_environment, free_port, launcher_under_test

pytestmark = [
    pytest.mark.skipif(backend_under_test() != "al", reason="altorch's own: ALTORCH_TEST_BACKEND is not al"),
    pytest.mark.skipif(
        launcher_under_test() != "plain", reason="the ranks are started by the tests themselves"
    ),
    pytest.mark.skipif(
        tuple(map(int, torch.__version__.split(".")[:2])) < _version_check.FALLBACK_FROM,
        reason="this torch takes no Backend in Python",
    ),
]


def start(world):
    _version_check.needs_fallback = lambda: True
    world.start("al", timeout=30)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert type(backend).__module__ == "altorch.fallback.backend"


def of(rank, size, dtype, kind=0):
    """What `rank` brings to a call; any rank can make it."""
    generator = torch.Generator().manual_seed(1000 * rank + 10 * size + kind)
    return torch.randint(0, 9, (size,), generator=generator).to(dtype)


def strided(tensor):
    """The same values, every second element of a larger tensor."""
    wide = torch.zeros(2 * tensor.numel(), dtype=tensor.dtype)
    wide[::2] = tensor
    return wide[::2]


def every_call(world):
    start(world)
    rank, n = world.rank, world.size
    for size in (0, 1, 17, 40_001):
        for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.complex64):
            mine = of(rank, size, dtype)
            everyone = [of(each, size, dtype) for each in range(n)]
            total = sum(one.to(torch.complex128) for one in everyone).to(dtype)

            for tensor in (mine.clone(), strided(mine)):
                dist.all_reduce(tensor)
                assert torch.equal(tensor, total)
            tensor = mine.clone()
            dist.reduce(tensor, dst=n - 1)
            assert rank != n - 1 or torch.equal(tensor, total)
            for tensor in (mine.clone(), strided(mine)):
                dist.broadcast(tensor, src=1)
                assert torch.equal(tensor, everyone[1])

            found = [torch.empty(size, dtype=dtype) for _ in range(n)]
            dist.all_gather(found, strided(mine))
            assert all(torch.equal(*pair) for pair in zip(found, everyone, strict=True))
            flat = torch.empty(n * size, dtype=dtype)
            dist.all_gather_into_tensor(flat, mine)
            assert torch.equal(flat, torch.cat(everyone))
            found = [torch.empty(size, dtype=dtype) for _ in range(n)] if rank == 0 else None
            dist.gather(mine, found)
            assert rank or all(torch.equal(*pair) for pair in zip(found, everyone, strict=True))
            output = torch.empty(size, dtype=dtype)
            dist.scatter(output, everyone if rank == 1 else None, src=1)
            assert torch.equal(output, mine)

            parts = [of(rank, size, dtype, kind=each) for each in range(n)]
            summed = sum(of(each, size, dtype, kind=rank).to(torch.complex128) for each in range(n)).to(dtype)
            output = torch.empty(size, dtype=dtype)
            dist.reduce_scatter(output, parts)
            assert torch.equal(output, summed)
            dist.reduce_scatter_tensor(output.zero_(), torch.cat(parts))
            assert torch.equal(output, summed)
            received = [torch.empty(size, dtype=dtype) for _ in range(n)]
            dist.all_to_all(received, parts)
            assert all(
                torch.equal(one, of(each, size, dtype, kind=rank)) for each, one in enumerate(received)
            )
            flat = torch.empty(n * size, dtype=dtype)
            dist.all_to_all_single(flat, torch.cat(parts))
            assert torch.equal(flat, torch.cat(received))
    uneven(world)


def uneven(world):
    rank, n = world.rank, world.size
    sizes = [3 * each for each in range(n)]  # rank 0 has none
    found = [torch.empty(size) for size in sizes]
    dist.all_gather(found, of(rank, sizes[rank], torch.float32))
    assert all(torch.equal(one, of(each, sizes[each], torch.float32)) for each, one in enumerate(found))
    splits, received = [rank + each for each in range(n)], [rank + each for each in range(n)]
    output = torch.empty(sum(received), 2)
    dist.all_to_all_single(output, torch.full((sum(splits), 2), float(rank)), received, splits)
    assert output[:, 1].tolist() == [float(each) for each in range(n) for _ in range(received[each])]


def order_and_errors(world):
    start(world)
    rank, n = world.rank, world.size
    tensors = [torch.full((5 + i,), float(rank)) for i in range(6)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works[1:]):
        work.wait()
    del works  # the first is never waited for, and its memory stays until it is done
    gc.collect()
    assert all(bool((tensor == n * (n - 1) / 2).all()) for tensor in tensors[1:])
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert future.wait()[0].tolist() == [n] * 3

    right, left = (rank + 1) % n, (rank - 1) % n
    got = torch.empty(100_000)
    works = [dist.isend(torch.full((100_000,), float(rank)), right, tag=3), dist.irecv(got, left, tag=3)]
    for work in works:
        work.wait()
    assert bool((got == left).all())
    with pytest.raises(NotImplementedError, match="recv from any rank needs an altorch with an extension"):
        dist.recv(got)

    for group in [dist.new_group([each]) for each in range(n)] + [dist.new_group(list(range(n)))]:
        if rank in dist.get_process_group_ranks(group):
            tensor = torch.ones(2)
            dist.all_reduce(tensor, group=group)
            assert tensor[0] == dist.get_world_size(group)

    with pytest.raises(
        TypeError, match=rf"altorch: group '0', rank {rank}: all_reduce #\d+: .*AVG is not defined"
    ):
        dist.all_reduce(torch.ones(2, dtype=torch.bool), op=dist.ReduceOp.AVG)
    with pytest.raises(ValueError, match="dst is rank 77"):
        dist.distributed_c10d._get_default_group().send([torch.ones(2)], 77, 0).wait()
    dist.barrier()  # calls that all ranks refuse leave the group open
    with pytest.raises(dist.DistBackendError, match="rank"):
        dist.all_reduce(torch.ones(4 + rank))
    with pytest.raises(dist.DistBackendError):
        dist.barrier()
    dist.destroy_process_group()
    world.start("al")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    model(torch.ones(4, 3)).sum().backward()
    found = [None] * n
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": each} for each in range(n)]


@pytest.mark.parametrize("body", [every_call, order_and_errors])
def test_the_calls_of_a_group(body):
    with Cluster(3, group=False, launcher="plain") as cluster:
        cluster.check(body)


def refuses_alone(world):
    """What depends on the order of the ranks is refused, and the peers are told, not left in the call."""
    start(world)
    op = dist.ReduceOp.PRODUCT if world.rank == 0 else dist.ReduceOp.SUM
    began = time.monotonic()
    with pytest.raises((NotImplementedError, RuntimeError), match="order of the ranks"):
        dist.all_reduce(torch.ones(3), op)
    assert time.monotonic() - began < 10 * PATIENCE


def sums_exactly(world):
    start(world)
    x = torch.tensor([[3e38, -3e38, 3e38][world.rank]])
    dist.all_reduce(x)
    assert x.item() == torch.tensor(3e38).item()


@pytest.mark.parametrize("body", [sums_exactly, refuses_alone])
def test_exact_sums(body):
    with Cluster(3, group=False, launcher="plain", env={"ALTORCH_DETERMINISTIC": "exact"}) as cluster:
        cluster.check(body)


def until_error(world):
    began = time.monotonic()
    try:
        while True:
            dist.all_reduce(torch.ones(1000))
    except dist.DistBackendError as error:
        return time.monotonic() - began, str(error)


def test_a_killed_rank_is_an_error_within_seconds():
    with Cluster(3, group=False, launcher="plain") as cluster:
        cluster.check(start)
        outcomes = cluster.run(until_error, before_wait=lambda: (time.sleep(1), cluster.kill(1)))
        for rank in (0, 2):
            assert outcomes[rank].status == "ok", outcomes[rank].report()
            seconds, text = outcomes[rank].value
            assert seconds < 6 * PATIENCE and "rank 1" in text, (seconds, text)
        assert cluster.end([0, 2]) == []


PROGRAM = """
import os, sys, warnings
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), "2"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dist.init_process_group("al")
        dist.new_group([0, 1])
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    texts = [str(each.message) for each in warned if "no extension" in str(each.message)]
    import altorch
    [done] = altorch.stats()
    assert (done["operation"], done["count"], done["bytes"], done["route"][:4]) == ("all_reduce", 1, 12, "shm:"), done
    os.write(1, f"{tensor.tolist()} {len(texts)}\\n".encode())
    dist.destroy_process_group()

if __name__ == "__main__":
    import altorch
    print(os.path.dirname(altorch.__file__), flush=True)
    mp.spawn(work, nprocs=2)
"""


@pytest.fixture
def run_without_extension(tmp_path):
    """Runs Python with an altorch that has no extension for this torch; returns what it printed."""
    import altorch_hooks

    source = Path(altorch.__file__).parent
    shutil.copytree(source, tmp_path / "altorch", ignore=shutil.ignore_patterns("__pycache__", "torch2*"))
    shutil.copy(altorch_hooks.__file__, tmp_path)

    def run(*arguments):
        variables = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "PYTHONPATH": str(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, *arguments],
            env=clean_environment(variables),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timedelta(minutes=2).total_seconds(),
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_an_altorch_without_an_extension_for_this_torch(tmp_path, run_without_extension):
    (tmp_path / "program.py").write_text(PROGRAM)
    place, *rows = run_without_extension("program.py").splitlines()
    assert place == str(tmp_path / "altorch")
    # Rank 0 says so, once.
    assert sorted(rows) == ["[2.0, 2.0, 2.0] 0", "[2.0, 2.0, 2.0] 1"]


def test_altorch_check_without_an_extension(run_without_extension):
    found = json.loads(run_without_extension("-m", "altorch", "check", "--ranks", "2", "--json"))
    assert found["passed"] and len(found["operations"]) > 10
    assert [row["operation"] for row in found["operations"] if row["not_run"]] == ["windows"]
