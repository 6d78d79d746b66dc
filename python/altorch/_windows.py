# SPDX-License-Identifier: BSD-3-Clause
"""torch's half of a coalescing window: ended where something was thrown within, which torch itself does not do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def forget(group_name: str) -> None:
    """Ends it: torch would put the group's next calls into the window's list, where they wait for ever unmade."""
    import torch.distributed.distributed_c10d as c10d

    state = c10d._world.pg_coalesce_state
    for group in [group for group in state if c10d._world.pg_names.get(group) == group_name]:
        del state[group]


def mend_torch() -> None:
    """Lets torch's own manager clear up after an exception that never reached the backend (a type without a kernel)."""
    import torch.distributed.distributed_c10d as c10d

    original = c10d._coalescing_manager
    if getattr(original, "_mended_by_altorch", False):
        return

    @contextlib.contextmanager
    def manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
        chosen = group or c10d._get_default_group()
        try:
            with original(chosen, device, async_ops) as works:
                yield works
        except BaseException:
            c10d._world.pg_coalesce_state.pop(chosen, None)
            if device is not None:
                backend = chosen._get_backend(device)
                backend = getattr(backend, "now", None) or backend  # whose ranks change
                abandon = getattr(backend, "abandon_window", None)
                if abandon is not None:
                    abandon()
            raise

    manager._mended_by_altorch = True  # type: ignore[attr-defined]
    c10d._coalescing_manager = manager
