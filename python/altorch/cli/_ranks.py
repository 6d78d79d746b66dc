# SPDX-License-Identifier: BSD-3-Clause
"""Commands that run on several ranks start them here, when nothing else has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def start(ranks: int, command: Sequence[str]) -> int:
    """Runs `altorch COMMAND` on so many ranks of this machine; the exit status, 0 or 1."""
    from altorch import _version_check
    from altorch._extension import extension

    # Load it here first, so that a failure is reported once and not by every rank.
    if not _version_check.needs_fallback():
        extension()
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    done = subprocess.run([*line, "-m", "altorch", *command], env=environment, check=False)
    return 1 if done.returncode else 0
