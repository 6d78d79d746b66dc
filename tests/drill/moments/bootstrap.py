"""While groups are made."""

from __future__ import annotations

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


def use_new_group(scene: Scene) -> None:
    scene.group = scene.new_group()
    scene.all_reduce()
