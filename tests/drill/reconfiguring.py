# SPDX-License-Identifier: BSD-3-Clause
"""Groups whose ranks change in place: torch's reconfigure(), from 2.15 on (docs/membership.md)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from tests.drill.scene import Scene


def exchange_handles(scene: Scene, when: str, ranks: Iterable[int] | None = None) -> None:
    """Of these ranks (all), by what is not tested; into `scene.handles`, behind those of before."""
    scene.note(f"handle.{when}.{scene.rank}", dist._get_reconfigure_handle())
    of = range(scene.size) if ranks is None else ranks
    scene.handles.append([scene.await_note(f"handle.{when}.{rank}") for rank in of])


def reconfigure(scene: Scene, handles: list[str] | None = None) -> None:
    """All that have exchanged their handles, in that order. Every attempt has its number."""
    chosen = scene.handles[-1] if handles is None else handles
    timeout = timedelta(seconds=scene.timeout)
    dist._reconfigure(len(scene.handles), chosen, timeout=timeout).wait()


def start_and_exchange(scene: Scene, store: dist.Store | None = None) -> None:
    """A group of all ranks that has been used, and what they need to change it."""
    scene.start(store, enable_reconfigure=True)
    exchange_handles(scene, "first")
    reconfigure(scene)
    scene.all_reduce()
    exchange_handles(scene, "second")
    scene.all_at("met")
