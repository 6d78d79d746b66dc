# SPDX-License-Identifier: BSD-3-Clause
"""altorch under the names of torch's own backends: groups that a program makes with "gloo", "nccl" or "mpi".

`ALTORCH_SERVES=gloo,nccl` does it at `import torch`, in every process that inherits the variable, and `serve("gloo")`
in this one. The group keeps the name that was asked for: get_backend(), profiler events and torch's records show it.
torch 2.14 and later make each backend through a table of creators, which we change. Older ones: _serve_by_alias.py.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any

NAMES = ("gloo", "nccl", "mpi")
_HINT = "a rank without ALTORCH_SERVES or altorch.serve() makes torch's own group, which never meets this one"
_served: list[str] = []
_announced: set[str] = set()
_mpi_store: Any = None  # torch makes groups of "mpi" without a store


def served() -> list[str]:
    """The names that this process serves."""
    return list(_served)


def serve(*names: str) -> None:
    """Makes altorch create all later groups of backend "gloo", "nccl" or "mpi" (`names`).

    The same on all ranks, before their first group of that name: a group that exists keeps its backend, so RuntimeError
    is raised where there is one. ValueError: a name that altorch does not serve. RuntimeError too where this torch or
    machine cannot have it: "nccl" needs a GPU. Calling it again changes nothing. Thread rules: one thread.
    """
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"altorch.serve takes names, not a {type(name).__name__}: altorch.serve('gloo', 'nccl')"
            )
        if (why := unsupported_reason(name)) is not None:
            kind = ValueError if name.lower() not in NAMES else RuntimeError
            raise kind(f"altorch.serve: {why}")
    for name in names:
        _replace_creator(name.lower())


def serve_environment() -> None:
    """What ALTORCH_SERVES asks for, at `import torch`: a name that cannot be served is a warning, and not served."""
    for name in filter(None, (part.strip() for part in os.environ["ALTORCH_SERVES"].split(","))):
        if (why := unsupported_reason(name)) is not None:
            warnings.warn(f"ALTORCH_SERVES: {why}", RuntimeWarning, stacklevel=2)
        else:
            _replace_creator(name.lower())


def unsupported_reason(name: str) -> str | None:
    """Why groups of this name cannot be served, as a sentence; None when they can."""
    import altorch_hooks
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    from altorch import _version_check

    lower = name.lower()
    if lower not in NAMES:
        return f"'{name}' is no backend that altorch can stand in for; it serves {', '.join(NAMES)}"
    if lower in _served:
        return None
    if not dist.is_available():
        return f"this torch was built without torch.distributed, so there is no backend '{lower}'"
    if lower == "nccl" and "cuda" not in altorch_hooks.devices():
        return "'nccl' is for CUDA tensors, and no GPU is visible here (/dev/nvidiactl, CUDA_VISIBLE_DEVICES)"
    if lower == "nccl" and _version_check.needs_fallback():
        return "'nccl' is for CUDA tensors, and altorch has no extension for this torch, which they need"
    if lower == "mpi" and _plugin(lower) is None:
        return (
            f"torch {torch.__version__} makes groups of 'mpi' itself, where nothing can take its place: that needs "
            "torch 2.14 or newer; write backend='al' instead"
        )
    if any(
        lower in c10d.BackendConfig(c10d.Backend(text)).get_device_backend_map().values()
        for text in _backends_of_groups()
    ):
        return f"a group with backend '{lower}' exists already; call altorch.serve() before the first one is made"
    return None


def _backends_of_groups() -> list[str]:
    from torch.distributed import distributed_c10d as c10d

    return [str(backend) for backend, _ in c10d._world.pg_map.values()]


def _plugin(name: str) -> Any:
    """The entry of torch's own backend `name` in its table of creators; None where torch has no such entry."""
    from torch.distributed import distributed_c10d as c10d

    if hasattr(c10d.Backend, "_ensure_backend_registered"):  # torch fills the table when a name is first used
        c10d.Backend._ensure_backend_registered(name)
    return c10d.Backend._plugins.get(name.upper())


def _replace_creator(name: str) -> None:
    from torch.distributed import distributed_c10d as c10d

    from altorch import _serve_by_alias

    if name in _served:
        return
    _served.append(name)
    if _plugin(name) is None:
        _serve_by_alias.replace_creator(name, _creator(name))
    else:
        c10d.Backend._plugins[name.upper()] = c10d.Backend._BackendPlugin(_creator(name), True)
    if name != "mpi":
        # Of the types GLOO and NCCL torch's C++ (DDP's logger) takes the backend for its own class.
        c10d.Backend.backend_type_map[name] = c10d.ProcessGroup.BackendType.CUSTOM


def _creator(name: str) -> Any:
    """What torch calls for a group of this name."""
    from torch.distributed import DistBackendError

    def create(backend_options: Any, options: Any) -> Any:
        from altorch import _backend, _version_check

        asked = _with_store(backend_options) if name == "mpi" else backend_options
        if name not in _announced:
            _announced.add(name)
            if asked.group_rank == 0:
                _announce(name)
        try:
            if _version_check.needs_fallback():
                from altorch import fallback

                return fallback.create(asked, options, name)
            return _backend.create(asked, _converted(name, options))
        except DistBackendError as error:
            if "not come" not in str(error):
                raise
            raise DistBackendError(f"{error}. Serve '{name}' on all ranks: {_HINT}") from error

    return create


def _with_store(asked: Any) -> Any:
    """backend_options of a group of "mpi" with rank, size and store, which torch leaves to MPI."""
    global _mpi_store
    import torch.distributed as dist

    rank, size = asked.group_rank, asked.group_size
    if rank < 0:
        store, rank, size = next(dist.rendezvous("env://", timeout=asked.timeout))
        store.set_timeout(asked.timeout)
        _mpi_store = dist.PrefixStore("default_pg", store)
    return SimpleNamespace(
        store=dist.PrefixStore(f"{asked.group_id}/", _mpi_store),
        group_rank=rank,
        group_size=size,
        group_id=asked.group_id,
        global_ranks_in_group=asked.global_ranks_in_group,
        timeout=asked.timeout,
    )


def _announce(name: str) -> None:
    if os.environ.get("ALTORCH_LOG_LEVEL", "").lower() != "error":
        print(f"altorch: serves the backend name '{name}' (ALTORCH_SERVES or altorch.serve)", file=sys.stderr)


def _converted(name: str, options: Any) -> Any:
    """altorch.Options with what the original's options say and altorch has; `options` may be None."""
    from altorch._extension import extension

    kind = extension().Options
    if options is None:
        made = kind(is_high_priority_stream=name != "nccl")  # as torch's own
    elif isinstance(options, kind):
        made = options.__copy__()
    else:
        config = getattr(options, "config", None)
        unset = -(1 << 31)  # NCCL_CONFIG_UNDEF_INT
        knobs = {knob: getattr(config, knob, unset) for knob in ("min_ctas", "max_ctas", "cga_cluster_size")}
        made = kind(
            is_high_priority_stream=getattr(options, "is_high_priority_stream", True),
            **{knob: value for knob, value in knobs.items() if value != unset},
        )
    made.served_name = name
    return made
