# SPDX-License-Identifier: BSD-3-Clause
"""Backend "al" in Python, for a torch newer than all that this altorch has an extension for.

The engine is the same (engine.py). What the extension does in C++ is done here, for CPU tensors of ranks on one node,
and costs more per call (docs/install.md). torch 2.15 is the first whose Backend a Python class can implement.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist

from altorch import _version_check
from altorch.fallback.backend import PythonBackend, alive

_warned = False


def create(backend_options: Any, options: Any, served: str = "al") -> PythonBackend:
    """The creator that torch calls for backend `served`; every member of the group is in it at the same time."""
    global _warned
    rank = backend_options.group_rank
    first, _warned = not _warned, True
    if first and rank == 0:
        warnings.warn(
            f"altorch has no extension for torch {torch.__version__} "
            f"(it has: {', '.join(_version_check.minors()) or 'none'}). Groups are made in Python: CPU tensors on one "
            "node, some 65 us more a call. Install an altorch that serves this torch.",
            RuntimeWarning,
            stacklevel=2,
        )
    made = PythonBackend(
        backend_options.store,
        backend_options.group_id,
        rank,
        list(backend_options.global_ranks_in_group) or list(range(backend_options.group_size)),
        backend_options.timeout,
        not dist.is_initialized(),
        served,
    )
    alive.add(made)
    return made
