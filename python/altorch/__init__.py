"""altorch: a torch.distributed backend.

    import torch.distributed as dist
    dist.init_process_group(backend="al")

Importing this package is not needed for that where altorch is installed; it registers the name where it is not. It
loads neither MPI nor the extension: these come when the first group is made.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypedDict

import altorch_hooks

from altorch import _version_check
from altorch._version import __version__

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from altorch._C import Options

__all__ = ["Options", "StatisticsRow", "__version__", "finalize", "publish_flight_record", "statistics"]

if not altorch_hooks.only_reporting:
    _version_check.check()
    altorch_hooks.register()
    if any(name in os.environ for name in altorch_hooks.LAUNCHER_RANKS):
        from altorch import _launcher, _rendezvous

        if (found := _launcher.detect()).starts_mpi:
            _rendezvous.fill_environment(
                found
            )  # so that a script may read LOCAL_RANK under mpirun as under torchrun


def __getattr__(name: str) -> Any:
    if name == "Options":
        from altorch._extension import extension

        return extension().Options
    raise AttributeError(f"module 'altorch' has no attribute '{name}'")


class StatisticsRow(TypedDict):
    """What a group has done with one operation on one route."""

    operation: str
    count: int
    bytes: int  # of the tensors passed in on this rank
    route: str
    seconds: float  # from start to completion, summed; asynchronous operations may overlap


def statistics(group: ProcessGroup | None = None) -> list[StatisticsRow]:
    """What `group` (default: the whole world) has done on this rank; empty where another backend carries it."""
    import torch
    import torch.distributed as dist

    from altorch._extension import extension

    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    rows: list[StatisticsRow] = extension().statistics(chosen._get_backend(torch.device("cpu")))
    return rows


def publish_flight_record() -> None:
    """Shows torch's flight recorder of "al" every call until now; by itself altorch does so once a second.

    For whoever asks torch at once, `torch._C._distributed_c10d._dump_fr_trace_json(backend="al")` for instance. Does
    nothing where torch is older than 2.15 or its recorder is off.
    """
    from altorch._extension import extension

    extension().publish_flight_record()


def finalize() -> None:
    """Ends MPI, when altorch started it and nothing failed. Called at exit; groups must have been destroyed."""
    from altorch import _extension

    _extension.finalize()
