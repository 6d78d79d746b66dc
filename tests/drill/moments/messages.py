"""Between two ranks: messages, and signals of a window."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.drill.failures import LARGE
from tests.drill.moments.table import moment
from tests.drill.scene import Scene


@moment("in recv")
def in_recv(scene: Scene) -> None:
    scene.start_and_meet()
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
    if not scene.is_victim:
        scene.check(tensor, 1)


@moment("in large send")
def in_large_send(scene: Scene) -> None:
    scene.start_and_meet()
    if scene.is_victim:
        scene.strike()
    scene.attempt(lambda: send_large(scene))


def send_large(scene: Scene) -> None:
    if scene.is_victim:
        for rank in range(scene.size - 1):
            tensor = scene.ones(LARGE).fill_(0)
            dist.recv(tensor, rank)
            scene.check(tensor, 1)
    elif scene.is_async:
        dist.isend(scene.ones(LARGE), scene.size - 1).wait()
    else:
        dist.send(scene.ones(LARGE), scene.size - 1)


@moment("in wait_signal")
def in_wait_signal(scene: Scene) -> None:
    import altorch

    scene.start_and_meet()
    window = altorch.new_window(torch.zeros(8))
    window.fence()
    scene.all_at("open")
    scene.strike()

    def exchange() -> None:
        if scene.is_victim:
            for rank in range(scene.size - 1):
                window.signal(rank)
        else:
            window.wait_signal(scene.size - 1)

    scene.attempt(exchange)
