# SPDX-License-Identifier: BSD-3-Clause
"""`altorch trace` and SIGUSR1: what the ranks of a hung job are at, asked from outside while it hangs."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, PROGRAM_DEADLINE, Cluster, catches

from altorch.cli import _processes, _waits
from tests.ranks.launch import backend_under_test, clean_environment, free_port, launcher_under_test

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al" or launcher_under_test() != "plain",
    reason="starts ranks of backend al by itself",
)

ROUTES = {
    "shm": {},
    "mpi": {"ALTORCH_SHM_BYTES": "0"},
    "gloo": {"ALTORCH_SHM_BYTES": "0", "ALTORCH_MPI": "none"},
}


def altorch(*arguments, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "altorch", "trace", *map(str, arguments)],
        env=clean_environment(), capture_output=True, text=True, timeout=PROGRAM_DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def document(pids):
    (job,) = json.loads(altorch(*pids, "--json"))["jobs"]
    return job


def until(condition, seconds=30):
    end = time.monotonic() + seconds * PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def sockets_of(pid):
    return [name for name in _processes.sockets() if name.startswith(f"altorch-trace-{pid}-")]


def report_of(pid):
    for name in sockets_of(pid):
        if (found := _processes.ask(name, "report")) and found[2]:
            return found[2]
    return {"groups": []}


def calls_of(pid):
    return [call for group in report_of(pid)["groups"] for call in group["under_way"]]


def threads_of(pid):
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


def meet(world):
    for _ in range(2):
        dist.all_reduce(torch.ones(4))
    return world.is_al


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.02)


def one_waits(world, folder):
    """Rank 0 is in a call; rank 1 outside; rank 2 outside, to be stopped; rank 3 holds Python's lock."""
    if world.rank == 3:
        Path(folder, "holds").touch()
        ctypes.PyDLL(None).sleep(8)  # which keeps the lock
    if world.rank in (1, 2):
        wait_for(Path(folder, "go"))
    dist.all_reduce(torch.ones(1 << 18))


@pytest.mark.parametrize("route", ROUTES)
def test_a_hung_job_says_who_waits_for_whom(route, tmp_path):
    with Cluster(4, env=ROUTES[route]) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")
        text, told = "", {}

        def look():
            nonlocal text, told
            until(lambda: calls_of(cluster.pids[0]))
            wait_for(tmp_path / "holds")
            cluster.kill(2, signal.SIGSTOP)
            until(lambda: _processes.state_of(cluster.pids[2]) == "T")
            time.sleep(1.2)
            told = document([cluster.pids[0]])
            text = altorch(cluster.pids[0])
            cluster.kill(2, signal.SIGCONT)
            Path(tmp_path, "go").touch()

        cluster.check(one_waits, folder=str(tmp_path), before_wait=look)
        last = "is outside of any call, last all_reduce #2 (float32, 16 B)"
        sentence = " ".join(told["findings"][0]["text"].split())
        assert sentence.startswith(
            "rank 0 waits in all_reduce #3 (float32, 1 MiB) of group '0' (default_pg) for "
        )
        assert "; ranks 1, 2 and 3 have not called it: rank 1 " + last in sentence
        assert f"rank 2 is stopped (process {cluster.pids[2]};" in sentence
        assert f"rank 3 {last}" in sentence, "it holds Python's lock"
        assert told["conclusion"].startswith("All waiting ranks wait, in the end, for rank 1, which")
        assert re.search(rf"; its program is at {__file__}:[0-9]+ in wait_for; rank 2", told["conclusion"])
        assert told["ranks"]["3"]["place"] == "", "which Python's lock is needed for"
        assert f"over {route}" in text and "Job: 3 of 4 rank(s) answer" in text
        assert re.search(rf"{cluster.pids[0]} \(", text), "the thread that waits"
        assert told["ranks"]["0"]["groups"][0]["under_way"][0]["bytes"] == 1 << 20


def wait_for_a_message(world, folder):
    """Both in a group of their own; and rank 1 comes late to the making of another."""
    pair = dist.new_group([0, 1], group_desc="pair")
    if world.rank == 0:
        dist.recv(torch.ones(2), 1, group=pair, tag=5)
    else:
        wait_for(Path(folder, "message"))
        dist.send(torch.ones(2), 0, group=pair, tag=5)
        wait_for(Path(folder, "group"))
    dist.new_group([0, 1])


def test_messages_and_groups_that_are_made(tmp_path):
    with Cluster(2) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")
        found = []

        def look():
            until(lambda: calls_of(cluster.pids[0]))
            found.append(document([cluster.pids[1]])["findings"][0]["text"])
            Path(tmp_path, "message").touch()
            until(lambda: any("made_since_ns" in group for group in report_of(cluster.pids[0])["groups"]))
            found.append(document([cluster.pids[1]])["findings"][0]["text"])
            Path(tmp_path, "group").touch()

        cluster.check(wait_for_a_message, folder=str(tmp_path), before_wait=look)
        assert "recv from rank 1, tag 5 (float32, 8 B) of group '1' (pair)" in found[0]
        assert "rank 1 is not in the matching send" in found[0]
        assert found[1].startswith("rank 0 makes group '2' for ") and "rank 1 has not come" in found[1]


def start_first_group(world, folder):
    """Over a file: torch's own store waits for all ranks before altorch is asked for a group."""
    if world.rank == 1:
        wait_for(Path(folder, "go"))
    file = f"file://{folder}/store"
    dist.init_process_group(world.backend, init_method=file, rank=world.rank, world_size=world.size)


def test_a_rank_that_is_missing_when_the_job_starts(tmp_path):
    with Cluster(2, group=False) as cluster:

        def look():
            until(lambda: report_of(cluster.pids[0])["groups"])
            told = document([cluster.pids[0]])
            Path(tmp_path, "go").touch()
            assert "rank 0 makes group '0' for" in told["findings"][0]["text"]
            assert "rank 1 has not come" in told["findings"][0]["text"]

        cluster.check(start_first_group, folder=str(tmp_path), before_wait=look)


@pytest.mark.parametrize(
    "env", [{"TORCH_FR_BUFFER_SIZE": "0"}, {"ALTORCH_FLIGHT_RECORDER": "torch"}], ids=str
)
def test_calls_are_known_whatever_torch_records(env):
    with Cluster(2, env=env) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")
        group = report_of(cluster.pids[0])["groups"][0]
        assert group["description"] == "default_pg"
        assert (group["sequence"], group["last_done"]["operation"]) == (2, "all_reduce")


# ------------------------------------------------------------------------------------------------- the signal


def handle_the_signal_yourself(world):
    signal.signal(signal.SIGUSR1, lambda *_: print("the program's own", flush=True))
    world.start()


def log_of(cluster, rank):
    return Path(cluster._directory, f"rank{rank}.log").read_text()


def test_the_signal_has_a_process_say_what_it_is_at(tmp_path):
    record = tmp_path / "rank_"
    with Cluster(2, env={"TORCH_FR_DUMP_TEMP_FILE": str(record)}) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")

        def look():
            until(lambda: calls_of(cluster.pids[0]))
            for rank in (0, 1):
                cluster.kill(rank, signal.SIGUSR1)
            until(lambda: "flight record:" in log_of(cluster, 0) and "flight record:" in log_of(cluster, 1))
            if f"{record}0" in log_of(cluster, 0):  # as torch 2.15 can
                until(lambda: Path(f"{record}0").exists() and Path(f"{record}1").exists())
            Path(tmp_path, "go").touch()

        cluster.check(the_last_is_late, folder=str(tmp_path), before_wait=look)
        assert re.search(
            r"altorch: process \d+, global rank 0 of 2; the program is at \S+:\d+ in the_last_is_late\n"
            r"  group '0' \(default_pg\), rank 0 of 2, over \w+: in "
            r"all_reduce #3 \(float32, 16 B\) for [\d.]+ s, its timeout comes in",
            log_of(cluster, 0),
        )
        assert "in no call; last was all_reduce #2 (float32, 16 B), done" in log_of(cluster, 1)
        cluster.check(meet)


def the_last_is_late(world, folder):
    if world.rank == world.size - 1:
        wait_for(Path(folder, "go"))
    dist.all_reduce(torch.ones(4))


def test_the_signal_is_the_programs_where_it_has_a_handler():
    with Cluster(2, group=False) as cluster:
        cluster.check(handle_the_signal_yourself)
        cluster.kill(0, signal.SIGUSR1)
        until(lambda: "the program's own" in log_of(cluster, 0))
        cluster.check(meet)
        assert "altorch: process" not in log_of(cluster, 0)


# ------------------------------------------------------------------------------------------ who may ask, and the end


def test_strangers_and_nonsense():
    with Cluster(2) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")
        (name,) = sockets_of(cluster.pids[0])
        for nonsense in (b"", b"\0" * 10, b"report", b"x" * 100_000, b"\xff\n", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect("\0" + name)
                try:
                    client.sendall(nonsense)
                except OSError:
                    assert len(nonsense) > 1000
        assert report_of(cluster.pids[0])["pid"] == cluster.pids[0]
        cluster.check(meet)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused():
    with Cluster(2) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")
        (name,) = sockets_of(cluster.pids[0])
        child = os.fork()
        if child == 0:
            code = 3
            try:
                os.setuid(65534)
                with socket.socket(socket.AF_UNIX) as client:
                    client.settimeout(10)
                    client.connect("\0" + name)
                    try:
                        client.sendall(b"report\n")
                        code = 1 if client.recv(10) else 0
                    except (BrokenPipeError, ConnectionResetError):
                        code = 0
                if _processes.ask(name, "report")[2] is not None:
                    code = 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def fork_and_end(world):
    """The child outlives the group; its process number."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    dist.destroy_process_group()
    return child


def test_nothing_is_left_when_the_groups_have_ended():
    with Cluster(2) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")
        pid = cluster.pids[0]
        assert sockets_of(pid) and "al-trace" in threads_of(pid) and catches(pid, signal.SIGUSR1)
        child = cluster.check(fork_and_end)[0]
        until(lambda: not sockets_of(pid) and not sockets_of(child))  # the child has copies until it runs
        until(lambda: "al-trace" not in threads_of(pid))
        assert not catches(pid, signal.SIGUSR1) and not catches(child, signal.SIGUSR1)
        os.kill(child, signal.SIGUSR1)
        until(lambda: _processes.state_of(child) in ("Z", ""))
        cluster.check(meet)  # and comes again with the next group
        assert sockets_of(pid) and catches(pid, signal.SIGUSR1)


def test_it_can_be_turned_off():
    with Cluster(2, env={"ALTORCH_TRACE": "off"}) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")
        assert not sockets_of(cluster.pids[0]) and not catches(cluster.pids[0], signal.SIGUSR1)
        assert "ALTORCH_TRACE=off" in altorch(cluster.pids[0], status=1)


def use_and_end(world):
    meet(world)
    dist.destroy_process_group()


def test_metrics_for_prometheus(tmp_path):
    with Cluster(2, env={"ALTORCH_METRICS": f"{tmp_path}/al.prom"}) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip("this group is not altorch's")
        file = tmp_path / "al.1.prom"
        until(file.exists)
        assert re.search(
            r'altorch_operations_total\{group="0",.*rank="1",operation="all_reduce".*\} 2\n', file.read_text()
        )
        cluster.check(use_and_end)
        assert re.search(r'altorch_operations_total\{.*operation="all_reduce".*\} 4\n', file.read_text())
        assert sorted(each.name for each in tmp_path.iterdir()) == ["al.0.prom", "al.1.prom"]


def run_alone(code, extra=None):
    """A program of one rank, to its end."""
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(place | (extra or {})), capture_output=True, text=True,
        timeout=PROGRAM_DEADLINE, check=False,
    )  # fmt: skip


def test_metrics_of_a_short_program_that_does_not_destroy_its_group(tmp_path):
    code = "import torch, torch.distributed as dist; dist.init_process_group('al'); dist.all_reduce(torch.ones(3))"
    done = run_alone(code, {"ALTORCH_METRICS": f"{tmp_path}/al.prom"})
    assert done.returncode == 0, done.stderr
    assert re.search(r'operation="all_reduce".* 1\n', (tmp_path / "al.0.prom").read_text())


ASKED_AT_ITS_END = """
import atexit, os, signal, time

def save():
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.5)
    print("saved")

atexit.register(save)  # before altorch's own, and so run after it
import torch, torch.distributed as dist
dist.init_process_group("al")
dist.all_reduce(torch.ones(3))
"""


def test_a_process_that_is_asked_at_its_end_goes_on_to_its_end():
    done = run_alone(ASKED_AT_ITS_END)
    assert (done.returncode, done.stdout) == (0, "saved\n"), done.stderr


def test_errors_say_the_next_thing_to_do():
    assert "lists those that can be asked" in altorch(2**22 + 5, status=1)
    assert "usage" in altorch("--help")
    assert _waits.LONG > 0
