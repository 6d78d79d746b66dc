# SPDX-License-Identifier: BSD-3-Clause
"""Includes point downwards, and torch's headers stay in csrc/backend and csrc/bindings.

Runs without torch and without a build: `python tests/python/test_layering.py` does too (the pre-commit hook).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

CSRC = Path(__file__).resolve().parents[2] / "csrc"

# The rooms from the bottom up: each includes rooms before it only. ARCHITECTURE.md draws the same
# picture.
ORDER = (
    "base",
    "platform",
    "rendezvous",
    "reduction",
    "device",
    "health",
    "trace",
    "transports",
    "bootstrap",
    "collectives",
    "select",
    "runtime",
    "gpu",
    "windows",
    "explain",
    "simulate",
    "c_api",
    "backend",
    "bindings",
)
# Rooms before it that a room does not know: they stand beside it.
BESIDE = {
    "device": {"reduction", "rendezvous"},
    "health": {"reduction", "device"},
    "trace": {"reduction", "device"},
    "transports": {"device", "health", "trace"},
    "bootstrap": {"reduction", "device", "health", "trace"},
    "collectives": {"bootstrap", "health", "trace", "device"},
    "select": {"bootstrap", "health", "trace", "device", "reduction", "platform"},
    "runtime": {"bootstrap", "device"},
    "gpu": {"bootstrap", "health", "trace"},
    "windows": {"bootstrap", "health", "trace"},
    "explain": {"bootstrap", "health", "trace", "windows"},
    "simulate": {"bootstrap", "health", "trace", "windows", "explain", "gpu", "device", "reduction"},
    "c_api": {"bootstrap", "explain", "simulate", "gpu", "select", "device", "collectives"},
}
MAY_INCLUDE = {room: set(ORDER[:place]) - BESIDE.get(room, set()) for place, room in enumerate(ORDER)}
# The files above transports that name one, because they make it or describe what it would do.
NAMES_A_TRANSPORT = {
    "backend/c10d/backend.cpp": {"loopback"},  # a group of one rank
    "backend/store/start_mpi.cpp": {"mpi", "shm"},
    "bindings/module.cpp": {"shm"},
    "bootstrap/bootstrap.h": {"mpi"},
    "bootstrap/launcher.h": {"mpi"},
    "c_api/join.cpp": {"loopback", "shm"},
    "explain/on_host.cpp": {"shm"},
    "runtime/host_world.cpp": {"mpi", "shm"},
    "windows/rows.cpp": {"shm"},
}
TORCH_ALLOWED = {"backend", "bindings"}
TORCH = re.compile(r"^(torch|ATen|c10|caffe2|pybind11)/|^Python\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SUFFIXES = {".h", ".hpp", ".inc", ".c", ".cc", ".cpp", ".cu", ".cuh"}


def sources() -> list[Path]:
    return sorted(path for path in CSRC.rglob("*") if path.suffix in SUFFIXES)


def violations(path: Path) -> list[str]:
    layer = path.relative_to(CSRC).parts[0]
    found = []
    for quote, header in INCLUDE.findall(path.read_text()):
        where = f"{path.relative_to(CSRC.parent)} includes {header}"
        if TORCH.match(header) and layer not in TORCH_ALLOWED:
            found.append(f"{where}: torch's headers belong to {' and '.join(sorted(TORCH_ALLOWED))}")
        if quote == "<" or "/" not in header:
            continue  # a system header, or a file of the same folder
        target = header.split("/", 1)[0]
        if target in MAY_INCLUDE and target != layer and target not in MAY_INCLUDE[layer]:
            found.append(f"{where}: {layer} stands below or beside {target}")
        if header.startswith("../"):
            found.append(f"{where}: paths are relative to csrc/")
    return found


def test_every_folder_is_a_known_layer() -> None:
    folders = {path.name for path in CSRC.iterdir() if path.is_dir()}
    assert folders <= set(MAY_INCLUDE), (
        f"say in MAY_INCLUDE what these may include: {folders - set(MAY_INCLUDE)}"
    )


def test_no_other_file_names_a_transport() -> None:
    named: dict[str, set[str]] = {}
    for path in sources():
        where = str(path.relative_to(CSRC))
        for transport in re.findall(r'#include "transports/(\w+)/', path.read_text()):
            if not where.startswith("transports/"):
                named.setdefault(where, set()).add(transport)
    assert named == NAMES_A_TRANSPORT


def test_no_folder_is_too_large() -> None:
    """A folder has one subject: at most 40 files."""
    counts = Counter(path.parent for path in CSRC.rglob("*") if path.is_file())
    assert {str(folder): count for folder, count in counts.items() if count > 40} == {}


def test_includes_point_downwards() -> None:
    files = sources()
    assert len(files) > 20, f"only {len(files)} sources under {CSRC}: is this the whole tree?"
    assert (wrong := [text for path in files for text in violations(path)]) == [], "\n".join(wrong)


def test_a_violation_is_noticed(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "base").mkdir()
    bad = tmp_path / "base" / "bad.h"
    bad.write_text('#include <torch/torch.h>\n#include "runtime/group.h"\n#include "base/error.h"\n')
    monkeypatch.setattr(sys.modules[__name__], "CSRC", tmp_path)
    assert len(violations(bad)) == 2


if __name__ == "__main__":
    wrong = [text for path in sources() for text in violations(path)]
    print("\n".join(wrong))
    sys.exit(bool(wrong))
