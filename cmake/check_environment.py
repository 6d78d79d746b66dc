# SPDX-License-Identifier: BSD-3-Clause
"""Offline (USE_SYSTEM=1): lets a new environment see this Python's packages and tools, and says what these lack."""

from __future__ import annotations

import importlib.util
import shutil
import site
import sys
import sysconfig
from pathlib import Path

import locate

NEEDED = {
    "setuptools": "setuptools (needed to install)",
    "pip": "pip (needed to install)",
    "numpy": "numpy (needed by the tests)",
    "rich": "rich (needed by the command line and the demo)",
    "sklearn": "scikit-learn (needed by the demo)",
    "pytest": "pytest (needed by the tests)",
    "xdist": "pytest-xdist (needed by the tests)",
}


def main(environment: Path) -> int:
    missing = [text for module, text in NEEDED.items() if importlib.util.find_spec(module) is None]
    try:
        torch = locate.find_torch()
        print(f"Using torch {torch['version']} in {torch['folder']}")
    except locate.NotFound as problem:
        print(f"altorch: {problem}", file=sys.stderr)
        return 1
    for tool, package in (("cmake", "cmake"), ("ninja", "ninja-build")):
        beside = shutil.which(tool, path=sysconfig.get_path("scripts"))
        link = environment / "bin" / tool
        if beside and not link.exists():
            link.symlink_to(beside)
        elif not beside and not shutil.which(tool):
            missing.append(f"{tool} (the package {package}, or the wheel {tool})")
    folders = dict.fromkeys([*site.getsitepackages(), site.getusersitepackages()])
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (environment / "lib" / python / "site-packages" / "packages-of-python.pth").write_text(
        "".join(f"{folder}\n" for folder in folders if Path(folder).is_dir())
    )
    for text in missing:
        print(
            f"altorch: this environment lacks {text}; install it, or run make without USE_SYSTEM.",
            file=sys.stderr,
        )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
