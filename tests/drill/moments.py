"""Where in a program the failure happens: each moment is what all ranks of a cell run.

`scene.strike()` stands where the victim is struck; `scene.attempt()` around the call in which the others meet that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from tests.drill.scene import LARGE, Scene
from tests.drill.striking_store import StrikingStore


@dataclass(frozen=True)
class Moment:
    name: str
    run: Callable[[Scene], None]


MOMENTS: dict[str, Moment] = {}


def moment(name: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    def enter(run: Callable[[Scene], None]) -> Callable[[Scene], None]:
        MOMENTS[name] = Moment(name, run)
        return run

    return enter


@moment("before init")
def before_init(scene: Scene) -> None:
    scene.strike()
    scene.attempt(scene.start)


@moment("in init")
def in_init(scene: Scene) -> None:
    store = StrikingStore(scene)
    store.arm()
    scene.attempt(lambda: scene.start(store))


@moment("before new_group")
def before_new_group(scene: Scene) -> None:
    scene.start_and_meet()
    scene.strike()
    scene.attempt(lambda: use_new_group(scene))


@moment("in new_group")
def in_new_group(scene: Scene) -> None:
    store = StrikingStore(scene)
    scene.start_and_meet(store)
    store.arm()
    scene.attempt(lambda: use_new_group(scene))


def use_new_group(scene: Scene) -> None:
    scene.group = dist.new_group()
    scene.all_reduce()


@moment("before all_reduce")
def before_all_reduce(scene: Scene) -> None:
    scene.start_and_meet()
    scene.strike()
    scene.attempt(scene.all_reduce)


@moment("in large all_reduce")
def in_large_all_reduce(scene: Scene) -> None:
    """The victim is struck a third into its call, as long as one took before; the others call until they see it."""
    scene.start_and_meet()
    tensor = scene.ones(LARGE).fill_(0)
    scene.call(dist.all_reduce, tensor)
    began = time.monotonic()
    scene.call(dist.all_reduce, tensor)
    took = time.monotonic() - began
    scene.all_at("measured")

    def call_on() -> None:
        with scene.striking(after=took / 3):
            scene.call(dist.all_reduce, tensor)
        scene.await_note("struck")
        scene.call(dist.all_reduce, tensor)
        scene.check(tensor, 0)

    scene.attempt(call_on)


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


@moment("async, waited for later")
def waited_for_later(scene: Scene) -> None:
    wait_for_last_of(scene, 1)


@moment("async, behind another")
def behind_another(scene: Scene) -> None:
    wait_for_last_of(scene, 2)


def wait_for_last_of(scene: Scene, calls: int) -> None:
    """The others have begun them before the victim is struck."""
    scene.start_and_meet()
    tensors = [scene.ones(1000) for _ in range(calls)]

    def begin() -> list[dist.Work]:
        return [dist.all_reduce(tensor, async_op=True) for tensor in tensors]

    works = [] if scene.is_victim else begin()
    scene.all_at("begun")
    scene.strike()

    def finish() -> None:
        (works or begin())[-1].wait()
        for tensor in tensors:
            scene.check(tensor, scene.size)

    scene.attempt(finish)


@moment("in barrier")
def in_barrier(scene: Scene) -> None:
    scene.start_and_meet()
    scene.strike()
    scene.attempt(lambda: scene.call(dist.barrier))


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
    scene.await_end_of_others() if not scene.failure.victim_ends else None


@moment("before destroy")
def before_destroy(scene: Scene) -> None:
    scene.start_and_meet()
    scene.strike()
    scene.attempt(scene.end)


@moment("in a call")
def in_a_call(scene: Scene) -> None:
    """For failures that are another call of the victim's."""
    scene.start_and_meet()
    call = scene.failure.odd if scene.is_victim else scene.failure.usual
    assert call is not None
    scene.attempt(lambda: call(scene))
