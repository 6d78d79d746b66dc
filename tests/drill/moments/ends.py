# SPDX-License-Identifier: BSD-3-Clause
"""When a program ends its groups, or itself."""

from __future__ import annotations

import torch.distributed as dist

from tests.drill.moments.table import moment
from tests.drill.scene import Scene


@moment("before destroy")
def before_destroy(scene: Scene) -> None:
    scene.start_and_meet()
    scene.strike()
    scene.attempt(scene.end)


@moment("at the end, group not destroyed")
def end_without_destroy(scene: Scene) -> None:
    scene.start_and_meet()
    scene.leaves_group = True
    scene.attempt(scene.all_reduce)


@moment("at the end, work in flight")
def end_with_work_in_flight(scene: Scene) -> None:
    """All ranks have begun a large all_reduce, and no rank waits for it."""
    scene.start_and_meet()
    scene.leaves_group = True
    tensor = scene.ones(scene.large)
    scene.attempt(lambda: dist.all_reduce(tensor, async_op=True))


@moment("at the end, work in flight alone")
def end_with_work_in_flight_alone(scene: Scene) -> None:
    """The other ranks wait for a call that the last rank never makes; no rank looks at what became of it."""
    scene.start_and_meet()
    scene.leaves_group = True
    tensor = scene.ones(1000)
    scene.attempt(lambda: scene.is_victim or dist.all_reduce(tensor, async_op=True))
    scene.all_at("begun")


@moment("in destroy, work in flight")
def destroy_with_work_in_flight(scene: Scene) -> None:
    scene.start_and_meet()
    tensor = scene.ones(scene.large)

    def leave() -> None:
        dist.all_reduce(tensor, async_op=True)
        scene.end()

    scene.attempt(leave)


@moment("in destroy, work in flight alone")
def destroy_with_work_in_flight_alone(scene: Scene) -> None:
    scene.start_and_meet()
    tensor = scene.ones(1000)

    def leave() -> None:
        if not scene.is_victim:
            dist.all_reduce(tensor, async_op=True)
        scene.all_at("begun")
        scene.end()

    scene.attempt(leave)
