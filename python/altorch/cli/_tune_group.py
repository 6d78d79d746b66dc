# SPDX-License-Identifier: BSD-3-Clause
"""The ranks that `altorch tune` measures with: how many, on how many nodes, and whether they share GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch


class Group(NamedTuple):
    device: str
    ranks: int
    nodes: int = 1
    shared_gpus: bool = False

    def __str__(self) -> str:
        return f"{self.ranks} ranks" + (f" on {self.nodes} nodes" if self.nodes > 1 else "")

    def choices(self, operation: str) -> list[str]:
        from altorch.bench import tuning

        one_each = self.nodes == self.ranks
        return tuning.choices(
            self.device, operation, self.shared_gpus, self.nodes, one_rank_per_node=one_each
        )


def find(device: torch.device) -> Group:
    """The group of all ranks. Collective."""
    import torch.distributed as dist

    from altorch._extension import extension
    from altorch.bench import process_group

    places: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(places, (extension().shared_memory_node(), process_group.gpu_identity(device)))
    return of_places(device.type, places)


def of_places(device: str, places: Sequence[tuple[str, str]]) -> Group:
    """`places`: by rank, its node and its GPU, as the engine identifies them."""
    gpus = {gpu for _, gpu in places}
    return Group(
        device,
        ranks=len(places),
        nodes=len({node for node, _ in places}),
        shared_gpus=device == "cuda" and len(gpus) < len(places),
    )
