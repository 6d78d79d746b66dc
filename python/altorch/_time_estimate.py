# SPDX-License-Identifier: BSD-3-Clause
"""Ends a time estimate of torch's also where an exception is thrown in it.

torch 2.15's own context does not, and later collectives of the group would be estimated and not run. The engine
refuses an estimate that did not begin here.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d


@functools.cache
def install() -> None:
    """Once, when the first group is made."""
    original = getattr(distributed_c10d, "_time_estimator", None)
    if original is None:
        return
    from altorch._extension import extension

    guard = getattr(extension(), "guard_time_estimates", None)
    if guard is None:
        return

    @contextlib.contextmanager
    @functools.wraps(original)
    def _time_estimator(group: Any = None, device: Any = None) -> Iterator[Any]:
        group = group or dist.group.WORLD
        device = device or distributed_c10d._get_pg_default_device(group)
        backend = group._get_backend(device)
        guard(True)
        try:
            with original(group, device) as estimate:
                try:
                    yield estimate
                except BaseException:
                    with contextlib.suppress(Exception):  # the program's own is what it gets
                        backend._end_time_estimate()
                    raise
        finally:
            guard(False)

    for module in (dist, distributed_c10d):
        if hasattr(module, "_time_estimator"):
            module._time_estimator = _time_estimator  # type: ignore[attr-defined]
