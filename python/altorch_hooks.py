# SPDX-License-Identifier: BSD-3-Clause
"""The doors through which others come in: torch's two plugin hooks and the console script.

A module outside the package, because these must work where `import altorch` is refused (another torch minor than
the one built for): `import torch` must never break, and `altorch info` must be able to say what is wrong. Nothing
here imports the package before it is needed.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

# True in the command line (`altorch`, `python -m altorch`): `import altorch` then accepts a wrong
# torch, and the commands report it.
only_reporting = sys.orig_argv[1:3] == ["-m", "altorch"]


# Signs of an MPI launcher; which one it is, altorch._launcher finds out when it matters.
LAUNCHER_RANKS = (
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
)


def autoload() -> None:
    """Called at every `import torch` (entry-point group torch.backends). Whatever it raised would break that."""
    try:
        register()
        if os.environ.get("ALTORCH_SERVES"):
            from altorch import _serve

            _serve.serve_environment()
    except Exception as error:
        names = os.environ.get("ALTORCH_SERVES", "")
        if names or os.environ.get("ALTORCH_LOG_LEVEL", "").lower() == "debug":
            without = f"; ALTORCH_SERVES={names} serves no name" if names else ""
            print(f"altorch: not registered at import: {error}{without}", file=sys.stderr)


def register() -> None:
    """Makes the name "al" known to torch.distributed. Cheap; may be called any number of times."""
    import torch.distributed as dist

    if not dist.is_available() or hasattr(dist.Backend, "AL"):
        return
    dist.Backend.register_backend("al", _create, extended_api=True, devices=devices())
    from torch.distributed.rendezvous import _rendezvous_handlers as handlers
    from torch.distributed.rendezvous import register_rendezvous_handler

    if "mpi" not in handlers:
        register_rendezvous_handler("mpi", _mpi_rendezvous)
        if any(name in os.environ for name in LAUNCHER_RANKS):
            handlers["env"] = functools.partial(_env_rendezvous, handlers["env"])


def devices() -> list[str]:
    """The devices that "al" is registered for. A GPU is looked for without touching CUDA: that would break forks."""
    import torch

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None or (hidden is not None and hidden.strip() in ("", "-1")):
        return ["cpu"]
    if any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg")):
        return ["cpu", "cuda"]
    return ["cpu"]


def _create(backend_options: Any, options: Any) -> Any:
    from altorch import _version_check

    if _version_check.needs_fallback():
        from altorch import fallback

        return fallback.create(backend_options, options)
    from altorch._backend import create

    return create(backend_options, options)


def _mpi_rendezvous(url: str, **kwargs: Any) -> Any:
    from altorch._rendezvous import mpi_rendezvous

    return mpi_rendezvous(url, **kwargs)


def _env_rendezvous(original: Any, url: str, **kwargs: Any) -> Any:
    from altorch._rendezvous import env_rendezvous

    return env_rendezvous(original, url, **kwargs)


def main() -> int:
    """The console script `altorch`."""
    global only_reporting
    only_reporting = True
    from altorch.cli import main as run

    return run()
