# SPDX-License-Identifier: BSD-3-Clause
"""How one call of a group reaches the engine: checked, told to the peers where it is refused, run or queued."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from altorch.fallback import engine
from altorch.fallback.work import PythonWork


class Calls(Backend):
    """A group of the engine, and how it is called. Thread rules: any thread may call, in one order on all ranks."""

    def __init__(
        self,
        store: Any,
        name: str,
        rank: int,
        ranks: list[int],
        timeout: timedelta,
        is_job: bool,
        served: str,
    ) -> None:
        super().__init__(rank, len(ranks))
        self._name, self._rank, self._ranks, self._served = name, rank, ranks, served
        self._timeout, self._sequence = timeout, 0
        self._pending: dict[int, Any] = {}  # buffers of calls in the queue, by task
        self._orphans: list[int] = []  # tasks of Works that were dropped before they were done
        self._sweep = threading.Lock()
        self._own_options = Backend.Options(served, timeout)
        self.handle: Any = engine.join(store, name, rank, ranks, is_job, engine.milliseconds(timeout))

    def forget(self, task: int) -> Any:
        """Frees a task that is done, and returns the buffers of its call."""
        engine.library().altorch_release(task)
        return self._pending.pop(task, None)

    def orphan(self, task: int) -> None:
        """Takes the task of a Work that was dropped before it was done; its buffers stay until then."""
        self._orphans.append(task)

    def _release_orphans(self) -> None:
        with self._sweep:
            for task in [task for task in self._orphans if engine.library().altorch_is_done(task)]:
                self._orphans.remove(task)
                engine.library().altorch_wait(self.handle, task, 0)
                engine.keep_if_used(self.forget(task))

    def release_all(self) -> None:
        """Of a closed group: waits until the engine is done with all buffers; keeps those that it still uses."""
        for task in list(self._pending):
            code = engine.library().altorch_wait(self.handle, task, 2000)
            if code == -1:
                engine.keep(self._pending.pop(task))
            else:
                engine.keep_if_used(self.forget(task))

    def issue(
        self,
        kind: str,
        like: torch.Tensor | None,
        *,
        source: torch.Tensor | None = None,
        target: torch.Tensor | None = None,
        count: int = 0,
        source_counts: Sequence[int] | None = None,
        target_counts: Sequence[int] | None = None,
        root: int = 0,
        reduction: Any = None,
        options: Any = None,
        tag: int = 0,
        refused: str | None = None,
        outputs: Sequence[torch.Tensor] = (),
        done: Callable[[], None] = lambda: None,
        asynchronous: bool | None = None,
    ) -> PythonWork:
        """Runs or queues one call, and returns its Work.

        `like`: a tensor of its type. `source`, `target`: contiguous. `count` and counts: elements, as in base/call.h.
        `refused`: why this rank cannot make the call; it raises here, and its peers are told. The timeout is that of
        `options`, else the group's.
        """
        call = engine.Call(kind=engine.number_of("kind", kind), root=root, count=count, factor=1.0, tag=tag)
        error = self._describe(call, kind, like, reduction)
        own = getattr(options, "timeout", None)
        call.timeout_ms = engine.milliseconds(
            own if own is not None and own > timedelta(0) else self._timeout
        )
        if error is None and any(torch._debug_has_internal_overlap(each) == 1 for each in outputs):
            refused = (
                refused or f"{kind} cannot write to a tensor whose elements share memory (expand()); clone it"
            )
        if error is None and refused:
            error = ValueError(refused)
        if error is not None:
            call.refused = str(error).encode()
            engine.library().altorch_run(self.handle, ctypes.byref(call))
            raise type(error)(engine.error_text())
        keep: list[Any] = [source, target]
        call.input = source.data_ptr() if source is not None else None
        call.output = target.data_ptr() if target is not None else None
        for name, counts in (("input_counts", source_counts), ("output_counts", target_counts)):
            if counts is not None:
                keep.append((ctypes.c_int64 * len(counts))(*counts))
                setattr(call, name, keep[-1])
        if kind not in ("send", "recv"):
            self._sequence += 1
        if self._orphans:
            self._release_orphans()
        if not (asynchronous if asynchronous is not None else getattr(options, "asyncOp", False)):
            engine.check(engine.library().altorch_run(self.handle, ctypes.byref(call)), keep)
            return PythonWork(self, list(outputs), None, done)
        task = engine.library().altorch_start(self.handle, ctypes.byref(call))
        if not task:
            engine.check(engine.library().altorch_error_code(), keep)
        self._pending[task] = keep
        return PythonWork(self, list(outputs), task, done)

    def _describe(
        self, call: engine.Call, kind: str, like: torch.Tensor | None, reduction: Any
    ) -> Exception | None:
        """Fills in element type and reduction; the error where the engine has no such."""
        if like is None:
            return None
        number = engine.number_of("dtype", str(like.dtype).removeprefix("torch."))
        if like.device.type != "cpu" or like.layout != torch.strided:
            return ValueError(
                f"{kind} takes dense tensors on the CPU, and this one is {like.layout} on {like.device}"
            )
        if number < 0:
            return TypeError(f"altorch does not move {like.dtype}")
        call.dtype = number
        if reduction is None:
            return None
        call.op = int(reduction.op)
        if call.op == int(dist.ReduceOp.PREMUL_SUM):
            call.factor = float(reduction.__getstate__()[1])
        if engine.library().altorch_can_reduce(call.dtype, call.op):
            return None
        wrong = TypeError if call.op == int(dist.ReduceOp.AVG) else ValueError
        return wrong(
            f"{reduction.op} is not defined for {like.dtype}; convert the tensor or choose another reduction"
        )

    def list_problem(self, tensors: Sequence[torch.Tensor], like: torch.Tensor, what: str) -> str | None:
        """Why `tensors` cannot go with `like` into one call, as a sentence."""
        for tensor in tensors:
            if tensor.dtype != like.dtype:
                return f"{what} holds {tensor.dtype} beside {like.dtype}"
            if tensor.device.type != "cpu" or tensor.layout != torch.strided:
                return f"{what} holds a tensor that is {tensor.layout} on {tensor.device}"
        return None

    def rank_problem(self, rank: int, what: str) -> str | None:
        """Why `rank` is none of the group, as a sentence."""
        size = len(self._ranks)
        if 0 <= rank < size:
            return None
        return f"{what} is rank {rank} of the group, which has ranks 0 to {size - 1}"

    def one_work(self, outputs: list[torch.Tensor], works: list[PythonWork]) -> PythonWork:
        """A Work of several calls; they are waited for now."""
        for work in works:
            work.wait()
        return PythonWork(self, outputs, None, lambda: None)
