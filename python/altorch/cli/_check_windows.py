# SPDX-License-Identifier: BSD-3-Clause
"""Windows, as `altorch check` runs them: by each route that may carry them, not only by the one that is taken unasked.

A route that the group cannot have is passed over by all its ranks alike. That is no mistake: the case then says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import altorch
from altorch._extension import extension
from altorch.cli._check_cases import Case, data, same

# Never tried here: they are only for users who name them in ALTORCH_ROUTE.
_ONLY_ASKED = ("nccl", "nvshmem")


def cases(gpus: bool) -> tuple[Case, ...]:
    """The same on all ranks, as `gpus` has to be: whether each of them has one."""
    rows = [(row["name"], row["device"]) for row in extension().window_routes()]
    return tuple(
        Case(f"windows by {name}", over(name, device))
        for name, device in rows
        if name not in _ONLY_ASKED and (gpus or device == "cpu")
    )


def over(route: str, device: str) -> Callable[[int, int], str]:
    def run(rank: int, size: int) -> str:
        served, unsupported_reason = False, ""
        # What the system has to copy, and what the other ranks can map.
        for make in (torch.zeros, altorch.empty):
            kept = _tensor(make, device)
            try:
                with _asked_for(route):
                    window = altorch.new_window(kept)
            except NotImplementedError as error:  # on all ranks alike: no route serves these GPUs
                unsupported_reason = str(error)
                continue
            if window.route == route:
                served = True
                _moves(window, kept, rank, size)
                if device == "cpu":  # links between GPUs may have no atomic operations
                    _counts(window, kept, rank, size)
            else:
                unsupported_reason = f"{window.route} carries them here"
            window.tensor_deregister()
        return "" if served else unsupported_reason

    return run


def _tensor(make: Callable[..., torch.Tensor], device: str) -> torch.Tensor:
    try:
        return make(1001, dtype=torch.int64, device=device).zero_()
    except NotImplementedError:  # no rank can map this GPU's memory; the others come all the same
        return torch.zeros(1001, dtype=torch.int64, device=device)


@contextmanager
def _asked_for(route: str) -> Iterator[None]:
    """The first rule for windows counts; what the user says of other operations stays."""
    before = os.environ.get("ALTORCH_ROUTE")
    os.environ["ALTORCH_ROUTE"] = ",".join(filter(None, (f"window={route}", before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["ALTORCH_ROUTE"]
        else:
            os.environ["ALTORCH_ROUTE"] = before


def _moves(window: Any, kept: torch.Tensor, rank: int, size: int) -> None:
    after, before = (rank + 1) % size, (rank - 1) % size
    window.put_signal(data(rank, 1000, torch.int64).to(kept.device), after, 1)
    window.wait_signal(before)
    same(kept[1:].cpu(), data(before, 1000, torch.int64))
    back = torch.empty(1000, dtype=torch.int64, device=kept.device)
    window.get(back, after, 1)
    same(back.cpu(), data(rank, 1000, torch.int64))
    window.fence()


def _counts(window: Any, kept: torch.Tensor, rank: int, size: int) -> None:
    window.fetch_add(0, 0, 1)
    window.accumulate(torch.ones(1000, dtype=torch.int64), 0, 1)
    window.fence()
    if rank == 0:
        same(kept, torch.cat([torch.tensor([size]), data((rank - 1) % size, 1000, torch.int64) + size]))
