# SPDX-License-Identifier: BSD-3-Clause
"""The processor that a wheel is for, which need not be that of this machine."""

from __future__ import annotations

import os
import platform
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class WheelTarget:
    """`arch`: x86_64 or aarch64, as `uname -m` says it."""

    arch: str

    @property
    def is_cross(self) -> bool:
        return self.arch != platform.machine()

    @property
    def folder(self) -> Path:
        """For what is built on the way."""
        return ROOT / "build" / "wheel" / (self.arch if self.is_cross else "")

    @property
    def compiler(self) -> str:
        return f"{self.arch}-linux-gnu-g++" if self.is_cross else os.environ.get("CXX", "c++")

    @property
    def environment(self) -> dict[str, str]:
        """For Python's and torch's side of the build: CPython's own name for the target of a cross build."""
        return {"_PYTHON_HOST_PLATFORM": f"linux-{self.arch}"} if self.is_cross else {}

    @property
    def cmake_arguments(self) -> list[str]:
        return [f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/{self.arch}.cmake"] if self.is_cross else []

    @property
    def pip_arguments(self) -> list[str]:
        """For `pip download` of a torch that runs there."""
        return ["--platform", f"manylinux_2_28_{self.arch}"] if self.is_cross else []

    def unsupported_reason(self) -> str | None:
        """Why this machine cannot build for it, and what to do."""
        if not self.is_cross:
            return None
        if not (ROOT / "cmake" / f"{self.arch}.cmake").is_file():
            return f"there is no cmake/{self.arch}.cmake, which names the compiler for {self.arch}"
        # Debian's Python has one per processor, at a path that the cross compiler does not search.
        settings = Path(sysconfig.get_path("include"), "pyconfig.h")
        if settings.is_file() and "linux-gnu" in settings.read_text():
            return f"{settings} is for this machine's processor alone; take a Python of pyenv: PYTHON=..."
        if shutil.which(self.compiler) is None:
            return f"there is no {self.compiler} (apt install g++-{self.arch.replace('_', '-')}-linux-gnu)"
        return None
