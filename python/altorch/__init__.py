"""altorch: a torch.distributed backend.

    import torch.distributed as dist
    dist.init_process_group(backend="al")

Importing this package is not needed for that where altorch is installed; it registers the name where it is not. It
loads neither MPI nor the extension: these come when the first group is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altorch_hooks

from altorch import _version_check
from altorch._version import __version__

if TYPE_CHECKING:
    from altorch._C import Options

__all__ = ["Options", "__version__", "finalize"]

if not altorch_hooks.only_reporting:
    _version_check.check()
    altorch_hooks.register()


def __getattr__(name: str) -> Any:
    if name == "Options":
        from altorch._extension import extension

        return extension().Options
    raise AttributeError(f"module 'altorch' has no attribute '{name}'")


def finalize() -> None:
    """Ends MPI, when altorch started it and nothing failed. Called at exit; groups must have been destroyed."""
    from altorch import _extension

    _extension.finalize()
