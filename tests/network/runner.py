# SPDX-License-Identifier: BSD-3-Clause
"""Runs one cell: nodes of its own, a job on them, and nothing left behind."""

from __future__ import annotations

import time

from harness import RankFailure
from virtual_nodes import virtual_nodes

from tests.network.carriers import Carrier
from tests.network.cells import Cell
from tests.network.report import Result
from tests.network.stage import Failed, Stage, Unsupported


def run(cell: Cell, carrier: Carrier, nodes: int) -> Result:
    if carrier.unsupported_reason:
        return Result(cell.name, carrier.name, nodes, "skipped", "", carrier.unsupported_reason, 0.0)
    began = time.monotonic()
    log = ""
    try:
        with virtual_nodes(nodes, cell.relay) as stage:
            status, (shown, details) = "passed", cell.run(Stage(carrier, stage))
    except Unsupported as reason:
        status, shown, details = "skipped", "", str(reason)
    except (Failed, RankFailure) as failure:
        shown = getattr(failure, "shown", "failed")
        status, details = "failed", str(failure).partition("\n")[0]
        log = getattr(failure, "log", str(failure))
    seconds = round(time.monotonic() - began, 1)
    return Result(cell.name, carrier.name, nodes, status, shown, details, seconds, log)
