# SPDX-License-Identifier: BSD-3-Clause
"""altorch: a torch.distributed backend.

    import torch.distributed as dist
    dist.init_process_group(backend="al")

Importing this package is not needed for that where altorch is installed; it registers the name where it is not. It
loads neither MPI nor the extension: these come when the first group is made.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import altorch_hooks

from altorch import _version_check
from altorch._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch.distributed import Backend, ProcessGroup, Store

    from altorch._C import Options, Window
    from altorch.token_switch import TokenSwitch

__all__ = [
    "Options",
    "StatsRow",
    "TokenSwitch",
    "Window",
    "__version__",
    "empty",
    "finalize",
    "make_backend",
    "new_window",
    "publish_flight_record",
    "serve",
    "stats",
    "survivors",
]

if not altorch_hooks.only_reporting:
    _version_check.check()
    altorch_hooks.register()
    if any(name in os.environ for name in altorch_hooks.LAUNCHER_RANKS):
        from altorch import _launcher, _rendezvous

        # So that a script may read LOCAL_RANK under mpirun and srun as under torchrun.
        _rendezvous.fill_environment(_launcher.detect())


def __getattr__(name: str) -> Any:
    if name in ("Options", "Window", "_C"):
        from altorch._extension import extension

        return extension() if name == "_C" else getattr(extension(), name)
    if name == "TokenSwitch":
        from altorch import token_switch

        return token_switch.TokenSwitch
    raise AttributeError(f"module 'altorch' has no attribute '{name}'")


def serve(*names: str) -> None:
    """Makes altorch create all later groups of backend "gloo", "nccl" or "mpi"; they keep that name.

    Called on all ranks before the first group of that name. Raises ValueError for a name that altorch does not serve,
    RuntimeError where such a group exists already or this machine cannot have one. `ALTORCH_SERVES=gloo,nccl` does the
    same without a change of the program. docs/serving.md says what such a group does differently.
    """
    from altorch import _serve

    _serve.serve(*names)


class StatsRow(TypedDict):
    """What a group has done with one operation on one route."""

    operation: str
    count: int
    bytes: int  # of the tensors passed in on this rank
    route: str
    seconds: float  # from start to completion, summed; asynchronous operations may overlap


def stats(group: ProcessGroup | None = None) -> list[StatsRow]:
    """What `group` (default: the whole world) has done on this rank; empty where another backend carries it."""
    import torch
    import torch.distributed as dist

    from altorch import _backend, _version_check
    from altorch._extension import extension

    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    made = chosen._get_backend(torch.device("cpu"))
    if _version_check.needs_fallback():
        from altorch.fallback.backend import PythonBackend

        return made.stats() if isinstance(made, PythonBackend) else []
    rows: list[StatsRow] = extension().stats(_backend.carrying(made))
    return rows


def new_window(tensor: torch.Tensor | None = None, group: ProcessGroup | None = None) -> Window:
    """One-sided access to a tensor of every rank of `group` (default: the whole world). Collective.

    `tensor`: what this rank gives to the others; contiguous, of any size and type, on the CPU or a GPU. Without one,
    `Window.tensor_register()` has to follow, on all ranks. docs/windows.md says what is ordered with what.
    """
    import torch
    import torch.distributed as dist

    from altorch import _backend
    from altorch._extension import extension

    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    kind = (
        "cuda" if tensor is not None and tensor.is_cuda else "cpu"
    )  # what is on neither, all ranks are told of
    backend = _backend.carrying(chosen._get_backend(torch.device(kind)))
    if not isinstance(backend, extension().Backend):
        raise NotImplementedError(
            f"altorch.new_window: {kind} tensors of this group go over backend '{backend.name()}'; make the group with "
            f"backend='al', or backend='{kind}:al,...'"
        )
    window: Window = backend.open_window(tensor)
    return window


def empty(
    *size: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> torch.Tensor:
    """A tensor like `torch.empty(*size, dtype=dtype, device=device)`, in memory that other ranks of this node can map.

    What it holds is zero. A window over it is written and read without the system's help, and
    `Window.map_remote_tensor()` shows it to the others. `device`: the CPU (default), or a GPU, of which 2 MiB at a time
    are taken. Windows over other CUDA tensors go through the memory of the host.
    """
    import torch

    from altorch._extension import extension

    sizes = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    where = torch.device(device or "cpu")
    return extension().empty_shareable(list(sizes), dtype or torch.get_default_dtype(), where)


def make_backend(
    store: Store,
    rank: int,
    size: int,
    *,
    name: str = "made",
    timeout: timedelta = timedelta(minutes=30),
    options: Options | None = None,
    global_ranks: Sequence[int] | None = None,
) -> Backend:
    """The backend of a group that torch.distributed does not manage, for frameworks that make groups themselves.

    Collective over the `size` ranks. `store`: used for this group alone, for example a `PrefixStore`. Errors show
    `name`, the same on all ranks, and `global_ranks` (default: 0 to size - 1). `timeout`: of this call and of
    collectives. Shared memory carries CPU tensors on one node, else Gloo; MPI is not used, because it starts once in
    a process, for all ranks of a job. CUDA tensors go as in any group. No default group is needed. Raises ValueError
    for an invalid rank or invalid global_ranks, DistBackendError if a rank does not come in time. docs/frameworks.md
    shows a use.
    """
    from altorch import _backend

    ranks = list(global_ranks) if global_ranks is not None else list(range(size))
    if not 0 <= rank < size or len(ranks) != size or len(set(ranks)) != size:
        raise ValueError(
            f"make_backend: rank {rank} must lie between 0 and {size - 1}, and global_ranks {ranks} must be {size} "
            "different ranks"
        )
    return _backend.made_for_framework(store, rank, name, ranks, timeout, options)


def survivors(
    group: ProcessGroup | None = None, *, patience: timedelta = timedelta(seconds=60)
) -> ProcessGroup:
    """A new group of the ranks of `group` (default: the whole world) that are alive, after an error or a loss.

    Collective over those ranks: every one that has caught the error calls it. The old group is destroyed, whatever was
    under way in it fails, and where it was the whole world so are all other groups, and the new one is the default
    group, with ranks numbered from 0 on. `patience`: with a rank that lives and does not call this; it is left out
    then, and told so if it comes later. Raises torch.distributed.DistBackendError where the ranks cannot find each
    other, and NotImplementedError where another backend carries a part of the group. docs/errors.md says more.
    """
    from altorch import _survivors

    return _survivors.survivors(group, patience)


def publish_flight_record() -> None:
    """Passes all calls until now to torch's flight recorder of "al"; altorch itself does so once a second.

    Call it before you read torch's records directly, for instance with
    `torch._C._distributed_c10d._dump_fr_trace_json(backend="al")`. It does nothing if torch is older than
    2.15 or its recorder is off.
    """
    from altorch._extension import extension

    extension().publish_flight_record()


def finalize() -> None:
    """Ends MPI, when altorch started it and nothing failed. Called at exit; groups must have been destroyed."""
    from altorch import _extension

    _extension.finalize()
