# SPDX-License-Identifier: BSD-3-Clause
"""Replaces torch.distributed._time_estimator by one that ends the estimate after an exception, too.

torch 2.15 leaves the estimate active then, and later collectives would be estimated instead of run. The engine refuses
an estimate that does not start here.
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
    """When a group is made; does its work once."""
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
                    with contextlib.suppress(Exception):  # the caller gets the program's exception
                        backend._end_time_estimate()
                    raise
        finally:
            guard(False)

    for module in (dist, distributed_c10d):
        if hasattr(module, "_time_estimator"):
            module._time_estimator = _time_estimator  # type: ignore[attr-defined]
