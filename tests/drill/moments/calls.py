# SPDX-License-Identifier: BSD-3-Clause
"""In collectives, synchronous and not."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from tests.drill.moments.table import moment
from tests.drill.scene import Scene


@moment("before all_reduce")
def before_all_reduce(scene: Scene) -> None:
    scene.start_and_meet()
    scene.strike()
    scene.attempt(scene.all_reduce)


@moment("in large all_reduce")
def in_large_all_reduce(scene: Scene) -> None:
    scene.start_and_meet()
    tensor = scene.ones(scene.large).fill_(0)

    def reduce() -> None:
        scene.call(dist.all_reduce, tensor)
        scene.check(tensor, 0)

    strike_within(scene, reduce)


def strike_within(scene: Scene, call: Callable[[], None]) -> None:
    """The victim is struck a third into its call, as long as one took before; the others call until they see it."""
    call()
    began = time.monotonic()
    call()
    took = time.monotonic() - began
    scene.all_at("measured")

    def call_on() -> None:
        with scene.striking(after=took / 3):
            call()
        scene.await_note("struck")
        call()
        scene.confirm()

    scene.attempt(call_on)


@moment("in a token switch")
def in_a_token_switch(scene: Scene) -> None:
    """Of tokens that have two experts, each of which returns what it gets."""
    import altorch

    scene.start_and_meet()
    tokens = scene.ones(4096 * 1024).view(4096, 1024)
    indices = torch.tensor([[0, 1]], device=scene.device).expand(len(tokens), 2)
    weights = scene.ones(indices.numel()).view(indices.shape)
    switch = altorch.TokenSwitch(num_experts=scene.size, max_dispatch_tokens_per_rank=len(tokens))

    def layer() -> None:
        routing = switch.create_routing(indices)
        rows, _, _ = switch.dispatch(routing, tokens, weights)
        scene.check(switch.combine(routing, rows), 2)

    strike_within(scene, layer)


@moment("in barrier")
def in_barrier(scene: Scene) -> None:
    scene.start_and_meet()
    scene.strike()
    scene.attempt(lambda: scene.call(dist.barrier))


@moment("in a call")
def in_a_call(scene: Scene) -> None:
    """For failures that are another call of the victim's."""
    scene.start_and_meet()
    call = scene.failure.odd if scene.is_victim else scene.failure.usual
    assert call is not None
    scene.attempt(lambda: call(scene))


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
        scene.confirm()

    scene.attempt(finish)


@moment("with work in flight")
def with_work_in_flight(scene: Scene) -> None:
    """The victim waits for others that have not come; it is struck by another thread of its own."""
    scene.start_and_meet()
    tensor = scene.ones(scene.large)

    def reduce() -> None:
        scene.call(dist.all_reduce, tensor)
        scene.confirm()

    if not scene.is_victim:
        scene.await_note("struck")
        scene.attempt(reduce)
        return
    with scene.striking(after=0.2):
        scene.attempt(reduce)


@moment("alone in all_reduce")
def alone_in_all_reduce(scene: Scene) -> None:
    """The victim is in the call, the others do not come: do they see it end?"""
    scene.start_and_meet()
    if not scene.is_victim:
        scene.leaves_group = True
        scene.attempt(lambda: scene.until(lambda: not scene.is_alive(scene.size - 1), "the victim's end"))
        return
    with scene.striking(after=0.3):
        scene.all_reduce()
