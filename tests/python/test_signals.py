# SPDX-License-Identifier: BSD-3-Clause
"""Signals while a call waits: what a handler raises ends the call, and the peers hear of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import CARRIERS, PATIENCE, Cluster

import altorch

WAITS = {
    "collective": lambda: dist.all_reduce(torch.ones(4)),
    "large": lambda: dist.all_reduce(torch.ones(3_000_000)),
    "work": lambda: dist.all_reduce(torch.ones(4), async_op=True).wait(),
    "message": lambda: dist.recv(torch.ones(4), 1),
    "barrier": dist.barrier,
    "new_group": lambda: dist.new_group([0, 1]),
}


def interrupted(world, directory):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored behind a shell's &
    for name, waits in WAITS.items():
        world.case = name
        dist.init_process_group(
            "al",
            init_method=f"file://{directory}/{name}",
            rank=world.rank,
            world_size=2,
            timeout=timedelta(seconds=60 * PATIENCE),
        )
        dist.barrier()
        if world.rank == 0:
            sent = []

            def send(sent=sent):
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

            threading.Timer(0.7, send).start()
            with pytest.raises(KeyboardInterrupt):
                waits()
            assert time.monotonic() - sent[0] < 1 * PATIENCE
        else:
            time.sleep(2.5 * PATIENCE)  # longer than rank 0 waits
        if name != "new_group":  # whose parent goes on
            began = time.monotonic()
            with pytest.raises(dist.DistBackendError, match="signal"):
                dist.all_reduce(torch.ones(2))
            assert time.monotonic() - began < 10 * PATIENCE
        dist.destroy_process_group()


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_signal_interrupts_a_call_that_waits(carrier, tmp_path):
    with Cluster(2, group=False, launcher="plain", env=CARRIERS[carrier]) as cluster:
        cluster.check(interrupted, directory=str(tmp_path), deadline=100)


def interrupted_in_a_flush(world):
    """What was put goes on its way, and a later flush waits for it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    memory = torch.zeros(8)
    window = altorch.new_window(memory)
    pids = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(pids, torch.tensor([os.getpid()]))
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        stat = Path(f"/proc/{int(pids[1])}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        for slot in range(8):
            window.put(torch.ones(1), 1, slot, async_op=True)
        sent = []

        def send():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.7, send).start()
        with pytest.raises(KeyboardInterrupt):
            window.flush(1)
        took = time.monotonic() - sent[0]
        os.kill(int(pids[1]), signal.SIGCONT)
        assert took < 1 * PATIENCE
        window.flush(1)
    window.fence()
    assert world.rank == 0 or memory.eq(1).all()
    window.tensor_deregister()


def test_a_signal_interrupts_a_flush():
    with Cluster(2, launcher="plain", env={"ALTORCH_ROUTE": "window=messages"}) as cluster:
        cluster.check(interrupted_in_a_flush)


def handled(world):
    """A handler that returns leaves the call alone."""
    seen = []
    if world.rank == 0:
        signal.signal(signal.SIGUSR2, lambda *_: seen.append(time.monotonic()))
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR2)).start()
    else:
        time.sleep(1.5)
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    ended = time.monotonic()
    assert tensor.tolist() == [2] * 4
    if world.rank == 0:
        assert len(seen) == 1
        assert ended - seen[0] > 0.3  # it ran while the call waited
    dist.barrier()


def communicates_in_a_handler(world):
    """It would wait behind the call that waits."""
    told = []

    def handler(*_):
        for call in (
            dist.barrier,
            lambda: dist.isend(torch.ones(1), 1),
            lambda: dist.all_reduce(torch.ones(1)),
        ):
            try:
                call()
            except NotImplementedError as error:
                told.append(str(error))

    if world.rank == 0:
        signal.signal(signal.SIGUSR2, handler)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR2)).start()
    else:
        time.sleep(1.5)
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2] * 4
    if world.rank == 0:
        assert len(told) == 3
        assert all("signal handler" in text for text in told)
    dist.barrier()


def test_a_handler_cannot_communicate_while_a_call_waits():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(communicates_in_a_handler)


def test_a_handler_that_returns_does_not_end_a_call():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(handled)
