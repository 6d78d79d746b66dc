# SPDX-License-Identifier: BSD-3-Clause
"""Includes point downwards, and torch's headers stay in csrc/backend and csrc/bindings.

Runs without torch and without a build: `python tests/python/test_layering.py` does too (the pre-commit hook).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CSRC = Path(__file__).resolve().parents[2] / "csrc"

# What each layer may include, itself apart. ARCHITECTURE.md draws the same picture.
_LOWEST = {"base", "platform", "rendezvous"}
_MIDDLE = _LOWEST | {"transports", "bootstrap", "observe", "reduction", "device"}
MAY_INCLUDE = {
    "base": set(),
    "platform": {"base"},
    "rendezvous": {"base", "platform"},
    "reduction": _LOWEST,
    "device": _LOWEST,
    "observe": _LOWEST,
    "transports": _LOWEST | {"reduction", "device"},
    "bootstrap": _LOWEST | {"transports"},  # it starts MPI and hands it out
    "collectives": _MIDDLE,
    "engine": _MIDDLE | {"collectives"},
    "backend": _MIDDLE | {"collectives", "engine"},
    "bindings": _MIDDLE | {"collectives", "engine", "backend"},
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


def test_layers_have_no_circle() -> None:
    for layer, below in MAY_INCLUDE.items():
        for other in below:
            assert layer not in MAY_INCLUDE[other], f"{layer} and {other} may include each other"


def test_includes_point_downwards() -> None:
    files = sources()
    assert len(files) > 20, f"only {len(files)} sources under {CSRC}: is this the whole tree?"
    assert (wrong := [text for path in files for text in violations(path)]) == [], "\n".join(wrong)


def test_a_violation_is_noticed(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "base").mkdir()
    bad = tmp_path / "base" / "bad.h"
    bad.write_text('#include <torch/torch.h>\n#include "engine/operation.h"\n#include "base/error.h"\n')
    monkeypatch.setattr(sys.modules[__name__], "CSRC", tmp_path)
    assert len(violations(bad)) == 2


if __name__ == "__main__":
    wrong = [text for path in sources() for text in violations(path)]
    print("\n".join(wrong))
    sys.exit(bool(wrong))
