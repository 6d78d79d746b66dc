# SPDX-License-Identifier: BSD-3-Clause
"""No thread takes the GIL while it holds a mutex of altorch, or waits for a peer while it holds the GIL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import CARRIERS, PROGRAM_DEADLINE, Cluster

from tests.ranks.launch import clean_environment

SOURCES = Path(__file__).parents[1] / "locks"

FAULTS = """
import ctypes, sys
path, fault = sys.argv[1:]
if fault == "hold_mutex_and_take_gil":
    ctypes.CDLL(path).hold_mutex_and_take_gil()
elif fault == "wait":
    ctypes.PyDLL(path).wait()
else:
    ctypes.CDLL(path).wait()
"""


def built(source, into):
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("there is no C++ compiler here")
    into.parent.mkdir(exist_ok=True)
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared"]
    subprocess.run([compiler, *flags, "-o", str(into), str(SOURCES / source), "-ldl"], check=True)
    return str(into)


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    return built("watch_locks.cpp", tmp_path_factory.mktemp("locks") / "watch_locks.so")


def test_each_fault_is_seen(watch, tmp_path):
    library = built("two_faults.cpp", tmp_path / "altorch" / "_C.so")
    seen = {
        fault: subprocess.run(
            [sys.executable, "-c", FAULTS, library, fault],
            env=clean_environment({"LD_PRELOAD": watch}),
            capture_output=True,
            text=True,
            timeout=PROGRAM_DEADLINE,
            check=True,
        ).stderr
        for fault in ("hold_mutex_and_take_gil", "wait", "wait without the GIL")
    }
    assert "takes the GIL, and holds a mutex of altorch" in seen["hold_mutex_and_take_gil"]
    assert "waits, and holds the GIL" in seen["wait"]
    assert seen["wait without the GIL"] == ""


def mixed_calls(world):
    """Runs calls beside a thread that competes for the GIL, with hooks in Python, and a mismatch at the end."""
    assert "watch_locks" in Path("/proc/self/maps").read_text()
    group = dist.group.WORLD
    hooks = getattr(group, "register_abort_hook", lambda number, hook: None)
    for _ in range(2):
        hooks(1, lambda: None)
    group._register_on_completion_hook(lambda done: None)
    over = threading.Event()
    beside = threading.Thread(target=lambda: [sum(range(1000)) for _ in iter(over.is_set, True)])
    beside.start()
    other = 1 - world.rank
    for turn in range(20):
        values = torch.ones(300_000 if turn % 5 == 0 else 100)
        work = dist.all_reduce(values, async_op=True)
        future = work.get_future().then(lambda done: done.value())
        work.wait()
        future.wait()
        dist.all_gather_object([None] * world.size, {"turn": turn})
        messages = [dist.isend(values, other), dist.irecv(torch.empty_like(values), other)]
        for message in messages:
            message.wait()
        if turn % 10 == 0:
            part = dist.new_group([0, 1])
            dist.barrier(group=part)
            dist.destroy_process_group(part)
    over.set()
    beside.join()
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(3 + world.rank), async_op=True).wait()


@pytest.mark.parametrize("carrier", ["shm", "gloo"])
def test_no_mutex_is_held_where_the_gil_may_be_taken(watch, tmp_path, carrier):
    report = tmp_path / "report"
    env = {"LD_PRELOAD": watch, "WATCH_LOCKS_REPORT": str(report), **CARRIERS[carrier]}
    with Cluster(2, launcher="plain", env=env) as cluster:
        cluster.check(mixed_calls, deadline=60)
    assert not report.exists(), report.read_text()
