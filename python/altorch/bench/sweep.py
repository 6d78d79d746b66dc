# SPDX-License-Identifier: BSD-3-Clause
"""Operations, types and sizes one after another, over all contenders: what `altorch bench` and the suites run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist

from altorch.bench import contenders, floors, turns
from altorch.bench.cases import CASES
from altorch.bench.rows import Row
from altorch.cli._output import human_bytes


class Job(NamedTuple):
    operation: str  # memcpy is the floor
    dtype: str
    size: int

    def __str__(self) -> str:
        return f"{self.operation} {self.dtype} {human_bytes(self.size)}"


@dataclass(frozen=True)
class Sweep:
    contenders: Sequence[str]
    operations: Sequence[str]
    dtypes: Sequence[str]
    sizes: Sequence[int]
    modes: tuple[str, ...] = ("sync",)
    seconds: float = 0.6  # for one operation, type and size

    def jobs(self) -> list[Job]:
        found = [Job("memcpy", self.dtypes[0], size) for size in self.sizes]
        for operation in self.operations:
            if operation == "barrier":  # has neither type nor size
                found.append(Job(operation, self.dtypes[0], self.sizes[0]))
            else:
                found += [Job(operation, dtype, size) for dtype in self.dtypes for size in self.sizes]
        return found

    def measure(
        self, device: torch.device, emit: Callable[[Row], None], at: Callable[[Job], None] = lambda job: None
    ) -> dict[str, str]:
        """Passes rows to `emit` on rank 0, and each job to `at` first. Returns what is left out, and why."""
        skipped = {
            name: why for name in self.contenders if (why := contenders.unsupported_reason(name, device))
        }
        groups = {}
        for name in self.contenders:
            if name in skipped:
                continue
            try:
                groups[name] = contenders.make(name, device, self.operations)
            except NotImplementedError as error:  # on every rank
                skipped[name] = str(error).partition("\n")[0]
        modes = self.modes
        alone = contenders.unsupported_reason("nccl", device)
        if "graph" in modes and alone and "CUDA_MPS_PIPE_DIRECTORY" not in os.environ:
            skipped["CUDA graphs"] = f"{alone}, and no kernel can wait for another there without MPS"
            modes = tuple(mode for mode in modes if mode != "graph")
        for job in self.jobs():
            at(job)
            for row in self._rows_of(job, groups, device, modes):
                if dist.get_rank() == 0:
                    emit(row)
        return skipped

    def _rows_of(
        self, job: Job, groups: dict[str, dist.ProcessGroup], device: torch.device, modes: tuple[str, ...]
    ) -> list[Row]:
        dtype = getattr(torch, job.dtype)
        if job.operation == "memcpy":
            return [floors.copies(job.size, dtype, device)]
        taking = {name: g for name, g in groups.items() if contenders.takes_part(name, device, job.operation)}
        if not taking:
            return []
        case = CASES[job.operation]
        return turns.measure(case, job.size, dtype, device, taking, modes=modes, seconds=self.seconds)
