"""What a row says, where it was measured, JSON lines.

The first row of a run has `"benchmark": "run"` and names machine, versions and command; the others have an operation, a
size in bytes, a number of ranks, a contender and times in microseconds. `altorch plot` draws files of them.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def where(program: str) -> Row:
    """The row that stands first in every file of results. `program`: how it was called, without its arguments."""
    return {
        "benchmark": "run",
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "altorch": version_of("altorch"),
        "mpich": version_of("mpich"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join([program, *(portable(word) for word in sys.argv[1:])]),
    }


def portable(word: str) -> str:
    """Paths as they are from here, so that the command means something on another machine."""
    path = Path(word)
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else word


def append(file: Path | None, rows: Iterable[Row]) -> None:
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:
        for row in rows:
            stream.write(json.dumps(row) + "\n")


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]
