# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that die, come late, come back, fork or wait: no rank hangs, and waiting costs nothing."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster, on_ranks
from torch import nn

from tests.ranks.launch import free_port

SECONDS_TO_NOTICE = 10


def meet(world):
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    dist.barrier()
    return world.is_al


OPERATIONS = {
    "all_reduce": lambda w: dist.all_reduce(torch.ones(16)),
    "all_reduce async": lambda w: dist.all_reduce(torch.ones(16), async_op=True).wait(),
    "all_reduce large": lambda w: dist.all_reduce(torch.ones(4_000_000)),
    "barrier": lambda w: dist.barrier(),
    "broadcast from the dead": lambda w: dist.broadcast(torch.ones(8), w.size - 1),
    "recv from the dead": lambda w: dist.recv(torch.ones(8), w.size - 1),
}


def work_until_error(world, operation):
    """Repeat an operation until it fails; the last rank only waits for its death."""
    if world.rank == world.size - 1:
        if operation in ("all_reduce", "all_reduce large"):  # dies in the middle of one
            while True:
                OPERATIONS[operation](world)
        time.sleep(1000)
    started = time.monotonic()
    try:
        while time.monotonic() - started < 60:
            OPERATIONS[operation](world)
    except Exception as error:
        return str(error)
    return None


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_killed_peer_is_an_error_within_seconds(operation):
    with Cluster(3, launcher="plain") as cluster:
        carried_by_al = cluster.check(meet)[0]
        killed_at = 0.0

        def kill():
            nonlocal killed_at
            time.sleep(0.5)
            cluster.kill(2)
            killed_at = time.monotonic()

        outcomes = cluster.run(work_until_error, deadline=45, operation=operation, before_wait=kill)
        noticed = time.monotonic() - killed_at
        if not carried_by_al and "late" in [outcome.status for outcome in outcomes]:
            pytest.skip("Gloo tells the dead rank's neighbours only; the others wait for these")
        assert [outcome.status for outcome in outcomes] == ["ok", "ok", "died"], [
            o.report() for o in outcomes
        ]
        assert noticed < SECONDS_TO_NOTICE * PATIENCE, f"noticed after {noticed:.1f} s"
        for outcome in outcomes[:2]:
            assert outcome.value is not None, "no error at all"
            if carried_by_al:
                assert "group '" in outcome.value and f"rank {outcome.rank}" in outcome.value, outcome.value
        if carried_by_al:
            told = [o.value for o in outcomes[:2] if "rank 2" in o.value]
            assert told, f"no rank names the dead rank: {[o.value for o in outcomes[:2]]}"
        # The survivors still end by themselves, without finalising what is broken.
        assert cluster.end([0, 1], deadline=20) == []


def ends_early(world):
    if world.rank == world.size - 1:
        os._exit(7)
    started = time.monotonic()
    try:
        dist.all_reduce(torch.ones(4))
    except Exception as error:
        return str(error), time.monotonic() - started
    return None


def test_a_peer_that_exits_without_a_word():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(meet)
        outcomes = cluster.run(ends_early, deadline=40)
        assert outcomes[0].ok and outcomes[0].value is not None, outcomes[0].report()
        assert outcomes[0].value[1] < SECONDS_TO_NOTICE * PATIENCE


def late_rank(world, seconds):
    """Rank 1 comes later than the others' timeout."""
    group = dist.new_group(timeout=timedelta(seconds=2))
    dist.barrier(group)
    if world.rank == 1:
        time.sleep(seconds)
    started = time.monotonic()
    try:
        dist.all_reduce(torch.ones(4), group=group)
    except RuntimeError as error:
        return str(error), time.monotonic() - started
    return None


def test_a_late_rank_is_named_when_the_timeout_passes():
    with Cluster(3, launcher="plain") as cluster:
        carried_by_al = cluster.check(meet)[0]
        outcomes = cluster.run(late_rank, deadline=60, seconds=6)
        for rank in (0, 2):
            assert outcomes[rank].ok, outcomes[rank].report()
            assert outcomes[rank].value is not None, "no timeout"
            assert outcomes[rank].value[1] < 6
        if carried_by_al:
            texts = [outcomes[rank].value[0] for rank in (0, 2)]
            assert all("timeout" in text or "aborted it" in text for text in texts), texts
            assert any(re.search(r"ranks?\b[^.;]*\b1\b", text) for text in texts), texts
        # The late rank does not wait for the others in its turn: it finds what they had sent, or
        # learns that they have gone.
        assert outcomes[1].ok, outcomes[1].report()
        if carried_by_al and outcomes[1].value is not None:
            assert outcomes[1].value[1] < SECONDS_TO_NOTICE * PATIENCE


def init_again(world, ports):
    for round_, port in enumerate(ports):
        if port:
            os.environ["MASTER_PORT"] = str(port)
        world.start()
        tensor = torch.full((10,), float(round_))
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((10,), float(round_ * world.size)))
        group = dist.new_group()
        dist.barrier(group)
        work = dist.all_reduce(tensor, group=group, async_op=True)
        work.wait()
        carried_by_al = world.is_al
        dist.barrier()
        dist.destroy_process_group()
    return carried_by_al


def test_init_again_after_destroy():
    """MPI starts once in a process; groups may come and go. Each time with a store of its own."""
    with Cluster(2, group=False, launcher="plain") as cluster:
        cluster.check(init_again, deadline=120, ports=[free_port() for _ in range(4)])


def test_init_again_with_the_store_of_torchrun():
    """torchrun's store stays: what the first life left in it must not reach the second."""
    with Cluster(2, launcher="torchrun") as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("Gloo finds the addresses of its first life in the store")
    with Cluster(2, group=False, launcher="torchrun") as cluster:
        cluster.check(init_again, deadline=120, ports=[None] * 3)


def many_groups(world, count):
    """More groups than MPICH has context ids."""
    for index in range(count):
        group = dist.new_group(list(range(world.size)))
        if index % 50 == 0:
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            assert torch.equal(tensor, torch.full((3,), float(world.size)))
        dist.destroy_process_group(group)
    return True


def test_three_thousand_groups_in_one_process():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(many_groups, deadline=240, count=3000)


def many_live_groups(world, count):
    groups = [dist.new_group() for _ in range(count)]
    for group in groups[:: count // 10]:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert torch.equal(tensor, torch.full((3,), float(world.size)))
    for group in groups:
        dist.destroy_process_group(group)


def test_many_groups_alive_at_a_time():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(many_live_groups, deadline=120, count=300)


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.tensor([float(index), float(index * index)])


@on_ranks(2, deadline=120)
def test_forked_data_loader_workers(world):
    """Workers forked from a rank inherit its memory, and never touch its MPI."""
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    for _ in range(2):
        for batch in loader:
            total = batch.clone()
            work = dist.all_reduce(total, async_op=True)
            work.wait()
            assert torch.equal(total, batch * world.size)
    dist.barrier()


@on_ranks(2)
def test_a_forked_child_is_told_that_it_cannot_communicate(world):
    if not world.is_al:
        pytest.skip("al's promise")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            dist.all_reduce(torch.ones(2))
            os.write(write, b"no error")
        except BaseException as error:
            os.write(write, str(error).encode()[:2000])
        finally:
            os._exit(0)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    text = os.read(read, 4000).decode()
    os.close(read)
    assert status == 0 and "fork" in text, (status, text)
    dist.all_reduce(torch.ones(2))


@on_ranks(2)
def test_a_child_process_may_be_started_while_a_group_lives(world):
    """fork and exec (subprocess) of a rank: nothing of MPI's environment or sockets reaches the child."""
    done = subprocess.run(["env", "-0"], capture_output=True, text=True, check=True)
    identity = re.compile(r"(PMI_|PMIX_(RANK|NAMESPACE|SERVER)|FLUX_|OMPI_COMM_WORLD)")
    if "ALTORCH_TEST_MASTER_PORT" not in os.environ:  # under mpirun these are the launcher's own
        left = [entry for entry in done.stdout.split("\0") if identity.match(entry)]
        assert not left, left
    dist.barrier()


@on_ranks(2, 4)
def test_an_idle_group_costs_no_cpu(world):
    """Bounded loosely: benchmarks/idle.py measures."""
    dist.all_reduce(torch.ones(4), async_op=True).wait()  # the progress thread lives now
    dist.barrier()
    before = time.process_time()
    time.sleep(2)
    used = time.process_time() - before
    assert used < 0.2, f"{used:.2f} s of CPU time in 2 s of idling"


@on_ranks(2)
def test_waiting_for_a_late_rank_is_cheap(world):
    """A rank that waits long must not burn its core."""
    if not world.is_al:
        pytest.skip("al's promise")
    dist.barrier()
    if world.rank == 1:
        time.sleep(2)
    before = time.process_time()
    dist.all_reduce(torch.ones(4))
    used = time.process_time() - before
    if world.rank == 0:
        assert used < 1.0, f"{used:.2f} s of CPU time in 2 s of waiting"


def abort_while_a_group_is_made(world):
    dist.all_reduce(torch.ones(3))
    if not world.is_al:
        return None
    if world.rank == 1:
        time.sleep(3)
        return None
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    timer = threading.Timer(0.5, backend.abort)
    timer.start()
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"to make group .*: another thread aborted the group of the job"):
        dist.new_group()
    assert time.monotonic() - started < 2
    timer.join()
    return True


def test_abort_of_the_job_ends_the_making_of_a_group():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(abort_while_a_group_is_made)


@on_ranks(2)
def test_abort_ends_pending_operations_and_may_be_repeated(world):
    if not world.is_al:
        pytest.skip("al's promise")
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    dist.barrier(group)
    if world.rank == 0:
        work = dist.irecv(torch.ones(3), 1, group=group)
        backend.abort()
        started = time.monotonic()
        with pytest.raises(RuntimeError, match=r"(?i)abort"):
            work.wait()
        assert time.monotonic() - started < 5
        backend.abort()
        with pytest.raises(RuntimeError, match=r"(?i)abort"):
            dist.all_reduce(torch.ones(2), group=group)
    dist.barrier()


def killed_in_training(world):
    torch.manual_seed(1)
    started = time.monotonic()
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while time.monotonic() - started < 60:
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    except Exception as error:
        return str(error)
    return None


def test_a_rank_killed_in_ddp_training():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(meet)

        def kill():
            time.sleep(1.5)
            cluster.kill(1)

        outcomes = cluster.run(killed_in_training, deadline=45, before_wait=kill)
        assert [outcome.status for outcome in outcomes] == ["ok", "died"], outcomes[0].report()
        assert outcomes[0].value, "training went on without its peer"
        assert cluster.end([0], deadline=20) == []


@on_ranks(2)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_group_says_what_failed(world, asynchronous):
    """Backend.get_error(): nothing before, nor for a refused call, and the first failure from then on."""
    if not world.is_al:
        pytest.skip("Gloo says SUCCESS for ever")
    outcome = torch._C._distributed_c10d.ErrorType
    group = dist.new_group(timeout=timedelta(seconds=1))
    backend = group._get_backend(torch.device("cpu"))
    if not hasattr(backend, "get_error"):
        pytest.skip("this torch does not ask")
    dist.barrier(group)
    with pytest.raises(ValueError):
        backend.allreduce([torch.ones(1), torch.ones(1)])
    assert backend.get_error() == outcome.SUCCESS
    if world.rank == 0:
        with pytest.raises(RuntimeError, match="timeout"):
            work = dist.all_reduce(torch.ones(2), group=group, async_op=asynchronous)
            if work is not None:
                work.wait()
        assert backend.get_error() == outcome.TIMEOUT
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(2), group=group)
        assert backend.get_error() == outcome.TIMEOUT
    dist.barrier()


def forked_after_a_group(world, path):
    """The threads of the first group are not in a forked child, so it is refused a group, with the others."""
    dist.barrier()
    results = []
    for rank in range(2):
        end, other = os.pipe()
        if os.fork() == 0:
            text = "no error"
            try:
                dist.destroy_process_group()
                dist.init_process_group("al", init_method=f"file://{path}", rank=rank, world_size=2)
            except Exception as error:
                text = str(error)
            os.write(other, text.encode()[:2000])
            os._exit(0)
        os.close(other)
        results.append(end)
    return [os.read(end, 2000).decode() for end in results]


def test_a_forked_process_is_refused_a_group(tmp_path):
    with Cluster(1, launcher="plain") as cluster:
        for text in cluster.check(forked_after_a_group, path=str(tmp_path / "store"))[0]:
            assert "was forked from one that had a group" in text, text


def forked_after_the_last_group(world, path):
    """As a notebook does that starts one set of ranks after another."""
    dist.init_process_group("al", init_method=f"file://{path}.first", rank=0, world_size=1)
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    dist.destroy_process_group()
    children = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                dist.init_process_group("al", init_method=f"file://{path}", rank=rank, world_size=2)
                tensor = torch.full((3,), float(rank))
                dist.all_reduce(tensor, async_op=True).get_future().wait()
                dist.destroy_process_group()
                code = 0 if tensor.tolist() == [1, 1, 1] else 2
            finally:
                os._exit(code)
        children.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]


@pytest.mark.parametrize("carrier", [{}, {"ALTORCH_SHM_BYTES": "0"}])
def test_a_forked_process_makes_groups_once_its_parents_are_destroyed(carrier, tmp_path):
    with Cluster(1, group=False, launcher="plain", env=carrier) as cluster:
        assert cluster.check(forked_after_the_last_group, path=str(tmp_path / "store")) == [[0, 0]]


def lose_the_peer(world):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if not hasattr(backend, "get_error"):
        pytest.skip("this torch does not ask")
    try:
        dist.recv(torch.ones(3), 1)
    except RuntimeError:
        return backend.get_error().name
    return "no error"


def test_a_group_says_that_a_peer_was_lost():
    with Cluster(2, launcher="plain") as cluster:
        if not all(cluster.check(meet)):
            pytest.skip("Gloo says SUCCESS for ever")
        outcomes = cluster.run(lose_the_peer, ranks=[0], deadline=45, before_wait=lambda: cluster.kill(1))
        if outcomes[0].status == "skip":
            pytest.skip(outcomes[0].message)
        assert outcomes[0].value == "REMOTE_ERROR", outcomes[0].report()
