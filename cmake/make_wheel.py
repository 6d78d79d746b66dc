# SPDX-License-Identifier: BSD-3-Clause
"""`make wheel`: one wheel for this Python, with the engine once and the torch-facing extension once per torch minor.

Headers and libraries of each torch come out of its own wheel (`pip download`), one torch at a time; torch itself is
never installed or imported. Finished steps are skipped: a stopped build continues where it stopped. The wheel gets the
oldest manylinux tag that auditwheel confirms. `ARCH=aarch64` builds it on another machine, for 64-bit Arm.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import fetch_openmpi_headers
import locate
from wheel_target import ROOT, WheelTarget

TOOLS = ROOT / "cmake" / "wheel_tools.txt"
PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
# What a torch wheel holds that a build needs.
TORCH_FILES = ("torch/include/", "torch/version.py", "torch/_C.", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so",
            "torch/lib/libtorch_python.so")  # fmt: skip
MAX_WHEEL_BYTES = 40 << 20
OLDEST_GLIBC = (2, 28)  # what torch's own wheels need
began = time.monotonic()


def say(text: str) -> None:
    print(f"make wheel [{time.monotonic() - began:4.0f} s]: {text}", flush=True)


def call(command: list[str], log: Path | None = None, **environment: str) -> None:
    """Runs `command`; where it fails, the end of its log and its exit code end this program."""
    with (log or Path(os.devnull)).open("ab") as out:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=out if log else None,
            stderr=subprocess.STDOUT if log else None,
            check=False,
        )
    if done.returncode:
        if log:
            print("\n".join(log.read_text(errors="replace").splitlines()[-40:]), file=sys.stderr)
        raise SystemExit(f"make wheel: failed with exit code {done.returncode}: {shlex.join(command)}")


def tools() -> Path:
    """Makes the environment with what wheel_tools.txt lists, without torch, and returns its bin/."""
    folder = ROOT / "build" / "wheel" / f"tools-{PYTHON}"
    ready = folder / ".ready"
    wanted = f"{sys.base_prefix}\n{TOOLS.read_text()}"
    if not ready.is_file() or ready.read_text() != wanted:
        say(f"installing the tools of {TOOLS.relative_to(ROOT)}")
        venv.create(folder, with_pip=True, clear=True)
        call([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--requirement", str(TOOLS)])
        ready.write_text(wanted)
    return folder / "bin"


def compiler_version(target: WheelTarget) -> str:
    asked = subprocess.run([target.compiler, "--version"], capture_output=True, text=True, check=True)
    return asked.stdout


def sources_digest(target: WheelTarget) -> str:
    """Of everything that the compiler of an extension sees, and of this compiler."""
    digest = hashlib.sha256()
    digest.update((compiler_version(target) + os.environ.get("CMAKE_ARGS", "")).encode())
    cmake_files = ("Extension.cmake", "Python.cmake", "Settings.cmake", "exports.map", "manylinux.cpp")
    seen = [ROOT / "CMakeLists.txt", *(ROOT / "cmake" / name for name in cmake_files)]
    for room in (ROOT / "csrc").iterdir():
        pattern = "*" if room.name in ("backend", "bindings") else "*.h"  # the engine is built by itself
        seen += [path for path in room.rglob(pattern) if path.is_file() and room.name != "c_api"]
    for path in sorted(seen):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def cmake(
    target: WheelTarget,
    folder: Path,
    bin_directory: Path,
    *arguments: str,
    torch: Path | None = None,
    build: str = "all",
) -> None:
    environment = {"PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}", **target.environment}
    if torch:
        environment["ALTORCH_BUILD_TORCH"] = str(torch)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    configure = [
        str(bin_directory / "cmake"),
        *("-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DALTORCH_TESTS=OFF", "-DALTORCH_MANYLINUX=ON"),
        f"-DPython_EXECUTABLE={bin_directory / 'python'}",
        *target.cmake_arguments,
        *arguments,
        *shlex.split(os.environ.get("CMAKE_ARGS", "")),
    ]
    call(configure, log, **environment)
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    command = [str(bin_directory / "cmake"), "--build", str(folder), "--target", build, "--parallel", jobs]
    call(command, log, **environment)


def kernels_ahead(target: WheelTarget, bin_directory: Path) -> list[str]:
    """What tells CMake to take GPU kernels along that are compiled already. They are alike for every processor."""
    if not (shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()):
        say("there is no nvcc: GPU kernels will be compiled when they are first needed, on the GPU's machine")
        return ["-DALTORCH_AHEAD=OFF"]
    if not target.is_cross:
        return ["-DALTORCH_AHEAD=ON"]
    here = WheelTarget(platform.machine())
    folder = here.folder / "kernels"
    settings = ("-DALTORCH_EXTENSION=OFF", "-DALTORCH_SHIMS=OFF", "-DALTORCH_AHEAD=ON")
    cmake(here, folder, bin_directory, *settings, build="altorch_fatbin")
    if not (folder / "kernels_ahead.fatbin").is_file():
        say(
            f"nvcc compiles no GPU kernels here ({folder / 'build.log'} says why): the GPU's machine will do it"
        )
        return ["-DALTORCH_AHEAD=OFF"]
    return ["-DALTORCH_AHEAD=ON", f"-DALTORCH_FATBIN={folder / 'kernels_ahead.fatbin'}"]


def build_engine(target: WheelTarget, bin_directory: Path, package: Path) -> Path:
    """The engine and the libraries beside it: once for every Python."""
    folder = target.folder / "engine"
    headers = fetch_openmpi_headers.fetch(ROOT / "build" / "openmpi-headers")
    output = folder / "package"
    cmake(
        target,
        folder,
        bin_directory,
        *("-DALTORCH_EXTENSION=OFF", "-DALTORCH_SHIMS=ON"),
        *kernels_ahead(target, bin_directory),
        f"-DALTORCH_PACKAGE_DIR={output}",
        f"-DALTORCH_OUTPUT_DIR={output / 'lib'}",
        *([f"-DALTORCH_OPENMPI_INCLUDE={headers}"] if headers else []),
    )
    shutil.copytree(output, package, dirs_exist_ok=True)
    return package / "lib" / "libaltorch_engine.so"


def torchs_of(target: WheelTarget, minors: list[str], bin_directory: Path) -> list[str]:
    """Those of which this Python has a torch. All where the index cannot be asked: the download will say."""
    command = [str(bin_directory / "python"), "-m", "pip", "index", "versions", "torch"]
    platform_ = ["--only-binary=:all:", *target.pip_arguments] if target.is_cross else []
    asked = subprocess.run([*command, *platform_], capture_output=True, text=True, check=False)
    if asked.returncode:
        return minors
    return [minor for minor in minors if re.search(rf"\b{re.escape(minor)}\.\d", asked.stdout)]


def unpack_torch(target: WheelTarget, minor: str, into: Path, bin_directory: Path) -> Path:
    """Headers and libraries of the newest torch of this minor, out of its wheel."""
    scratch = into.with_name(into.name + ".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    command = [
        str(bin_directory / "python"),
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        *target.pip_arguments,
    ]
    call([*command, "--disable-pip-version-check", "--dest", str(scratch), f"torch=={minor}.*"])
    (wheel,) = scratch.glob("torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch, [name for name in archive.namelist() if name.startswith(TORCH_FILES)])
    wheel.unlink()
    shutil.rmtree(into, ignore_errors=True)
    scratch.rename(into)
    return into / "torch"


def build_extension(
    target: WheelTarget, minor: str, bin_directory: Path, package: Path, engine: Path, digest: str, keep: bool
) -> None:
    folder = target.folder / f"{PYTHON}-torch{minor}"
    done, made = folder / "digest", package / "lib" / f"torch{minor}"
    if done.is_file() and done.read_text() == digest and made.is_dir():
        return say(f"torch {minor}: built before")
    done.unlink(missing_ok=True)
    say(f"torch {minor}: fetching its wheel (about 550 MB, from pip's cache where it is)")
    folder.mkdir(parents=True, exist_ok=True)
    torch = unpack_torch(target, minor, folder / "unpacked", bin_directory)
    say(f"torch {minor}: compiling")
    cmake(
        target,
        folder,
        bin_directory,
        *("-DALTORCH_EXTENSION=ON", "-DALTORCH_SHIMS=OFF", f"-DALTORCH_ENGINE={engine}"),
        f"-DALTORCH_PACKAGE_DIR={package}",
        f"-DALTORCH_OUTPUT_DIR={package / 'lib'}",
        torch=torch,
    )
    if not keep:
        shutil.rmtree(torch.parent)
    done.write_text(digest)


def pack(target: WheelTarget, bin_directory: Path, package: Path, out: Path) -> Path:
    raw = target.folder / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    shutil.rmtree(ROOT / "build" / f"{sys.implementation.cache_tag}-torchs", ignore_errors=True)
    log = target.folder / "pack.log"
    log.unlink(missing_ok=True)
    path = f"{bin_directory}{os.pathsep}{os.environ['PATH']}"
    built = {"PATH": path, "SOURCE_DATE_EPOCH": source_date(), **target.environment}
    command = [str(bin_directory / "python"), "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    call([*command, "--wheel-dir", str(raw), str(ROOT)], log, ALTORCH_PREBUILT=str(package), **built)
    (wheel,) = raw.glob("*.whl")
    ours = ["--exclude", "libaltorch_engine.so"]  # beside what needs it already
    theirs = [
        word
        for name in ("libc10.so", "libtorch_cpu.so", "libtorch_python.so")
        for word in ("--exclude", name)
    ]
    command = [str(bin_directory / "python"), "-m", "auditwheel", "repair", "--plat", "auto", *ours, *theirs]
    fresh = target.folder / "repaired"
    shutil.rmtree(fresh, ignore_errors=True)
    call([*command, "--wheel-dir", str(fresh), str(wheel)], log, **built)
    (made,) = fresh.glob("*.whl")
    for former in out.glob(f"altorch-*-{PYTHON}-*{target.arch}*"):
        former.unlink()
    return Path(shutil.move(made, out / made.name))


def source_date() -> str:
    """When the sources were last changed, so that two builds of them are the same."""
    asked = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return os.environ.get("SOURCE_DATE_EPOCH") or asked.stdout.strip() or "315532800"


def bill_of_materials(target: WheelTarget, wheel: Path, minors: list[str]) -> dict[str, object]:
    """CycloneDX: the wheel, its hash and compiler, and the torchs it serves. It holds altorch's own code only."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    name, version = wheel.name.split("-")[:2]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {
            "component": {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "licenses": [{"license": {"id": "BSD-3-Clause"}}],
            },
            "tools": [{"name": "compiler", "version": compiler_version(target).splitlines()[0]}],
        },
        "components": [
            {
                "type": "library",
                "name": "torch",
                "version": f"{minor}.*",
                "scope": "optional",
                "purl": "pkg:pypi/torch",
            }
            for minor in minors
        ],
    }


def served_torchs() -> list[str]:
    major, newest = locate.NEWEST_TORCH
    return [f"{major}.{minor}" for minor in range(locate.OLDEST_TORCH[1], newest + 1)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make wheel", description=__doc__)
    every = served_torchs()
    parser.add_argument(
        "--torchs",
        default="",
        help=f"torch minors, comma-separated (default: those of {', '.join(every)} that this Python has)",
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="where the wheel goes (default: dist/)"
    )
    parser.add_argument(
        "--arch", default=platform.machine(), help="x86_64 or aarch64 (default: %(default)s, this machine's)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep each torch's headers and libraries (0.7 GB each)"
    )
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    minors = [minor.strip() for minor in chosen.torchs.split(",") if minor.strip()]
    target = WheelTarget(chosen.arch)
    if reason := target.unsupported_reason():
        raise SystemExit(f"make wheel: {reason}")
    chosen.out.mkdir(parents=True, exist_ok=True)
    bin_directory = tools()
    digest = sources_digest(target)
    package = target.folder / PYTHON
    if not minors:
        minors = torchs_of(target, served_torchs(), bin_directory)
        if not minors:
            raise SystemExit(f"make wheel: there is no torch of {', '.join(served_torchs())} for this Python")
        say(f"for torch {', '.join(minors)}, as far as there is one for Python {platform.python_version()}")
    for former in (package / "lib").glob("torch*"):
        if former.name.removeprefix("torch") not in minors:
            shutil.rmtree(former)
    say("compiling the engine")
    engine = build_engine(target, bin_directory, package)
    for minor in minors:
        build_extension(target, minor, bin_directory, package, engine, digest, chosen.keep)
    wheel = pack(target, bin_directory, package, chosen.out)
    listing = wheel.with_suffix(".cdx.json")
    listing.write_text(json.dumps(bill_of_materials(target, wheel, minors), indent=1) + "\n")
    size = wheel.stat().st_size
    say(f"{wheel} ({size / 1e6:.1f} MB) for torch {', '.join(minors)} and Python {platform.python_version()}")
    say(f"sha256 {hashlib.sha256(wheel.read_bytes()).hexdigest()}; CycloneDX: {listing.name}")
    tag = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    if tag is None or (int(tag[1]), int(tag[2])) > OLDEST_GLIBC:
        raise SystemExit(
            f"make wheel: {wheel.name} needs more than glibc {OLDEST_GLIBC[0]}.{OLDEST_GLIBC[1]}; add what "
            "`auditwheel show` names to cmake/manylinux.cpp"
        )
    if size > MAX_WHEEL_BYTES:
        raise SystemExit(
            f"make wheel: more than the {MAX_WHEEL_BYTES >> 20} MiB that a wheel of altorch may have"
        )


if __name__ == "__main__":
    main()
