# SPDX-License-Identifier: BSD-3-Clause
"""The job as a whole: groups that are made again with other ranks, settings that must agree, who is alive."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster

from tests.ranks.launch import clean_environment, free_port, launch

SECONDS_TO_NOTICE = 5


def check_sum(group, size):
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [size] * 2


def groups_of_other_ranks(world, ports):
    """torch gives both lives' groups the same names, and ranks 0 and 2 have another history of them."""
    for life, port in enumerate(ports):
        os.environ["MASTER_PORT"] = str(port)
        world.start(timeout=20)
        members = [[0, 1], [1, 2], [0, 2]][life]
        group = dist.new_group(members)
        if world.rank in members:
            check_sum(group, 2)
        check_sum(None, world.size)
        dist.barrier()
        dist.destroy_process_group()


def test_a_new_life_may_make_groups_of_other_ranks():
    with Cluster(3, group=False, launcher="plain") as cluster:
        cluster.check(groups_of_other_ranks, deadline=90, ports=[free_port() for _ in range(3)])


def fewer_ranks(world, port, members):
    world.start(timeout=20)
    check_sum(None, world.size)
    dist.barrier()
    dist.destroy_process_group()
    if world.rank not in members:
        return None
    os.environ.update(
        MASTER_PORT=str(port), RANK=str(members.index(world.rank)), WORLD_SIZE=str(len(members))
    )
    dist.init_process_group("al", timeout=timedelta(seconds=20))
    check_sum(None, len(members))
    if dist.get_rank() == 1:  # the others look after their peers meanwhile
        time.sleep(2.5)
    check_sum(None, len(members))
    pair = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        check_sum(pair, 2)
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(9)
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(2))
    return str(caught.value)


@pytest.mark.parametrize("ranks", [[2, 1], [3, 0, 2]])
def test_a_new_life_of_fewer_ranks_in_another_order(ranks):
    """Liveness and messages number the ranks of today; MPI keeps those of its start."""
    with Cluster(4, group=False, launcher="plain") as cluster:
        outcomes = cluster.run(fewer_ranks, deadline=90, port=free_port(), members=ranks)
        for rank in set(ranks) - {ranks[1]}:
            assert outcomes[rank].ok, outcomes[rank].report()
            assert "rank 1 is lost" in outcomes[rank].value, outcomes[rank].value


def start(world, setting=None, value="", **options):
    if setting:
        os.environ[setting] = value
    pg_options = None
    if options:
        import altorch

        pg_options = altorch.Options(**options)
    world.start(timeout=20, pg_options=pg_options)


DIFFERENT = {
    "ALTORCH_ROUTE": {"setting": "ALTORCH_ROUTE", "value": "all_reduce=ring"},
    "ALTORCH_SEGMENT_BYTES": {"setting": "ALTORCH_SEGMENT_BYTES", "value": "4096"},
    "ALTORCH_PINNED_BYTES": {"setting": "ALTORCH_PINNED_BYTES", "value": "4096"},
    "pg_options.max_ctas": {"max_ctas": 4},
    "pg_options.deterministic": {"deterministic": "exact"},
}


@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.parametrize("mpi", ["", "none"])
def test_what_must_agree_is_compared(name, mpi):
    with Cluster(3, group=False, launcher="plain", env={"ALTORCH_MPI": mpi} if mpi else {}) as cluster:
        outcomes = cluster.run(start, deadline=60, per_rank={1: DIFFERENT[name]})
        for outcome in outcomes:
            assert outcome.status == "error", outcome.report()
            assert name in outcome.message and "rank 1" in outcome.message, outcome.message
            assert "ranks 0, 2" in outcome.message, outcome.message
            assert outcome.seconds < 20, outcome.report()


def lives_over_files(world, directory):
    for life in range(30):
        path, left = Path(directory, f"store{life}"), Path(directory, f"left{life}")
        dist.init_process_group(
            "al",
            init_method=f"file://{path}",
            rank=world.rank,
            world_size=world.size,
            timeout=timedelta(seconds=20),
        )
        check_sum(None, world.size)
        while world.rank == 0 and not left.exists():
            time.sleep(0.001)
        dist.destroy_process_group()
        # The last one that closes the store removes the file.
        assert world.rank == 1 or not path.exists(), life
        left.touch()


def test_destroy_lets_go_of_the_store(tmp_path):
    """At once: a process that ended while a thread of ours closes a FileStore would leave half a record in it, and who
    closes it next would read that for ever."""
    with Cluster(2, group=False, launcher="plain") as cluster:
        cluster.check(lives_over_files, deadline=90, directory=str(tmp_path))


WRONG = {
    "ALTORCH_ROUTE": "all_reduce=nonsense",
    "ALTORCH_STALL_SECONDS": "soon",
    "ALTORCH_ON_ERROR": "ignore",
    "ALTORCH_MPI_THREAD": "many",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_of_one_rank_is_told_to_all(name):
    with Cluster(3, group=False, launcher="plain") as cluster:
        per_rank = {1: {"setting": name, "value": WRONG[name]}}
        for outcome in cluster.run(start, deadline=60, per_rank=per_rank):
            assert outcome.status == "error", outcome.report()
            assert all(word in outcome.message for word in ("rank 1", name, WRONG[name])), outcome.message
            assert outcome.seconds < 15, outcome.report()


def start_and_leave(world, port):
    os.environ["MASTER_PORT"] = str(port)
    world.start()
    if world.rank == 0:
        os._exit(0)  # as a short program: its store is gone with it
    return True


def test_rank_zero_may_leave_as_soon_as_the_group_is_made():
    for _ in range(5):
        with Cluster(3, group=False, launcher="plain") as cluster:
            outcomes = cluster.run(start_and_leave, deadline=60, port=free_port())
            assert [outcome.status for outcome in outcomes] == ["died", "ok", "ok"], [
                outcome.report() for outcome in outcomes
            ]


def split_without(world, dies):
    group = dist.group.WORLD
    group.set_timeout(timedelta(seconds=30))
    dist.barrier()
    if world.rank == 1:
        if dies:
            os._exit(9)
        return None
    started = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        dist.new_group([0, 1, 2], timeout=timedelta(seconds=3 if not dies else 60))
    return str(caught.value), time.monotonic() - started


@pytest.mark.parametrize("dies", [True, False], ids=["dead", "late"])
def test_making_a_group_has_a_deadline_and_looks_for_the_dead(dies):
    with Cluster(3, launcher="plain") as cluster:
        outcomes = cluster.run(split_without, deadline=50, dies=dies)
        for rank in (0, 2):
            assert outcomes[rank].ok, outcomes[rank].report()
            text, seconds = outcomes[rank].value
            assert "rank 1 has not come to make group" in text, text
            assert ("is lost" in text) == dies, text
            assert seconds < (SECONDS_TO_NOTICE if dies else 8) * PATIENCE, seconds


def make_the_group(world):
    check_sum(None, world.size)
    dist.barrier()


def wait_for_the_stopped(world, asynchronous):
    time.sleep(2)  # until it is stopped
    group = dist.group.WORLD
    group.set_timeout(timedelta(seconds=3))
    started = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        work = dist.all_reduce(torch.ones(4), group=group, async_op=asynchronous)
        if work is not None:
            work.wait()
    return str(caught.value), time.monotonic() - started


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_stopped_store_stops_no_clock(asynchronous):
    """A frozen node looks like this; rank 0 hosts the store."""
    with Cluster(3, launcher="plain") as cluster:
        cluster.check(make_the_group)
        outcomes = cluster.run(
            wait_for_the_stopped,
            ranks=[1, 2],
            deadline=30,
            asynchronous=asynchronous,
            before_wait=lambda: cluster.kill(0, signal.SIGSTOP),
        )
        for outcome in outcomes:
            assert outcome.ok, outcome.report()
            text, seconds = outcome.value
            assert "timeout of 3 s" in text, text
            assert seconds < 3 + 1 + PATIENCE, seconds


def split_while_one_is_killed(world):
    dist.barrier()
    if world.rank == 2:
        return None
    group = dist.group.WORLD
    group.set_timeout(timedelta(seconds=20))
    if world.rank == 1:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    else:
        time.sleep(2.5)
    started = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        dist.new_group([0, 1], use_local_synchronization=True, timeout=timedelta(seconds=20))
    return str(caught.value), time.monotonic() - started


def test_a_rank_killed_while_a_group_is_made():
    with Cluster(3, launcher="plain") as cluster:
        outcomes = cluster.run(split_while_one_is_killed, deadline=50)
        assert [outcome.status for outcome in outcomes] == ["ok", "died", "ok"], [
            outcome.report() for outcome in outcomes
        ]
        text, seconds = outcomes[0].value
        assert "rank 1 is lost" in text, text
        assert seconds < SECONDS_TO_NOTICE * PATIENCE, seconds
        assert cluster.end([0, 2], deadline=20) == []


def die_alone(world):
    dist.barrier()
    if world.rank == 1:
        time.sleep(1)
        os._exit(9)
    started = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(4))
    return str(caught.value), time.monotonic() - started


PID_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def can_unshare():
    return subprocess.run([*PID_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("mpi", ["", "none"])
def test_a_rank_that_is_alone_on_its_node_dies(mpi):
    if not can_unshare():
        pytest.skip("no namespaces here")
    env = {"ALTORCH_MPI": mpi} if mpi else {}
    with Cluster(3, launcher="torchrun", env=env, node_prefixes=[PID_NAMESPACE] * 3) as cluster:
        outcomes = cluster.run(die_alone, deadline=40)
        for rank in (0, 2):
            assert outcomes[rank].ok, outcomes[rank].report()
            text, seconds = outcomes[rank].value
            assert seconds < (1 + SECONDS_TO_NOTICE) * PATIENCE, (seconds, text)
            assert "rank 1" in text, text


def run_program(directory, source, launcher, env, may_fail=False):
    """Exit codes and output of 2 ranks."""
    program = directory / "program.py"
    program.write_text(source)
    plan = launch(2, [str(program)], launcher=launcher, env=env, log_directory=directory, mpirun=None)
    try:
        for process in plan.processes:
            process.wait(timeout=45 * PATIENCE)
    finally:
        for process in plan.processes:
            process.kill()
    codes = [process.returncode for process in plan.processes]
    texts = "\n".join(path.read_text(errors="replace") for path in directory.glob("*.log"))
    assert may_fail or not any(codes), (codes, texts)
    return codes, texts


SCRIPT = """
import altorch, torch, torch.distributed as dist
from datetime import timedelta
from pathlib import Path
dist.init_process_group("al", timeout=timedelta(seconds=60))
dist.all_reduce(torch.ones(2))
if dist.get_rank() == 1:
    raise ValueError("a bug of the user's")
try:
    dist.all_reduce(torch.ones(2))
except Exception as error:
    print("told:", error, flush=True)
"""


@pytest.mark.parametrize("launcher", ["plain", "torchrun", "mpirun"])
def test_an_uncaught_exception_ends_the_job(launcher, tmp_path):
    """No rank waits in MPI_Finalize for one that waits in a collective."""
    started = time.monotonic()
    codes, texts = run_program(tmp_path, SCRIPT, launcher, clean_environment(), may_fail=True)
    assert "a bug of the user's" in texts, texts
    assert any(codes), texts
    assert time.monotonic() - started < 40 * PATIENCE, texts


RELEASES = """
import time
import altorch, torch, torch.distributed as dist


class Slow:
    def __del__(self):
        time.sleep(0.3)


dist.init_process_group("al")
tensor = torch.ones(64)
tensor.note = Slow()
work = dist.all_reduce(tensor, async_op=True)
del tensor
while not work.is_completed():
    time.sleep(0.001)
del work
dist.destroy_process_group()
"""


@pytest.mark.parametrize("mpi", ["", "none"])
def test_a_program_may_end_while_tensors_are_released(mpi, tmp_path):
    """The thread that releases them wants Python's lock, which at the end of the interpreter it never gets."""
    run_program(tmp_path, RELEASES, "plain", clean_environment({"ALTORCH_MPI": mpi} if mpi else {}))


RELEASED_LAST = """
import torch
import torch.distributed as dist
import altorch

dist.init_process_group("al")
window = altorch.new_window(torch.zeros(4))
window.fence()
window.tensor_deregister()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("again", range(3))
def test_a_window_may_be_the_last_thing_of_a_program(again, tmp_path):
    """Rank 0, which hosts the store, does not end before the others have read there that all have come."""
    run_program(tmp_path, RELEASED_LAST, "plain", clean_environment())


def connections_to(port):
    """Of this process, to a server on this machine."""
    sockets = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(entry.readlink().name)
    found = 0
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        if not Path(table).exists():
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            is_open, peer = fields[3] == "01", int(fields[2].rpartition(":")[2], 16)
            found += is_open and peer == port and f"socket:[{fields[9]}]" in sockets
    return found


def one_connection_at_the_start(world):
    world.start(timeout=30)
    port = int(os.environ["MASTER_PORT"])
    check_sum(None, world.size)
    assert connections_to(port) == 1
    # Later, or for the next group, there is one of altorch's own: another thread may block on the
    # first.
    waiting = threading.Thread(target=lambda: dist.distributed_c10d._get_default_store().wait(["released"]))
    waiting.start()
    group = dist.new_group(list(range(world.size)))
    check_sum(group, world.size)
    assert connections_to(port) == 2
    dist.barrier()
    dist.distributed_c10d._get_default_store().clone().set("released", "")
    waiting.join(30)
    assert not waiting.is_alive()
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.skipif(
    bool(os.environ.get("ALTORCH_MPI")), reason="who starts MPI needs its own connection at once"
)
def test_a_group_of_one_node_starts_over_the_callers_connection():
    with Cluster(
        2, group=False, launcher="plain", env={"ALTORCH_ROUTE": "", "ALTORCH_SHM_BYTES": ""}
    ) as cluster:
        cluster.check(one_connection_at_the_start, deadline=60)


class StoreOfOneConnection(dist.Store):
    """A store that has no clone: what a program has written itself."""

    def __init__(self, store):
        super().__init__()
        self.store = store

    def set(self, key, value):
        return self.store.set(key, value)

    def get(self, key):
        return self.store.get(key)

    def add(self, key, value):
        return self.store.add(key, value)

    def check(self, keys):
        return self.store.check(keys)

    def wait(self, *arguments):
        return self.store.wait(*arguments)

    def multi_get(self, keys):
        return self.store.multi_get(keys)

    def delete_key(self, key):
        return self.store.delete_key(key)


def start_over_a_store_of_ones_own(world, port, seconds):
    # Kept here: torch keeps the part in C++ only.
    store = StoreOfOneConnection(dist.TCPStore("127.0.0.1", port, world.size, world.rank == 0))
    dist.init_process_group(world.backend, store=store, rank=world.rank, world_size=world.size)
    time.sleep(seconds)
    group = dist.new_group([0, 1])
    total = torch.ones(3)
    dist.all_reduce(total, group=group)
    assert total.tolist() == [2.0] * 3
    dist.destroy_process_group()


@pytest.mark.parametrize("seconds", [0, 3])
def test_a_store_that_cannot_be_cloned_serves_as_it_is(seconds):
    with Cluster(
        2, group=False, launcher="plain", env={"ALTORCH_ROUTE": "", "ALTORCH_SHM_BYTES": ""}
    ) as cluster:
        cluster.check(start_over_a_store_of_ones_own, deadline=60, port=free_port(), seconds=seconds)
