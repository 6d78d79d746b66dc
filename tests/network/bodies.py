# SPDX-License-Identifier: BSD-3-Clause
"""What the ranks of a cell run. Each body gets a `World` of tests/python/worker.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

OTHER_VERSION = "0.0.9"


def operations(world: Any, counts: Sequence[int]) -> dict[str, Any]:
    """Every case of `altorch check` with so many elements; what carries the group, and the seconds of two calls."""
    from altorch._extension import extension
    from altorch.cli import _check_cases

    _check_cases.COUNTS = tuple(counts)
    for case in _check_cases.of_backend("al"):
        world.case = case.name
        case.run(world.rank, world.size)
    dist.barrier()
    began = time.monotonic()
    dist.broadcast(torch.ones(1_000_000), 0)  # 4 MB
    dist.barrier()
    broadcast = time.monotonic() - began
    began = time.monotonic()
    dist.barrier()
    return {
        "carries": str(extension().describe_job()),
        "broadcast": broadcast,
        "barrier": time.monotonic() - began,
    }


def meet(world: Any) -> None:
    dist.barrier()


def _reduce(world: Any, elements: int, value: float = 0.0) -> float:
    """The sum of all ranks' `value`. Raises AssertionError where an element is wrong."""
    tensor = torch.full((elements,), world.rank + 1.0)
    tensor[0] = value
    dist.all_reduce(tensor)
    wrong = (tensor[1:] != world.size * (world.size + 1) / 2).nonzero()
    assert not len(wrong), f"element {wrong[0].item() + 1} of {elements} is wrong: {tensor[wrong[0] + 1]}"
    return float(tensor[0])


def until_error(world: Any, elements: int) -> dict[str, Any]:
    """Sums, or barriers where `elements` is 0, until one fails: when and with what. A wrong sum is an assertion."""
    while True:
        try:
            _reduce(world, elements) if elements else dist.barrier()
        except RuntimeError as error:
            return {"at": time.monotonic(), "error": str(error)}


def call_until_error(world: Any, operation: str, elements: int) -> dict[str, Any]:
    """Calls of one operation until one fails; a wrong result is an assertion."""
    own, size = float(world.rank + 1), world.size
    total = size * (size + 1) / 2
    while True:
        mine, all_of = torch.full((elements,), own), torch.full((elements * size,), own)
        try:
            if operation == "reduce":
                dist.reduce(mine, size - 1)
                got, want = (mine, total) if world.rank == size - 1 else (mine[:0], 0.0)
            elif operation == "broadcast":
                dist.broadcast(mine, size - 1)
                got, want = mine, float(size)
            elif operation == "all_gather":
                dist.all_gather_into_tensor(all_of, mine)
                got, want = all_of[elements * (size - 1) :], float(size)
            elif operation == "reduce_scatter":
                dist.reduce_scatter_tensor(mine, all_of)
                got, want = mine, total
            else:
                raise ValueError(f"no operation {operation}")
        except RuntimeError as error:
            return {"at": time.monotonic(), "error": str(error)}
        assert got.eq(want).all(), f"{operation} of {elements} elements is wrong"


def send_until_error(world: Any, elements: int, to: int) -> dict[str, Any]:
    """Messages of all other ranks to rank `to`, one behind the other, until one fails."""
    while True:
        try:
            if world.rank == to:
                others = [rank for rank in range(world.size) if rank != to]
                works = [dist.irecv(torch.empty(elements), rank) for rank in others for _ in range(6)]
            else:
                works = [dist.isend(torch.ones(elements), to) for _ in range(6)]
            for work in works:
                work.wait()
        except RuntimeError as error:
            return {"at": time.monotonic(), "error": str(error)}


def start_until_error(world: Any, elements: int, folder: str) -> dict[str, Any]:
    """The same from init_process_group on, whose error counts too. A file of each rank says that all ranks have met."""
    from altorch import _backend

    create = _backend.Group._create

    def all_have_met(group: Any) -> Any:
        Path(folder, str(world.rank)).touch()
        return create(group)

    _backend.Group._create = all_have_met
    try:
        world.start(timeout=20)
    except RuntimeError as error:
        return {"at": time.monotonic(), "error": str(error)}
    return until_error(world, elements)


def reduce_for(world: Any, elements: int, seconds: float) -> float:
    """Sums for so long, by the clock of rank 0; how long the longest took."""
    end, longest = time.monotonic() + seconds, 0.0
    while True:
        began = time.monotonic()
        if _reduce(world, elements, float(world.rank == 0 and began > end)):
            return longest
        longest = max(longest, time.monotonic() - began)


def start(world: Any, elements: int, timeout: float = 60, absent: Sequence[int] = (),
          other_version: Sequence[int] = ()) -> dict[str, Any]:  # fmt: skip
    """Makes the group and uses it once: what carries it, or the error. Ranks of `absent` do not, and those of
    `other_version` have another altorch."""
    from altorch import _backend
    from altorch._extension import extension

    if world.rank in absent:
        return {"at": time.monotonic()}
    if world.rank in other_version:
        _backend.__version__ = OTHER_VERSION
    try:
        world.start(timeout=timeout)
        _reduce(world, elements)
    except RuntimeError as error:
        return {"at": time.monotonic(), "error": str(error)}
    return {"at": time.monotonic(), "carries": str(extension().describe_job())}
