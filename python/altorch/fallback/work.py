# SPDX-License-Identifier: BSD-3-Clause
"""The Work of a call that the fallback made: done, or in the engine's queue.

An asynchronous call is done when its Work is waited for, or asked for its future.
"""

from __future__ import annotations

import ctypes
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
    """A call of Calls: done, or in the engine's queue."""

    def __init__(
        self, backend: Calls, outputs: list[torch.Tensor], task: int | None, done: Callable[[], None]
    ):
        super().__init__()
        self._backend, self._outputs, self._task, self._done = backend, outputs, task, done
        self._error: BaseException | None = None
        if task is None:
            done()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if self._error is not None:
            raise self._error
        if self._task is None:
            return True
        source = ctypes.c_int()
        code = engine.library().altorch_wait(
            self._backend.handle, self._task, max(0, engine.milliseconds(timeout)), ctypes.byref(source)
        )
        if code == -1:
            raise dist.DistBackendError(
                f"altorch: the call is not done after {timeout.total_seconds():g} s; it goes on"
            )
        task, self._task = self._task, None
        kept = self._backend.forget(task)
        if code:
            try:
                engine.raise_error(code, kept)
            except BaseException as error:
                self._error = error
                raise
        self._done()
        return True

    def __del__(self) -> None:
        if self._task is not None:
            self._backend.orphan(self._task)

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        try:
            self.wait()
            future.set_result(self._outputs)
        except BaseException as error:
            future.set_exception(error)
        return future

    def is_completed(self) -> bool:
        return self._task is None or bool(engine.library().altorch_is_done(self._task))

    def result(self) -> list[torch.Tensor]:
        return self._outputs
