# SPDX-License-Identifier: BSD-3-Clause
"""Between two ranks: messages, and signals of a window."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.drill.moments.table import moment
from tests.drill.scene import Scene


def meet(scene: Scene) -> None:
    scene.start_and_meet()
    if not scene.on_gpu:
        return
    for sender in (True, False):  # there, connections are made with the first message of each direction
        for peer in range(scene.size - 1) if scene.is_victim else [scene.size - 1]:
            transfer = dist.send if sender == scene.is_victim else dist.recv
            transfer(scene.ones(4), peer)
    scene.settle()
    scene.all_at("acquainted")


@moment("in recv")
def in_recv(scene: Scene) -> None:
    meet(scene)
    if scene.is_victim:
        scene.strike()
    peer = 0 if scene.is_victim else scene.size - 1
    scene.attempt(lambda: receive(scene, peer))


def receive(scene: Scene, peer: int) -> None:
    tensor = scene.ones(1000).fill_(0)
    if scene.is_victim:
        for rank in range(scene.size - 1):
            dist.send(scene.ones(1000), rank)
    elif scene.is_async:
        dist.irecv(tensor, peer).wait()
    else:
        dist.recv(tensor, peer)
    scene.settle()
    if not scene.is_victim:
        scene.check(tensor, 1)
    scene.confirm()


@moment("in large send")
def in_large_send(scene: Scene) -> None:
    meet(scene)
    if scene.is_victim:
        scene.strike()
    scene.attempt(lambda: send_large(scene))


def send_large(scene: Scene) -> None:
    """Over NCCL, more than it takes before a peer receives."""
    count = 8 * scene.large if scene.on_gpu else scene.large
    if scene.is_victim:
        for rank in range(scene.size - 1):
            tensor = scene.ones(count).fill_(0)
            dist.recv(tensor, rank)
            scene.check(tensor, 1)
    elif scene.is_async:
        dist.isend(scene.ones(count), scene.size - 1).wait()
    else:
        dist.send(scene.ones(count), scene.size - 1)
    scene.settle()
    scene.confirm()


@moment("in wait_signal")
def in_wait_signal(scene: Scene) -> None:
    import altorch

    scene.start_and_meet()
    # Others cannot map any other memory of a GPU.
    tensor = altorch.empty(8, device=scene.device) if scene.on_gpu else torch.zeros(8)
    window = altorch.new_window(tensor)
    window.fence()
    scene.all_at("open")
    scene.strike()

    def exchange() -> None:
        for _ in range(2 if scene.on_gpu else 1):  # there, the stream waits, and the next wait raises
            if scene.is_victim:
                for rank in range(scene.size - 1):
                    window.signal(rank)
            else:
                window.wait_signal(scene.size - 1)
            scene.settle()
            scene.check(tensor, 0)

    scene.attempt(exchange)
