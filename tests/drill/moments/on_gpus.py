# SPDX-License-Identifier: BSD-3-Clause
"""On GPUs, where the host goes on while the device waits for other ranks."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from tests.drill.moments.table import moment
from tests.drill.scene import Scene

REPLAYS = 50


@moment("async, other work behind it")
def other_work_behind_it(scene: Scene) -> None:
    """The stream has got what comes next before the victim is struck; the host waits for none of it."""
    scene.start_and_meet()
    tensor = scene.ones(1000)
    doubled = tensor * 2  # a kernel's first launch waits for the device

    def begin() -> None:
        dist.all_reduce(tensor, async_op=True).wait()
        torch.mul(tensor, 2, out=doubled)

    if not scene.is_victim:
        begin()
    scene.all_at("begun")
    scene.strike()

    def finish() -> None:
        if scene.is_victim:
            begin()
        scene.settle()
        scene.check(doubled, 2 * scene.size)
        scene.confirm()

    scene.attempt(finish)


@moment("in barrier, behind all_reduce")
def in_barrier_behind_all_reduce(scene: Scene) -> None:
    """It holds the host up until the device has done what came before."""
    scene.start_and_meet()
    tensor = scene.ones(1000)
    if not scene.is_victim:
        dist.all_reduce(tensor)
    scene.all_at("begun")
    scene.strike()

    def meet() -> None:
        if scene.is_victim:
            dist.all_reduce(tensor)
        scene.call(dist.barrier)
        scene.check(tensor, scene.size)
        scene.confirm()

    scene.attempt(meet)


@moment("in replayed graphs")
def in_replayed_graphs(scene: Scene) -> None:
    """The victim is struck a third into its replays, as long as they took before."""
    scene.start_and_meet()
    tensor = scene.ones(1000)

    def step() -> None:
        tensor.fill_(1)
        dist.all_reduce(tensor)

    step()
    scene.settle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay() -> None:
        for _ in range(REPLAYS):
            graph.replay()
        scene.settle()
        scene.check(tensor, scene.size)

    replay()
    scene.all_at("replayed")
    began = time.monotonic()
    replay()
    took = time.monotonic() - began
    scene.all_at("measured")

    def replay_on() -> None:
        with scene.striking(after=took / 3):
            replay()
        scene.await_note("struck")
        replay()
        scene.confirm()

    scene.attempt(replay_on)
