# SPDX-License-Identifier: BSD-3-Clause
"""While groups are made."""

from __future__ import annotations

from collections.abc import Callable

from tests.drill.moments.table import moment
from tests.drill.scene import Scene
from tests.drill.striking_store import StrikingStore


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


@moment("halfway through new_group")
def halfway_through_new_group(scene: Scene) -> None:
    amid_new_group(scene, lambda writes: (writes + 1) // 2)


@moment("late in new_group")
def late_in_new_group(scene: Scene) -> None:
    amid_new_group(scene, lambda writes: writes)


def amid_new_group(scene: Scene, which: Callable[[int], int]) -> None:
    """At one of the writes that another group has taken before."""
    store = StrikingStore(scene)
    scene.start_and_meet(store)
    writes = store.writes_of(scene.new_group)
    scene.all_at("counted")
    store.arm(which(writes))
    scene.attempt(lambda: use_new_group(scene))


def use_new_group(scene: Scene) -> None:
    scene.group = scene.new_group()
    scene.all_reduce()
