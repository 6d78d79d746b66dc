# SPDX-License-Identifier: BSD-3-Clause
"""What the programs of these tests have in common; their ranks import it as `program`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TURNS, STEPS = 5, 10
TURN_TIMEOUT = 240  # seconds to wait for the ranks over the other backend
DEVICE = os.environ.get("DEVICE", "cpu")
SIDES = ("al", "gloo") if DEVICE == "cpu" else ("al", "nccl")


def start() -> tuple[int, int]:
    dist.init_process_group(os.environ["BACKEND"])
    return dist.get_rank(), dist.get_world_size()


def made_by(group: Any = None) -> str:
    """The module of the backend behind a group: altorch's own, whatever name the program asked for."""
    return type((group or dist.group.WORLD)._get_backend(torch.device(DEVICE))).__module__


def total(parameters: Any) -> float:
    """Sum of all elements, of whole tensors where they are sharded."""
    whole = (each.full_tensor() if hasattr(each, "full_tensor") else each for each in parameters)
    return sum(each.detach().double().sum().item() for each in whole)


def report(**figures: Any) -> None:
    """Rank 0 prints the figures on the last line, or writes them to $REPORT, under launchers that keep the output."""
    if dist.get_rank() == 0:
        line = json.dumps({"by": made_by(), **figures})
        if "REPORT" in os.environ:
            Path(os.environ["REPORT"]).write_text(line)
        else:
            print(f"\n{line}", flush=True)


def time_steps(step: Callable[[], Any]) -> None:
    """Times `step` in turns with the ranks of the same program over the other backend, where the test asks for it.

    The ranks of one side sleep outside of any collective while the other side measures.
    """
    if not os.environ.get("TURNS"):
        return
    folder, side, rank = Path(os.environ["TURNS"]), os.environ["SIDE"], dist.get_rank()
    for _ in range(3):
        step()
    (folder / f"ready-{side}-{rank}").touch()
    _wait(lambda: len(list(folder.glob("ready-*"))) == len(SIDES) * dist.get_world_size())
    seconds = []
    for turn in range(TURNS):
        number = turn * len(SIDES) + SIDES.index(side)
        _wait(lambda number=number: number == 0 or (folder / f"done-{number - 1}").exists())
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begin) / STEPS)
        dist.barrier()
        if rank == 0:
            (folder / f"done-{number}").touch()
    if rank == 0:
        (folder / f"times-{side}").write_text(json.dumps(seconds))


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TURN_TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ranks over the other backend took no turn within {TURN_TIMEOUT} s")
        time.sleep(0.002)
