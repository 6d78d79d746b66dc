# SPDX-License-Identifier: BSD-3-Clause
"""Tables that a run writes into a page."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """System, architecture, cores and versions; no name."""
    import torch

    lines = Path("/etc/os-release").read_text().splitlines()
    system = next((line.split("=", 1)[1].strip('"') for line in lines if line.startswith("PRETTY_NAME=")), "")
    cores = len(os.sched_getaffinity(0))
    python = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{system}, {platform.machine()}, {cores} cores, {python}"


def write_between(path: Path, begin: str, end: str, text: str) -> None:
    """The whole file, or what it has between the lines `begin` and `end`."""
    before, after = "", ""
    if path.exists():
        before, _, rest = path.read_text().partition(begin)
        _, _, after = rest.partition(end)
        if not rest:
            raise SystemExit(f"{path} has no line {begin}")
    path.write_text(before + begin + text + end + after)
