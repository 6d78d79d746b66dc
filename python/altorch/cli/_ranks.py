# SPDX-License-Identifier: BSD-3-Clause
"""Commands that run on several ranks start them here, when nothing else has."""

from __future__ import annotations

import os
from collections.abc import Sequence


def start(ranks: int, command: Sequence[str]) -> int:
    """Runs `altorch COMMAND` on so many ranks of this machine; the exit status, 0 or 1."""
    from altorch import _version_check
    from altorch._extension import extension

    # Load it here first, so that a failure is reported once and not by every rank.
    if not _version_check.needs_fallback():
        extension()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    # torchrun in this process, which has imported torch already.
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main(["--standalone", f"--nproc-per-node={ranks}", "-m", "altorch", *command])
    except (ChildFailedError, SignalException):  # torchrun and the rank have said why
        return 1
    return 0
