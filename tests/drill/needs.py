# SPDX-License-Identifier: BSD-3-Clause
"""What a cell may need, and whether it is here: GPUs, a backend or a function of torch's."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache


@lru_cache(maxsize=1)
def names_of_gpus() -> tuple[str, ...]:
    """Without CUDA: a process that has asked it cannot fork ranks any more."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(re.findall(r"^GPU \d+: (.*?)(?: \(UUID.*)?$", listed.stdout, re.MULTILINE))


def lacks_gpus(needed: int) -> str:
    """Why there are not as many; empty: there are."""
    there = len(names_of_gpus())
    if there >= needed:
        return ""
    return f"{there or 'no'} GPU{'s are' if there > 1 else ' is'} visible, and {needed} needed"


def lacks_backend(name: str) -> str:
    """By its name alone: nothing is started. al registers itself."""
    from torch.distributed import is_backend_available

    return "" if name == "al" or is_backend_available(name) else f"{_torch()} has no backend {name}"


def lacks_function(name: str) -> str:
    """Of torch.distributed; none is there always."""
    import torch.distributed

    return "" if not name or hasattr(torch.distributed, name) else f"{_torch()} has no {name.lstrip('_')}()"


def _torch() -> str:
    from torch import __version__

    return f"torch {__version__.partition('+')[0]}"
