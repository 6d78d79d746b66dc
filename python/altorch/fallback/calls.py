# SPDX-License-Identifier: BSD-3-Clause
"""How one call of a group reaches the engine: checked, told to the peers where it is refused, run or queued."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from altorch.fallback import engine
from altorch.fallback.work import PythonWork


class Calls(Backend):
    """A group of the engine, and how a call on it is made. Any thread may call, in one order on all ranks."""

    def __init__(
        self,
        store: Any,
        name: str,
        rank: int,
        ranks: list[int],
        timeout: timedelta,
        is_job: bool,
        served: str = "al",
    ) -> None:
        super().__init__(rank, len(ranks))
        self._name, self._rank, self._ranks, self._served = name, rank, ranks, served
        self._timeout, self._sequence = timeout, 0
        self._pending: dict[int, Any] = {}  # buffers of calls in the queue, by task
        self._orphans: list[int] = []  # tasks of Works that were dropped before they were done
        self.handle: Any = engine.join(store, name, rank, ranks, is_job, engine.milliseconds(timeout))
        self._own_options = Backend.Options(served, timeout)

    def forget(self, task: int) -> Any:
        """The buffers of a call that is done."""
        engine.library().altorch_release(task)
        return self._pending.pop(task, None)

    def orphan(self, task: int) -> None:
        self._orphans.append(task)

    def _number(self, tensor: torch.Tensor) -> int:
        return engine.number_of("dtype", str(tensor.dtype).removeprefix("torch."))

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
        call = engine.Call(kind=engine.number_of("kind", kind), root=root, count=count, factor=1.0, tag=tag)
        error: type[Exception] = ValueError
        if like is not None:
            call.dtype = self._number(like)
            if like.device.type != "cpu" or like.layout != torch.strided:
                refused = (
                    f"{kind} takes dense tensors on the CPU, and this one is {like.layout} on {like.device}"
                )
            elif call.dtype < 0:
                call.dtype, error, refused = 0, TypeError, f"altorch does not move {like.dtype}"
        if reduction is not None:
            call.op = int(reduction.op)
            if call.op == int(dist.ReduceOp.PREMUL_SUM):
                call.factor = float(reduction.__getstate__()[1])
            if not refused and not engine.library().altorch_can_reduce(call.dtype, call.op):
                refused = f"{reduction.op} is not defined for {like.dtype if like is not None else 'it'}"
                error = TypeError if call.op == int(dist.ReduceOp.AVG) else ValueError
        keep = [source, target]
        call.input = source.data_ptr() if source is not None else None
        call.output = target.data_ptr() if target is not None else None
        for name, counts in (("input_counts", source_counts), ("output_counts", target_counts)):
            if counts is not None:
                keep.append((ctypes.c_int64 * len(counts))(*counts))  # type: ignore[arg-type]
                setattr(call, name, keep[-1])
        own = getattr(options, "timeout", None)
        call.timeout_ms = engine.milliseconds(
            own if own is not None and own > timedelta(0) else self._timeout
        )
        if refused:
            call.refused = refused.encode()
            code = engine.library().altorch_run(self.handle, ctypes.byref(call))
            text = engine.library().altorch_error().decode(errors="replace") if code else refused
            raise error(text)
        if kind not in ("send", "recv"):
            self._sequence += 1
        for task in [task for task in self._orphans if engine.library().altorch_is_done(task)]:
            self._orphans.remove(task)
            self.forget(task)
        wants = asynchronous if asynchronous is not None else bool(getattr(options, "asyncOp", False))
        if not wants:
            code = engine.library().altorch_run(self.handle, ctypes.byref(call))
            if code:
                engine.raise_error(code, keep)
            return PythonWork(self, list(outputs), None, done)
        task = engine.library().altorch_start(self.handle, ctypes.byref(call))
        if not task:
            engine.raise_error(-1)
        self._pending[task] = keep
        return PythonWork(self, list(outputs), task, done)

    def dtype_problem(self, tensors: Sequence[torch.Tensor], like: torch.Tensor, what: str) -> str | None:
        for tensor in tensors:
            if tensor.dtype != like.dtype:
                return f"{what} holds {tensor.dtype} beside {like.dtype}"
            if tensor.device.type != "cpu":
                return f"{what} holds a tensor on {tensor.device}"
        return None

    def rank_problem(self, rank: int, what: str) -> str | None:
        size = len(self._ranks)
        return (
            None
            if 0 <= rank < size
            else f"{what} is rank {rank} of the group, which has ranks 0 to {size - 1}"
        )

    def _each(self, outputs: list[torch.Tensor], works: list[PythonWork]) -> PythonWork:
        """One Work for several."""

        def done() -> None:
            for work in works:
                work.wait()

        return PythonWork(self, outputs, None, done)
