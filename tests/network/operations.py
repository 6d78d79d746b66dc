# SPDX-License-Identifier: BSD-3-Clause
"""Every operation of `altorch check`, over good, slow and lossy links. Each function returns what the table shows."""

from __future__ import annotations

from harness import Outcome

from altorch.cli import _fabric_taken
from tests.network import bodies
from tests.network.stage import SHOWN, Failed, Stage, right


def operations(stage: Stage, counts: tuple[int, ...] = (1, 1000, 300_001)) -> SHOWN:
    _, shown, details = _operations(stage, counts)
    return shown, details


def slow_link(stage: Stage) -> SHOWN:
    stage.nodes[-1].limit("200mbit")
    outcomes, _, details = _operations(stage, (1, 1000, 100_003))
    seconds = max(outcome.value["broadcast"] for outcome in outcomes)
    if seconds < 0.1:  # 4 MB take 0.16 s, but for the burst
        raise Failed(f"the link is not slow: 4 MB took {seconds:.3f} s")
    return "right", f"a broadcast of 4 MB took {seconds:.2f} s; {details}"


def lossy_link(stage: Stage) -> SHOWN:
    outcomes, _, details = _operations(stage, (1, 1000, 30_001))
    seconds = max(outcome.value["barrier"] for outcome in outcomes)
    if seconds < 0.002:
        raise Failed(f"the link is not slow: a barrier took {seconds * 1e3:.1f} ms")
    return "right", f"a barrier took {seconds * 1e3:.1f} ms; {details}"


def _operations(stage: Stage, counts: tuple[int, ...]) -> tuple[list[Outcome], str, str]:
    with stage.job() as cluster:
        outcomes = cluster.run(bodies.operations, deadline=120, grace=10, counts=counts)
        output = cluster.output()
    right(outcomes)
    mpi = str(outcomes[0].value["carries"]).partition(",")[0]
    taken = _fabric_taken.read(f"Library version: {mpi}\n{output}")
    network = f"{taken.netmod}: {';'.join(taken.transports)}" if taken.netmod else ""
    if stage.carrier.has_mpi == mpi.startswith("no MPI"):
        raise Failed(f"carried by {mpi}")
    details = f"{mpi}; {network}" if stage.carrier.has_mpi else "Gloo"
    return outcomes, f"right, over `{network}`" if network else "right", details
