# SPDX-License-Identifier: BSD-3-Clause
"""What one rank of a cell knows and does: its group, its calls, its failure, and what it writes down."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.drill.cells import Cell
from tests.drill.cues import Cues
from tests.drill.expectations import ERROR, SUCCESS, WRONG
from tests.drill.failures import LARGE

STARTING = 30.0  # seconds: GPUs that many cells share are slow to begin with, whatever the group's timeout


class WrongResult(AssertionError):
    pass


class Scene(Cues):
    def __init__(self, cell: Cell, rank: int, folder: Path) -> None:
        super().__init__(rank, cell.ranks, folder, cell.limit)
        self.cell = cell
        self.failure, self.timeout = cell.failure, cell.timeout
        self.is_victim = rank == cell.victim
        self.on_gpu = cell.route.device == "cuda"
        self.group: Any = None  # the default one
        self.called_at = 0.0
        self.leaves_group = False  # ends without destroy_process_group
        self.handles: list[list[str]] = []  # of the ranks, whenever they exchanged them for reconfigure()
        self._process = os.getpid()

    # --------------------------------------------------------------------------------------- failure

    def is_alive(self, rank: int) -> bool:
        try:
            state = Path(f"/proc/{self.read(f'pid.{rank}')}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return False
        return state not in "ZX"

    def signal_store(self, number: int) -> None:
        os.kill(self.read("store")["pid"], number)

    def strike(self) -> None:
        """Here it befalls the victim. The others go on once it is about to happen."""
        if self.failure.strike is None:
            return
        if self.is_victim:
            self.note("struck", time.monotonic())
            self.failure.strike(self)
        else:
            self.await_note("struck")

    @contextlib.contextmanager
    def striking(self, after: float = 0.0) -> Iterator[None]:
        """The failure befalls the victim while it is in the call within: a thread of its own sees to that."""
        if not self.is_victim:
            yield
            return

        def befall() -> None:
            time.sleep(after)
            self.strike()

        thread = threading.Thread(target=befall, daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    # ----------------------------------------------------------------------------------------- calls

    @property
    def is_async(self) -> bool:
        return self.cell.call == "async"

    def start(self, store: dist.Store | None = None, **options: Any) -> None:
        """Over the store of a launcher, a process of its own, as under torchrun."""
        where = {} if store is None else {"store": store, "rank": self.rank, "world_size": self.size}
        timeout = max(self.timeout, STARTING) if self.on_gpu else self.timeout
        dist.init_process_group(
            self.cell.route.backend, timeout=timedelta(seconds=timeout), **where, **options
        )

    def start_and_meet(self, store: dist.Store | None = None) -> None:
        """Everything that is opened with the first call is open then."""
        if self.on_gpu:
            torch.cuda.set_device(self.device)
        self.start(store)
        self._all_reduce_once(4, torch.float32, dist.ReduceOp.SUM)
        if self.on_gpu:
            self._limit_calls()
        self.all_at("met")

    def _limit_calls(self) -> None:
        """To the timeout of the cell, now that all has begun."""
        if self.cell.route.is_al:
            self.backend.change_timeout(self.timeout)
        else:
            self.backend.options._timeout = timedelta(seconds=self.timeout)

    def new_group(self) -> Any:
        return dist.new_group(timeout=timedelta(seconds=self.timeout))

    @property
    def device(self) -> torch.device:
        if not self.on_gpu:
            return torch.device("cpu")
        return torch.device("cuda", self.rank % torch.cuda.device_count())

    @property
    def large(self) -> int:
        """Elements of a tensor that takes its time. Cells that share a GPU see a part of its time only."""
        return LARGE // 4 if self.on_gpu else LARGE

    @property
    def backend(self) -> Any:
        return (self.group or dist.group.WORLD)._get_backend(self.device)

    def ones(self, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(count, dtype=dtype, device=self.device)

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """In the way of the cell: synchronous, or begun and waited for."""
        work = function(*arguments, **options, group=self.group, async_op=self.is_async)
        if work is not None:
            work.wait()
        self.settle()

    def settle(self) -> None:
        """Until the GPU, if there is one, has done what it was given."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def confirm(self) -> None:
        """The results of a call on CUDA tensors that failed are marked, and the next call raises: this one. Or the one
        behind it, for a message may be gone before the sender misses its receiver."""
        for _ in range(2 if self.on_gpu else 0):
            self._all_reduce_once(1000, torch.float32, dist.ReduceOp.SUM)

    def all_reduce(
        self,
        count: int = 1000,
        dtype: torch.dtype = torch.float32,
        op: Any = dist.ReduceOp.SUM,
    ) -> None:
        self._all_reduce_once(count, dtype, op)
        if self.on_gpu:  # as confirm() does, by the call that the others make
            self._all_reduce_once(count, dtype, op)

    def _all_reduce_once(self, count: int, dtype: torch.dtype, op: Any) -> None:
        tensor = self.ones(count, dtype)
        self.call(dist.all_reduce, tensor, op=op)
        self.check(tensor, self.size)

    def barrier(self) -> None:
        """Of the CUDA calls, too, where the cell is about these: as in a group that was made with a device_id."""
        devices = {"device_ids": [self.device.index]} if self.on_gpu else {}
        self.call(dist.barrier, **devices)

    def broadcast(self, root: int) -> None:
        """A broadcast waits for no peer: what was wrong about it shows in the call behind it."""
        self.call(dist.broadcast, self.ones(1000), root)
        self.call(dist.barrier)

    def check(self, tensor: torch.Tensor, value: float) -> None:
        """That it is right, or marked as the result of a call on CUDA tensors that failed."""
        wrong = tensor[tensor != value]
        if tensor.is_cuda:
            wrong = wrong[~is_marked(wrong)]
        if wrong.numel():
            raise WrongResult(f"{wrong[0].item()} instead of {value}, in {wrong.numel()} elements")

    # --------------------------------------------------------------------------------------- outcome

    def attempt(self, function: Callable[[], object]) -> bool:
        """The call in which the failure is met. Writes down what came of it; whether it succeeded."""
        self.called_at = time.monotonic()
        try:
            function()
        except WrongResult as error:
            return self._conclude(WRONG, str(error))
        except Exception as error:
            return self._conclude(ERROR, str(error) or type(error).__name__)
        return self._conclude(SUCCESS)

    def _conclude(self, outcome: str, message: str = "") -> bool:
        if os.getpid() == self._process:  # not what a forked child saw
            times = {"called_at": self.called_at, "ended_at": time.monotonic()}
            self.note(f"end.{self.rank}", {"outcome": outcome, "message": message, **times})
        return outcome == SUCCESS

    def end(self) -> None:
        if dist.is_initialized() and not self.leaves_group:
            dist.destroy_process_group()


def is_marked(tensor: torch.Tensor) -> torch.Tensor:
    """docs/errors.md: NaN, or the least of a type of signed integers."""
    if tensor.dtype.is_floating_point:
        return tensor.isnan()
    return tensor == torch.iinfo(tensor.dtype).min
