# SPDX-License-Identifier: BSD-3-Clause
"""Builds altorch by calling CMake; everything static stands in pyproject.toml.

A wheel is built in build/<python>-torch<minor>/, an editable install in build/dev/ with its results in
python/altorch/. CMAKE_ARGS is passed on, CMAKE_BUILD_PARALLEL_LEVEL limits the jobs. ALTORCH_PREBUILT names a folder
with compiled parts for several torch minors (`make wheel`), which are packed as they are.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "cmake"))
import fetch_openmpi_headers  # noqa: E402
import locate  # noqa: E402


def served_minors() -> list[tuple[int, int]]:
    """The torch minors that what is built here serves; of sources and metadata: those it can be built for."""
    if PREBUILT:
        names = [folder.name.removeprefix("torch") for folder in (PREBUILT / "lib").glob("torch*")]
        return sorted((int(major), int(minor)) for major, minor in (name.split(".") for name in names))
    if TORCH:
        major, minor = str(TORCH["minor"]).split(".")
        return [(int(major), int(minor))]
    return [locate.OLDEST_TORCH, locate.NEWEST_TORCH]


def run_time_dependencies() -> list[str]:
    """pip keeps a torch that is served, a development version of it too, and otherwise says what is wanted."""
    (major, oldest), (_, newest) = served_minors()[0], served_minors()[-1]
    return [f"torch>={major}.{oldest}.dev0,<{major}.{newest + 1}", "rich>=13"]


def find_tool(name: str, remedy: str) -> str:
    """CMake and ninja come as wheels: beside this Python even when its folder is not on PATH."""
    found = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
    if found is None:
        raise SystemExit(f"altorch's build needs {name}, and it is not on PATH. {remedy}")
    return found


class CMakeBuild(build_ext):
    """One "extension" that stands for everything CMake makes."""

    def run(self) -> None:
        if PREBUILT:
            shutil.copytree(PREBUILT, Path(self.build_lib).resolve() / "altorch", dirs_exist_ok=True)
            return
        try:
            torch = locate.find_torch()
            locate.find_python_headers()
        except locate.NotFound as missing:
            raise SystemExit(f"\n{missing}\n") from None
        cmake = find_tool("cmake", "Install it: pip install cmake, or the package cmake.")
        ninja = find_tool("ninja", "Install it: pip install ninja, or the package ninja-build.")

        if self.inplace:
            package, build = ROOT / "python" / "altorch", ROOT / "build" / "dev"
        else:
            package = Path(self.build_lib).resolve() / "altorch"
            build = ROOT / BUILD_BASE / "cmake"
        build.mkdir(parents=True, exist_ok=True)
        arguments = [
            f"-DPython_EXECUTABLE={sys.executable}",
            *("-DALTORCH_EXTENSION=ON", "-DALTORCH_SHIMS=ON"),
            f"-DALTORCH_PACKAGE_DIR={package}",
            f"-DALTORCH_OUTPUT_DIR={package / 'lib'}",
            # Named anew each time: an isolated build's tools lie in a folder that is gone the next
            # time.
            f"-DCMAKE_MAKE_PROGRAM={ninja}",
        ]
        if not self.inplace:
            arguments.append("-DALTORCH_TESTS=OFF")
        headers = fetch_openmpi_headers.fetch(ROOT / "build" / "openmpi-headers")
        if headers:
            arguments.append(f"-DALTORCH_OPENMPI_INCLUDE={headers}")
        arguments += shlex.split(os.environ.get("CMAKE_ARGS", ""))
        environment = dict(os.environ, ALTORCH_BUILD_TORCH=str(torch["folder"]))
        environment.setdefault("NINJA_STATUS", "[%f/%t, %e s] ")
        if "CMAKE_BUILD_PARALLEL_LEVEL" not in environment:
            environment["CMAKE_BUILD_PARALLEL_LEVEL"] = str(len(os.sched_getaffinity(0)))
        for command in (
            [cmake, "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *arguments],
            [cmake, "--build", str(build)],
        ):
            if subprocess.run(command, env=environment, check=False).returncode != 0:
                raise SystemExit("altorch's build failed; the reason stands above.")

    def get_outputs(self) -> list[str]:
        return []  # CMake knows; nothing here is copied after the fact

    def get_source_files(self) -> list[str]:
        return []


PREBUILT = Path(os.environ["ALTORCH_PREBUILT"]).resolve() if "ALTORCH_PREBUILT" in os.environ else None
try:
    TORCH: dict[str, object] | None = locate.find_torch()
except locate.NotFound:
    TORCH = None  # metadata and source distributions need none; build_ext says what is missing

TAG = f"{sys.implementation.cache_tag}-torch{'s' if PREBUILT else TORCH['minor'] if TORCH else 'none'}"
BUILD_BASE = f"build/{TAG}"

setup(
    ext_modules=[Extension("altorch._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    install_requires=run_time_dependencies(),
    options={"build": {"build_base": BUILD_BASE}},
)
