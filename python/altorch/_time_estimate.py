# SPDX-License-Identifier: BSD-3-Clause
"""Ends a time estimate of torch's also where an exception leaves it.

torch 2.15's own context does not, and later collectives of the group would be priced and not run.
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

    @contextlib.contextmanager
    @functools.wraps(original)
    def _time_estimator(group: Any = None, device: Any = None) -> Iterator[Any]:
        with original(group, device) as estimate:
            try:
                yield estimate
            except BaseException:
                _end(group, device)
                raise

    for module in (dist, distributed_c10d):
        if hasattr(module, "_time_estimator"):
            module._time_estimator = _time_estimator  # type: ignore[attr-defined]


def _end(group: Any, device: Any) -> None:
    from altorch._backend import carrying
    from altorch._extension import extension

    group = group or dist.group.WORLD
    backend = group._get_backend(device or distributed_c10d._get_pg_default_device(group))
    if isinstance(carrying(backend), extension().Backend):
        with contextlib.suppress(ValueError, RuntimeError):  # it has ended
            backend._end_time_estimate()
