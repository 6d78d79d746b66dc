# SPDX-License-Identifier: BSD-3-Clause
"""`altorch info`: versions, routes with the reason where one is closed, launcher, settings.

It must say something useful on every machine, also where the extension cannot be loaded: so each part is gathered on
its own, and a part that fails reports its failure.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from altorch import _serve, _version_check
from altorch._extension import extension
from altorch._version import __version__
from altorch.cli import _fabric
from altorch.cli._output import human_bytes, print_json, print_pairs, print_table

SUMMARY = "Versions, each route (open, or why not), the network that MPI takes, launcher, settings."

# Asked of the library itself, in a process of its own: loading an MPI has side effects. MPI allows
# this call at any time, before MPI_Init too.
LIBRARY_VERSION = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
text, length = ctypes.create_string_buffer(16384), ctypes.c_int()
library.MPI_Get_library_version(text, ctypes.byref(length))
print(text.value.decode(errors="replace").splitlines()[0].strip())
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--settings", action="store_true", help="list every ALTORCH_* setting, not only those in use"
    )
    parser.add_argument(
        "--fabric",
        action="store_true",
        help="only the network that MPI takes between nodes, with all that MPI, UCX and libfabric print",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.fabric:
        return _run_fabric(arguments.json)
    document = {
        "versions": _guarded(_versions),
        "routes": _guarded(_routes),
        "windows": _guarded(_windows),
        "mpi_considered": _guarded(_mpi_considered),
        "fabric": _guarded(_fabric.of_this_process),
        "launcher": _guarded(_launcher),
        "machine": _guarded(_machine),
        "settings": _guarded(_settings),
    }
    if arguments.json:
        print_json(document)
        return 0
    _print(document, arguments.settings)
    return 0


def _run_fabric(as_json: bool) -> int:
    found = _fabric.of_this_process()
    if as_json:
        print_json(found)
    else:
        _fabric.print_fabric(found, with_output=True)
    return 0


def _guarded(gather: Callable[[], Any]) -> Any:
    try:
        return gather()
    except Exception as error:
        return {"unavailable": f"{error}"}


def _versions() -> dict[str, str]:
    found = {
        "altorch": f"{__version__} in {Path(__file__).parent.parent}",
        "python": platform.python_version(),
    }
    try:
        import torch

        found["torch"] = f"{torch.__version__} in {Path(torch.__file__).parent}"
    except ImportError as error:
        found["torch"] = f"cannot be imported: {error}"
    try:
        from altorch import _build_info as build

        minors = ", ".join(_version_check.minors())
        found["built for"] = f"torch {minors}, with {build.compiler}"
    except ImportError:
        found["built for"] = "not built"
    found["extension"] = extension_problem() or f"loads: {extension().__file__}"
    if _groups_are_in_python():
        found["groups"] = "are made in Python: CPU tensors on one node"
    return found


def _groups_are_in_python() -> bool:
    try:
        return _version_check.needs_fallback()
    except ImportError:  # no torch
        return False


def extension_problem() -> str | None:
    try:
        extension()
    except ImportError as error:
        return str(error)
    return None


def _routes() -> list[dict[str, Any]]:
    """One row per way to move tensors: name, whether it is open here, and the reason."""
    problem = extension_problem()
    rows = [_shared_memory_route(problem)]
    try:
        if problem:
            rows.append({"name": "mpi", "viable": False, "reason": "the extension does not load"})
        else:
            rows.append(_mpi_route())
    except Exception as error:
        rows.append({"name": "mpi", "viable": False, "reason": str(error)})
    try:
        import torch.distributed as dist

        gloo = dist.is_available() and dist.is_gloo_available()
        reason = (
            "torch's own; carries CPU tensors between nodes when there is no MPI"
            if gloo
            else "this torch was built without Gloo"
        )
    except ImportError as error:
        gloo, reason = False, str(error)
    if gloo and problem:
        gloo, reason = False, "the extension does not load"
    rows.append({"name": "gloo", "viable": gloo, "reason": reason})
    return rows + _cuda_routes(problem)


def _shared_memory_route(problem: str | None) -> dict[str, Any]:
    if problem:
        if _groups_are_in_python():
            return {"name": "shm", "viable": True, "reason": "carries the groups that are made in Python"}
        return {"name": "shm", "viable": False, "reason": "the extension does not load"}
    unsupported_reason = extension().shared_memory_unsupported_reason(2)
    reason = "memory that the ranks of a node share; a group of one node needs nothing else"
    return {"name": "shm", "viable": not unsupported_reason, "reason": unsupported_reason or reason}


def _cuda_routes(problem: str | None) -> list[dict[str, Any]]:
    """The routes of CUDA tensors, as the first GPU sees them."""
    serves = {
        "alone": "CUDA tensors of a group of one rank",
        "nccl": "CUDA tensors, where every rank has a GPU of its own",
        "peer": "CUDA tensors, where the GPUs of a node can map each other's memory",
        "host_staged": "CUDA tensors, where the ranks are on one node",
        "hierarchical": "CUDA tensors of several nodes, by the routes above",
        "host_relay": "CUDA tensors, anywhere",
    }
    closed = "the extension does not load" if problem else ""
    if not closed:
        import torch

        closed = "" if torch.cuda.is_available() else "torch sees no GPU"
    if closed:
        return [{"name": name, "viable": False, "reason": closed} for name in serves]
    unsupported_reasons = extension().gpu_routes(0)
    return [
        {"name": name, "viable": not unsupported_reasons[name], "reason": unsupported_reasons[name] or reason}
        for name, reason in serves.items()
    ]


def _mpi_route() -> dict[str, Any]:
    from altorch import _mpi

    choice = _mpi.find()
    if not choice.path:
        return {"name": "mpi", "viable": False, "reason": choice.reason}
    asked = subprocess.run(
        [sys.executable, "-c", LIBRARY_VERSION, choice.path],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if asked.returncode != 0:
        lines = asked.stderr.strip().splitlines() or [f"it ended with code {asked.returncode}"]
        return {"name": "mpi", "viable": False, "reason": f"{choice.path} cannot be loaded: {lines[-1]}"}
    reason = f"{' '.join(asked.stdout.split())}: {choice.path} ({choice.reason})"
    return {"name": "mpi", "viable": True, "reason": reason, "library": choice.path, "shims": _shims()}


def _shims() -> list[str]:
    from altorch._backend import shim_directory

    return sorted(path.name for path in Path(shim_directory()).glob("*.so"))


def _mpi_considered() -> list[dict[str, str]]:
    from altorch import _mpi

    return [
        {"path": str(row.path or ""), "family": str(row.family or ""), "reason": row.reason}
        for row in _mpi.considered()
    ]


def _launcher() -> dict[str, str]:
    from altorch import _launcher, _mpi

    found = _launcher.detect()
    return {
        "MPI started without one": _mpi.own_starts(),
        "started by": found.name,
        "rank": "" if found.rank is None else str(found.rank),
        "ranks": "" if found.size is None else str(found.size),
        "ranks on this node": "" if found.local_size is None else str(found.local_size),
    }


def _machine() -> dict[str, str]:
    found = {"host": platform.node(), "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"}
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    if nodes > 1:
        found["NUMA nodes"] = f"{nodes}; bind ranks to cores, so that their memory is local"
    try:
        space = shutil.disk_usage("/dev/shm")
        found["/dev/shm"] = f"{human_bytes(space.free)} free of {human_bytes(space.total)}"
    except OSError as error:
        found["/dev/shm"] = f"not usable: {error.strerror}"
    import altorch_hooks

    found['devices of "al"'] = ", ".join(altorch_hooks.devices())
    found["served names"] = ", ".join(["al", *_serve.served()])
    return found


def _windows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = extension().window_routes()
    return rows


def _settings() -> list[dict[str, str]]:
    return [dict(row) for row in extension().settings()]


def _print_routes(title: str, routes: Any) -> None:
    """`routes`: rows, or what went wrong."""
    if isinstance(routes, dict):
        print_pairs(title, routes)
        return
    print_table(
        title,
        ["route", "open", "what or why not"],
        [[row["name"], row["viable"], row["reason"]] for row in routes],
    )


def _print(document: dict[str, Any], all_settings: bool) -> None:
    print_pairs("Versions", document["versions"])
    _print_routes("Routes", document["routes"])
    _print_routes("Windows", document["windows"])
    considered = document["mpi_considered"]
    if isinstance(considered, dict):
        print_pairs("MPI libraries looked at", considered)
    elif considered:
        print_table(
            "MPI libraries looked at",
            ["library", "family", "result"],
            [[row["path"], row["family"], row["reason"]] for row in considered],
        )
    if "unavailable" in document["fabric"]:
        print_pairs("Fabric", document["fabric"])
    else:
        _fabric.print_fabric(document["fabric"])
    print_pairs("Launcher", document["launcher"])
    print_pairs("Machine", document["machine"])
    _print_settings(document["settings"], all_settings)


def _print_settings(settings: Any, all_settings: bool) -> None:
    if isinstance(settings, dict):
        print_pairs("Settings", settings)
        return
    shown = [row for row in settings if all_settings or os.environ.get(row["name"])]
    if shown:
        print_table(
            "Settings",
            ["name", "value", "default", "meaning"],
            [[row["name"], row["value"], row["default"], row["meaning"]] for row in shown],
        )
    else:
        print(f"Settings: all {len(settings)} at their defaults (list them with --settings)")
    known = {row["name"] for row in settings}
    unknown = sorted(name for name in os.environ if name.startswith("ALTORCH_") and name not in known)
    if unknown:
        print(f"In the environment, but no setting of altorch: {', '.join(unknown)}")
