# SPDX-License-Identifier: BSD-3-Clause
"""The Work of a call that the fallback made: done, or in the engine's queue.

An asynchronous call is done when its Work is waited for, or asked for its future.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from altorch.fallback import engine

if TYPE_CHECKING:
    from altorch.fallback.calls import Calls


class PythonWork(Work):
    """One call of a group. Thread rules: any thread may wait for it; the others then wait for that thread.

    `task`: of the engine's queue; None: the call is done. `done`: copies results into tensors that are not contiguous.
    """

    def __init__(
        self, group: Calls, outputs: list[torch.Tensor], task: int | None, done: Callable[[], None]
    ) -> None:
        super().__init__()
        self._group, self._outputs, self._task, self._done = group, outputs, task, done
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        if task is None:
            done()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Blocks until the call is done. Raises its error; DistBackendError where `timeout` (0: the call's) passes."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._task is not None:
                self._finish(timeout)
        return True

    def _finish(self, timeout: timedelta) -> None:
        limit = engine.milliseconds(timeout) if timeout > timedelta(0) else 0
        code = engine.library().altorch_wait(self._group.handle, self._task, limit)
        if code == -1:
            raise dist.DistBackendError(
                f"altorch: the call is not done after {timeout.total_seconds():g} s; it goes on"
            )
        task, self._task = self._task, None
        assert task is not None
        try:
            engine.check(code, self._group.forget(task))
        except BaseException as error:
            self._error = error
            raise
        self._done()

    def __del__(self) -> None:
        task = getattr(self, "_task", None)
        if task is not None:
            self._group.orphan(task)

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Waits for the call; a future with its tensors, or with its error."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        try:
            self.wait()
            future.set_result(self._outputs)
        except Exception as error:
            future.set_exception(error)
        return future
