# SPDX-License-Identifier: BSD-3-Clause
"""When a group gets other ranks: those that are left, or those that were told to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.drill.moments.table import moment
from tests.drill.reconfiguring import exchange_handles, reconfigure, start_and_exchange
from tests.drill.scene import Scene, WrongResult
from tests.drill.striking_store import StrikingStore


@moment("before all_reduce, then survivors")
def before_all_reduce_then_survivors(scene: Scene) -> None:
    import altorch

    scene.start_and_meet()
    patience = timedelta(seconds=scene.timeout)
    lose_and_go_on(scene, lambda: altorch.survivors(patience=patience))


@moment("before all_reduce, then reconfigure")
def before_all_reduce_then_reconfigure(scene: Scene) -> None:
    start_and_exchange(scene)

    def leave_out() -> None:
        exchange_handles(scene, "third", range(scene.size - 1))
        reconfigure(scene)

    lose_and_go_on(scene, leave_out)


def lose_and_go_on(scene: Scene, change: Callable[[], object]) -> None:
    scene.strike()

    def go_on() -> None:
        with suppress(RuntimeError):
            scene.all_reduce()
            raise WrongResult("the loss was no error")
        change()
        compute(scene, scene.size - 1)

    scene.attempt(go_on)


@moment("before reconfigure")
def before_reconfigure(scene: Scene) -> None:
    start_and_exchange(scene)
    scene.strike()
    scene.attempt(lambda: change(scene))


@moment("in reconfigure")
def in_reconfigure(scene: Scene) -> None:
    store = StrikingStore(scene)
    start_and_exchange(scene, store)
    store.arm()
    scene.attempt(lambda: change(scene))


@moment("halfway through reconfigure")
def halfway_through_reconfigure(scene: Scene) -> None:
    amid_reconfigure(scene, lambda writes: (writes + 1) // 2)


@moment("late in reconfigure")
def late_in_reconfigure(scene: Scene) -> None:
    """When it says that it is ready; the last that it writes is that the ranks of before are no group any more."""
    amid_reconfigure(scene, lambda writes: writes - 1)


def amid_reconfigure(scene: Scene, which: Callable[[int], int]) -> None:
    """At one of the writes that it has taken before."""
    store = StrikingStore(scene)
    start_and_exchange(scene, store)
    writes = store.writes_of(lambda: reconfigure(scene))
    exchange_handles(scene, "third")
    store.arm(which(writes))
    scene.attempt(lambda: change(scene))


def change(scene: Scene) -> None:
    reconfigure(scene)
    compute(scene, scene.size)


@moment("in reconfigure, then as before")
def in_reconfigure_then_as_before(scene: Scene) -> None:
    """For failures that are another call of the victim's. They leave the group what it was."""
    start_and_exchange(scene)
    call = scene.failure.odd if scene.is_victim else scene.failure.usual
    assert call is not None
    scene.attempt(lambda: call(scene))
    scene.all_at("tried")
    compute(scene, scene.size)


def compute(scene: Scene, size: int) -> None:
    """By all ranks that there are now: right, and not marked."""
    if dist.get_world_size() != size:
        raise WrongResult(f"{dist.get_world_size()} ranks instead of {size}")
    for count in (10, 100_003):
        tensor = torch.full((count,), dist.get_rank() + 1.0, device=scene.device)
        dist.all_reduce(tensor)
        if not bool(tensor.eq(size * (size + 1) / 2).all()):
            raise WrongResult(f"{tensor} of {size} ranks")
    scene.settle()
    dist.barrier()
