# SPDX-License-Identifier: BSD-3-Clause
"""A training run whose every sum is exact, however many ranks share it: each of them knows what has to come out."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

ITEMS = 24  # of a batch, divided among the ranks
SIZES = (3, 50_003)  # of the gradient, by turns: one message or line, and many pieces
SAVE_EVERY = 50


class WrongResult(Exception):
    """What came out of a collective is not what had to."""


def gradient(step: int, items: range) -> torch.Tensor:
    """Whole numbers, which float32 adds without an error in any order."""
    numbers = torch.arange(SIZES[step % 2], dtype=torch.int64)
    total = torch.zeros(numbers.numel(), dtype=torch.int64)
    for item in items:
        total += (numbers + item * 7919 + step * 104_729) % 13
    return total.float()


class Training:
    """Weights after so many steps, in this process and in a file."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.step, self.weights = 0, torch.zeros(max(SIZES), dtype=torch.float64)
        if checkpoint.exists():
            state = torch.load(checkpoint)
            self.step, self.weights = state["step"], state["weights"]

    def learn(self, total: torch.Tensor) -> None:
        self.weights[: total.numel()] += total
        self.step += 1

    def save(self) -> None:
        whole = self.checkpoint.with_suffix(".new")
        torch.save({"step": self.step, "weights": self.weights}, whole)
        whole.replace(self.checkpoint)  # a rank that dies here leaves the one before

    def agree(self) -> None:
        """Ranks failed at different places, and some are new: all take what the farthest has."""
        steps = torch.empty(dist.get_world_size(), dtype=torch.int64)
        dist.all_gather_into_tensor(steps, torch.tensor([self.step]))
        farthest = int(steps.argmax())
        dist.broadcast(self.weights, group_src=farthest)
        self.step = int(steps[farthest])

    def train(self) -> None:
        """One step, over all ranks; asynchronous now and then."""
        rank, size = dist.get_rank(), dist.get_world_size()
        total = gradient(self.step, range(rank, ITEMS, size))
        work = dist.all_reduce(total, async_op=self.step % 3 == 0)
        if work is not None:
            work.wait()
        if not torch.equal(total, gradient(self.step, range(ITEMS))):
            raise WrongResult(f"the sum of step {self.step} over {size} ranks")
        self.learn(total)
        if rank == 0 and self.step % SAVE_EVERY == 0:
            self.save()


def undisturbed(steps: int, folder: Path) -> torch.Tensor:
    """The weights of one process that no fault disturbed."""
    alone = Training(folder / "none")
    while alone.step < steps:
        alone.learn(gradient(alone.step, range(ITEMS)))
    return alone.weights
