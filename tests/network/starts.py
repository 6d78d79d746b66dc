# SPDX-License-Identifier: BSD-3-Clause
"""Nodes that differ, and fabrics that cannot start. Each function returns what the table shows."""

from __future__ import annotations

import time

from mpi_libraries import all_mpis

from tests.network import bodies
from tests.network.stage import KILLED, SHOWN, SILENT, Failed, Stage, Unsupported, right, told


def other_netmod(stage: Stage) -> SHOWN:
    if not stage.carrier.other_netmod:
        raise Unsupported("only MPICH has several netmods")
    return _other(stage, stage.carrier.other_netmod, ("ucx", "ofi"))


def other_mpi(stage: Stage) -> SHOWN:
    mpis = all_mpis()
    is_mpich = stage.carrier.name in ("ucx", "ofi")
    mpi = mpis["Open MPI 4" if is_mpich else "mpich wheel"]
    if mpi.reason:
        raise Unsupported(f"no second MPI: {mpi.reason}")
    names = ("MPICH", "Open MPI") if stage.carrier.name != "gloo" else ("ALTORCH_MPI", "rank 0")
    return _other(stage, {"ALTORCH_MPI": mpi.library}, names)


def other_altorch(stage: Stage) -> SHOWN:
    last = list(stage.ranks_of(len(stage.nodes) - 1))
    return _other(stage, {}, ("altorch's version", bodies.OTHER_VERSION), other_version=last)


def absent(stage: Stage, timeout: float = 5) -> SHOWN:
    """The ranks of the last node never come: torch's store waits for them. The seconds count from the timeout on."""
    missing = stage.ranks_of(len(stage.nodes) - 1)
    with stage.job(group=False) as cluster:
        began = time.monotonic()
        arguments = {"elements": 1000, "timeout": timeout, "absent": list(missing)}
        outcomes = cluster.run(bodies.start, deadline=40, grace=15, **arguments)
    text, message = told(outcomes, began + timeout, KILLED, lost=missing)
    if f"{stage.size - len(missing)}/{stage.size} clients joined" not in message:
        raise Failed(f"{text}, which does not say how many are missing: {message}")
    return text, message


def _other(stage: Stage, last: dict[str, str], named: tuple[str, ...], **more: object) -> SHOWN:
    """The last node differs: all ranks must be told so when the group is made."""
    with stage.job(group=False, last=last) as cluster:
        began = time.monotonic()
        outcomes = cluster.run(bodies.start, deadline=40, grace=15, elements=1000, **more)
    text, message = told(outcomes, began, SILENT)
    if missing := [name for name in named if name.lower() not in message.lower()]:
        raise Failed(f"{text}, which does not name {' and '.join(missing)}: {message}")
    return text, message


def broken_fabric(stage: Stage) -> SHOWN:
    """The fabric cannot start: the next one must serve, or every rank must be told."""
    if not stage.carrier.broken:
        raise Unsupported("Gloo is what comes next")
    with stage.job(group=False, env=stage.carrier.broken) as cluster:
        began = time.monotonic()
        outcomes = cluster.run(bodies.start, deadline=40, grace=15, elements=1000)
    right(outcomes)
    if all("carries" in outcome.value for outcome in outcomes):
        return "right", outcomes[0].value["carries"]
    return told(outcomes, began, SILENT)
