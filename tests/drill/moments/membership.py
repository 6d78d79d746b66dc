"""When the ranks that are left go on without the others."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.drill.moments.table import moment
from tests.drill.scene import Scene, WrongResult


@moment("before all_reduce, then survivors")
def before_all_reduce_then_survivors(scene: Scene) -> None:
    scene.start_and_meet()
    scene.strike()
    scene.attempt(lambda: fail_and_go_on(scene))


def fail_and_go_on(scene: Scene) -> None:
    import altorch

    with suppress(dist.DistBackendError):
        scene.all_reduce()
        raise WrongResult("the loss was no error")
    altorch.survivors(patience=timedelta(seconds=scene.timeout))
    compute(scene, scene.size - 1)


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
