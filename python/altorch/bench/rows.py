# SPDX-License-Identifier: BSD-3-Clause
"""What a row says, where it was measured, JSON lines.

Every command that measures writes a row of its run first, `"benchmark": "run"`: machine, versions, command. It holds
for the rows up to the next one, and `read` adds it to them. A row of an operation has these keys; what was not measured
is left out:

benchmark                       which suite
operation, dtype, bytes         of a rank's larger buffer; "" and 0 where nothing moves
ranks, device                   cpu or cuda
contender, mode                 as `contenders` names them; sync, async or graph
calls_per_batch, batches
p10_us, median_us, max_us       of one call of the slowest rank, over batches
host_us, device_us              what the host needs to issue a call; the device alone
busbw_GBps                      bytes on the bus, of device_us where there is one, else of median_us

Other suites have contender, ranks, device and figures of their own. `altorch plot` draws files of rows.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import platform
import re
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


def mpi_in_use() -> str:
    """What the MPI library that this process has loaded calls itself; empty: there is none, or it cannot be asked."""
    from altorch import _mpi

    for row in _mpi.loaded():
        text, length = ctypes.create_string_buffer(1 << 13), ctypes.c_int()  # MPI_MAX_LIBRARY_VERSION_STRING
        try:
            library = ctypes.CDLL(str(row.path), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
            library.MPI_Get_library_version(text, ctypes.byref(length))
        except (OSError, AttributeError):
            continue
        first = re.split(r"\n|, package", text.value.decode(errors="replace"))[0]
        return " ".join(re.sub(r"version\s*:", " ", first, flags=re.IGNORECASE).split())
    return ""


def where(program: str, device: str = "cpu") -> Row:
    """The row of a run. `program`: how it was called, without its arguments."""
    return {
        "benchmark": "run",
        "machine": cpu_model(),
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
    } | (_gpus() if device == "cuda" else {})


def _gpus() -> Row:
    import torch

    return {
        "machine": torch.cuda.get_device_name(),
        "cpu": cpu_model(),
        "gpus": torch.cuda.device_count(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[attr-defined]
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
    """The rows, each with what the row of its run says."""
    found: list[Row] = []
    run: Row = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}, line {number} is no JSON: {error}") from None
        if row.get("benchmark") == "run":
            run = row
        found.append(run | row)
    return found
