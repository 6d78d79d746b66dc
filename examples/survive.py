# SPDX-License-Identifier: BSD-3-Clause
"""Trains on while ranks are lost: the ranks that are left find each other, go back to the last checkpoint and go on.

    python examples/survive.py --ranks 4 --lose 3@40 0@90

Starts its ranks itself, since torchrun would end all of them at the first loss. Rank 3 dies in step 40, rank 0, which
hosts the store, in step 90, as if the kernel had killed them for want of memory. Every step is one of gradient descent
over all images, divided among the ranks that there are, so losing ranks changes nothing but the order of sums: ends
with exit code 1 when the loss is not that of one undisturbed process, within 1e-3 of it.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

import altorch

TOLERANCE = 1e-3  # of the loss, relative: float32 sums in another order, for some hundred steps
CHECKPOINT_EVERY = 10


class Training:
    """Model, optimizer and step, as one process or as one rank of several; they go through a file."""

    def __init__(self, checkpoint: Path) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        digits = load_digits()
        self.images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
        self.labels = torch.tensor(digits.target)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2, momentum=0.9)
        self.checkpoint = checkpoint
        self.step = 0

    def save(self) -> None:
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        whole = self.checkpoint.with_suffix(".new")
        torch.save(state, whole)
        whole.replace(self.checkpoint)  # a rank that dies here leaves the checkpoint before

    def load(self) -> None:
        state = torch.load(self.checkpoint)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def gradients(self, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of this rank's share of the images, with its share of the loss behind them."""
        self.optimizer.zero_grad()
        share = slice(rank, None, size)
        loss = nn.functional.cross_entropy(
            self.model(self.images[share]), self.labels[share], reduction="sum"
        )
        (loss / len(self.labels)).backward()
        parts = [
            parameter.grad.flatten() for parameter in self.model.parameters() if parameter.grad is not None
        ]
        return torch.cat(parts), loss.detach() / len(self.labels)

    def descend(self, gradient: torch.Tensor) -> None:
        begin = 0
        for parameter in self.model.parameters():
            parameter.grad = gradient[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()
        self.optimizer.step()
        self.step += 1


def undisturbed(steps: int, checkpoint: Path) -> float:
    training = Training(checkpoint)
    for _ in range(steps):
        gradient, loss = training.gradients(0, 1)
        training.descend(gradient)
    return loss.item()


def run_rank(arguments: argparse.Namespace) -> None:
    """What every rank does; the one that is rank 0 at the end writes the loss down."""
    dist.init_process_group("al", timeout=timedelta(seconds=60))
    me = dist.get_rank()  # in the beginning
    end = {int(step) for rank, step in (each.split("@") for each in arguments.lose) if int(rank) == me}
    training = Training(arguments.checkpoint)
    if me == 0:
        training.save()
    dist.barrier()
    loss = torch.zeros(())
    while training.step < arguments.steps:
        try:
            if training.step in end:
                os.kill(os.getpid(), signal.SIGKILL)
            gradient, loss = training.gradients(dist.get_rank(), dist.get_world_size())
            dist.all_reduce(gradient)
            dist.all_reduce(loss)
            training.descend(gradient)
            if training.step % CHECKPOINT_EVERY == 0:
                if dist.get_rank() == 0:
                    training.save()
                    print(
                        f"step {training.step:4d}   {dist.get_world_size()} ranks   loss {loss.item():.5f}",
                        flush=True,
                    )
                dist.barrier()
        except dist.DistBackendError as error:
            failed_in, began = training.step, time.perf_counter()
            altorch.survivors(patience=timedelta(seconds=20))
            seconds = time.perf_counter() - began
            training.load()
            if dist.get_rank() == 0:
                print(f"  lost: {error}", flush=True)
                print(
                    f"  {dist.get_world_size()} ranks go on after {seconds:.2f} s, from step {training.step} "
                    f"(they were in step {failed_in})",
                    flush=True,
                )
    if dist.get_rank() == 0:
        arguments.checkpoint.with_suffix(".loss").write_text(str(loss.item()))
    dist.destroy_process_group()


def start(arguments: argparse.Namespace, checkpoint: Path) -> list[int]:
    """Starts the ranks and waits for them; their exit codes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "WORLD_SIZE": str(arguments.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # torch logs a page for every connection that breaks
        "TORCH_FR_DUMP_ON_TIMEOUT": "0",
    }
    command = [sys.executable, __file__, "--steps", str(arguments.steps), "--checkpoint", str(checkpoint)]
    ranks = [
        subprocess.Popen([*command, "--lose", *arguments.lose], env=environment | {"RANK": str(rank)})
        for rank in range(arguments.ranks)
    ]
    try:
        return [process.wait(timeout=300) for process in ranks]
    finally:
        for process in ranks:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument(
        "--lose",
        nargs="*",
        default=["3@40", "0@90"],
        metavar="RANK@STEP",
        help="ranks, as they were numbered in the beginning, and the step in which they die",
    )
    parser.add_argument("--checkpoint", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if "RANK" in os.environ and arguments.checkpoint:
        run_rank(arguments)
        return 0
    lost = {int(each.split("@")[0]) for each in arguments.lose}
    if not all(0 <= rank < arguments.ranks for rank in lost) or len(lost) >= arguments.ranks:
        parser.error(f"--lose: {arguments.ranks} ranks cannot lose {sorted(lost)} and go on")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        codes = start(arguments, checkpoint)
        bad = [rank for rank, code in enumerate(codes) if code != (-signal.SIGKILL if rank in lost else 0)]
        if bad:
            print(f"ranks {bad} did not end as they should: exit codes {codes}")
            return 1
        loss = float(checkpoint.with_suffix(".loss").read_text())
        wanted = undisturbed(arguments.steps, checkpoint)
    print(f"loss {loss:.6f} with {len(lost)} of {arguments.ranks} ranks lost, {wanted:.6f} undisturbed")
    return 0 if abs(loss - wanted) <= TOLERANCE * wanted else 1


if __name__ == "__main__":
    sys.exit(main())
