# SPDX-License-Identifier: BSD-3-Clause
"""What carries a cell's calls: altorch over each of its carriers, and the backends beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.drill.needs import lacks_backend, lacks_gpus


@dataclass(frozen=True)
class Route:
    """`gpus_each`: each rank needs a GPU for itself; else `gpus` for all of them will do."""

    name: str
    backend: str
    env: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"
    gpus_each: bool = False
    gpus: int = 1
    node_of: Callable[[int], str] | None = None  # rank -> ALTORCH_NODE

    def environment(self, rank: int) -> dict[str, str]:
        """NCCL_HOSTID is the node, unless `env` sets it: NCCL refuses two ranks of one host on one GPU."""
        node = self.node_of(rank) if self.node_of else ""
        return ({"ALTORCH_NODE": node, "NCCL_HOSTID": node} if node else {}) | self.env

    def unsupported_reason(self, ranks: int, own_gpus: bool = False) -> str:
        """Why it cannot be tried here; empty: it can. `own_gpus`: no rank may share one."""
        if self.device == "cuda" and (why := lacks_gpus(ranks if own_gpus or self.gpus_each else self.gpus)):
            return why
        return lacks_backend(self.backend)

    @property
    def is_al(self) -> bool:
        return self.backend == "al"


_OVER_MPI = {"ALTORCH_SHM_BYTES": "0"}
_OVER_GLOO = {"ALTORCH_SHM_BYTES": "0", "ALTORCH_MPI": "none"}


def _halves(rank: int) -> str:
    """Ranks 0, 2, ... on one node, 1, 3, ... on the other."""
    return str(rank % 2)


def _pairs(rank: int) -> str:
    """Ranks 0 and 1 on one node, 2 and 3 on the other: on two GPUs no ranks of a node share one."""
    return str(rank // 2)


_HIERARCHICAL = {"ALTORCH_ROUTE": "cuda=hierarchical"}
# NCCL refuses ranks of one host that share a GPU, as four ranks on two GPUs do.
_WITHOUT_NCCL = {"NCCL_HOSTID": "one", "CUDA_VISIBLE_DEVICES": "0,1"}

ROUTES = {
    route.name: route
    for route in (
        Route("shm", "al"),
        Route("mpi", "al", _OVER_MPI),
        Route("al-gloo", "al", _OVER_GLOO),
        Route("nodes", "al", node_of=_halves),
        Route("nodes-gloo", "al", {"ALTORCH_MPI": "none"}, node_of=_halves),
        Route("cuda", "al", device="cuda", gpus_each=True),
        Route("peer", "al", {"ALTORCH_ROUTE": "cuda=peer"}, device="cuda", gpus_each=True),
        Route("al-nccl", "al", {"ALTORCH_ROUTE": "cuda=nccl"}, device="cuda", gpus_each=True),
        Route("host_staged", "al", {"ALTORCH_ROUTE": "cuda=host_staged"}, device="cuda"),
        Route("host_relay", "al", {"ALTORCH_ROUTE": "cuda=host_relay"}, device="cuda"),
        Route("hierarchical", "al", _HIERARCHICAL, device="cuda", gpus=2, node_of=_pairs),
        Route("hierarchical-relay", "al", _HIERARCHICAL | _WITHOUT_NCCL, device="cuda", node_of=_pairs),
        Route("gloo", "gloo"),
        Route("nccl", "nccl", device="cuda", gpus_each=True),
        Route("nccl2", "nccl2", device="cuda", gpus_each=True),
    )
}
