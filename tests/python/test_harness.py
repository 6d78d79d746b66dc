# SPDX-License-Identifier: BSD-3-Clause
"""The harness itself: it reports what ranks did, ends what hangs, and leaves nothing behind."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import Cluster, RankFailure, is_running, on_ranks, raise_for

from tests.ranks import ports
from tests.ranks.fork_server import ForkServer
from tests.ranks.launch import REPOSITORY, clean_environment, free_port


def returns_rank(world):
    return (world.rank, world.size)


def fails_on_rank_1(world):
    print("a word on stdout")
    if world.rank == 1:
        raise ValueError("rank 1 fails on purpose")


def hangs_on_rank_1(world):
    if world.rank == 1:
        time.sleep(1000)


def leaves_a_child(world):
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True
    ).pid


def digests_differ(world):
    import torch

    world.case = "different on purpose"
    world.identical(torch.tensor([world.rank]))


def test_outcomes_deadlines_and_cleaning_up():
    with Cluster(2, group=False) as cluster:
        assert cluster.check(returns_rank) == [(0, 2), (1, 2)]

        outcomes = cluster.run(fails_on_rank_1)
        assert [outcome.status for outcome in outcomes] == ["ok", "error"]
        assert "rank 1 fails on purpose" in outcomes[1].traceback
        assert "a word on stdout" in outcomes[1].output
        with pytest.raises(RankFailure, match="1 of 2 ranks failed"):
            raise_for(outcomes)

        with pytest.raises(RankFailure, match="different on purpose"):
            cluster.check(digests_differ)

        children = cluster.check(leaves_a_child)
        outcomes = cluster.run(hangs_on_rank_1, deadline=1)
        assert [outcome.status for outcome in outcomes] == ["ok", "late"]
        assert "hangs_on_rank_1" in outcomes[1].output  # the stack at the deadline
        everyone = [*cluster.pids.values(), *children]
    assert [pid for pid in everyone if is_running(pid)] == []


def test_a_killed_rank_is_reported_as_dead():
    # Only plain processes: torchrun and mpirun end the other ranks themselves.
    with Cluster(2, group=False, launcher="plain") as cluster:
        outcomes = cluster.run(hangs_on_rank_1, deadline=20, before_wait=lambda: cluster.kill(1))
        assert [outcome.status for outcome in outcomes] == ["ok", "died"]


@on_ranks(1, 2, 3)
@pytest.mark.parametrize("word", ["a", "b"])
def test_pool_runs_bodies_on_every_rank(world, word):
    import torch
    import torch.distributed as dist

    assert word in "ab"
    assert dist.get_world_size() == world.size
    total = torch.tensor([world.rank + 1])
    dist.all_reduce(total)
    assert total.item() == world.size * (world.size + 1) // 2
    world.case = "sum of ranks"
    world.identical(total)


@pytest.fixture(scope="module")
def server():
    with ForkServer(clean_environment(), preload=["test_harness"]) as server:
        yield server


def ends_with(code):
    return code


def raises():
    raise ValueError("raised on purpose")


def says(text):
    print(text, os.environ.get("ALTORCH_TEST_WORD"), os.getsid(0) == os.getpid())
    atexit.register(print, "at exit")


def lists_descriptors():
    print(sorted(os.listdir("/proc/self/fd")))  # noqa: PTH208


def address_of_a_mapping():
    import mmap

    import torch

    kept = mmap.mmap(-1, 1 << 22)
    print(torch.frombuffer(kept, dtype=torch.uint8).data_ptr())


def test_a_forked_process_ends_with_what_its_function_returns(server):
    assert server.start("test_harness:ends_with", None, None, 7).wait(30) == 7
    assert server.start("test_harness:ends_with", None, None, None).wait(30) == 0


def test_a_forked_process_has_its_environment_session_and_log(server, tmp_path):
    log = tmp_path / "log"
    env = clean_environment({"ALTORCH_TEST_WORD": "word"})
    assert server.can_start(env)
    assert server.start("test_harness:says", env, log, "hello").wait(30) == 0
    assert server.start("test_harness:raises", None, log).wait(30) == 1
    text = log.read_text()
    assert text.startswith("hello word True\nat exit\n")  # the interpreter ends as that of any program does
    assert "ValueError: raised on purpose" in text
    assert "ALTORCH_TEST_WORD" not in os.environ


def test_a_killed_child_ends_with_a_negative_code_and_others_run_on(server):
    hangs = server.start("time:sleep", None, None, 1000)
    killed = server.start("time:sleep", None, None, 1000)
    killed.kill()
    assert killed.wait(30) == -signal.SIGKILL
    assert server.start("test_harness:ends_with", None, None, 3).wait(30) == 3
    assert hangs.poll() is None and is_running(hangs.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        hangs.wait(0.01)
    hangs.kill()
    assert hangs.wait(30) == -signal.SIGKILL
    hangs.kill()  # as of subprocess.Popen: nothing happens


def test_children_hold_no_descriptors_of_the_server(server, tmp_path):
    running = [server.start("time:sleep", None, None, 1000) for _ in range(3)]
    assert server.start("test_harness:lists_descriptors", None, tmp_path / "log").wait(30) == 0
    for process in running:
        process.kill()
    assert (tmp_path / "log").read_text() == "['0', '1', '2', '3']\n"  # 3: of the directory


def test_children_have_mappings_at_different_addresses(server, tmp_path):
    log = tmp_path / "log"
    for _ in range(3):
        assert server.start("test_harness:address_of_a_mapping", None, log).wait(30) == 0
    assert len(set(log.read_text().split())) > 1


def test_several_threads_start_processes(server):
    with ThreadPoolExecutor(8) as pool:
        codes = pool.map(lambda n: server.start("test_harness:ends_with", None, None, n).wait(60), range(24))
        assert list(codes) == list(range(24))


def test_variables_that_torch_reads_at_import_need_a_fresh_interpreter(server):
    assert not server.can_start(server.env | {"TORCH_SHOW_CPP_STACKTRACES": "1"})
    assert not server.can_start({name: text for name, text in server.env.items() if name != "PATH"})
    assert server.can_start(server.env | {"RANK": "1", "ALTORCH_MPI": "none"})


def test_a_request_that_is_too_large_is_refused_and_the_server_runs_on(server):
    with pytest.raises(OSError):
        server.start("test_harness:ends_with", None, None, "x" * (2 << 20))
    assert server.start("test_harness:ends_with", None, None, 3).wait(30) == 3


def test_children_die_with_the_server_which_starts_no_more():
    server = ForkServer(clean_environment())
    hangs = server.start("time:sleep", None, None, 1000)
    os.kill(server.pid, signal.SIGKILL)
    assert hangs.wait(30) == -signal.SIGKILL
    with pytest.raises(OSError):
        server.start("test_harness:ends_with", None, None, 0)
    end = time.monotonic() + 30
    while (is_running(server.pid) or is_running(hangs.pid)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(hangs.pid)
    assert not server.can_start(server.env)
    server.close()


def test_ranks_are_fresh_interpreters_without_a_fork_server(monkeypatch):
    server = ForkServer(clean_environment())
    server.close()
    monkeypatch.setattr("tests.ranks.launch.fork_server", lambda: server)
    with Cluster(2, group=False, launcher="plain") as cluster:
        assert cluster.check(returns_rank) == [(0, 2), (1, 2)]
        assert all(isinstance(process, subprocess.Popen) for process in cluster._plan.processes)


def test_no_two_processes_get_the_same_port():
    program = "from tests.ranks.ports import free_port; print(*(free_port() for _ in range(60))); input()"
    command = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": REPOSITORY}
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]
    found = [port for process in processes for port in process.stdout.readline().split()]
    for process in processes:
        process.communicate("\n", timeout=30)
    assert len(found) == len(set(found)) == 240


def test_a_port_that_is_taken_or_reserved_is_no_free_port(monkeypatch):
    first, *others = (free_port() for _ in range(3))
    monkeypatch.setattr(ports, "FIRST", first)
    monkeypatch.setattr(ports, "LAST", first)
    with pytest.raises(RuntimeError, match="No free TCP port"):
        free_port()  # this process has reserved it
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setattr(ports, "FIRST", bound.getsockname()[1])
        monkeypatch.setattr(ports, "LAST", bound.getsockname()[1])
        with pytest.raises(RuntimeError, match="No free TCP port"):
            free_port()
    assert len({first, *others}) == 3


def test_reservations_of_ports_are_bounded():
    for _ in range(ports.MAX_RESERVATIONS + 10):
        free_port()
    assert len(ports._reservations) == ports.MAX_RESERVATIONS
