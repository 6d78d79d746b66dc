# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small convolutional network on scikit-learn's handwritten digits with DistributedDataParallel.

    torchrun --standalone --nproc-per-node 2 examples/digits_ddp.py

Prints loss and held-out accuracy per epoch and then what the backend did; ends with exit code 1 when the ranks'
weights differ in a single bit or the accuracy is below 0.95. `import altorch` is there for the table at the end and
for `--quantize`.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import altorch
import altorch.ops

WANTED_ACCURACY = 0.95
console = Console(highlight=False)


def load(held_out: int = 360) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """1797 images of 8 x 8 pixels, shuffled the same way on every rank."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[order] / 16
    labels = torch.tensor(digits.target)[order]
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 16, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Every rank judges its share of the held-out images; the counts are added up."""
    rank, size = dist.get_rank(), dist.get_world_size()
    model.eval()
    with torch.no_grad():
        right = (model(images[rank::size]).argmax(1) == labels[rank::size]).sum()
    dist.all_reduce(right)
    return right.item() / len(labels)


def train(model: nn.Module, epochs: int, batch: int, quantize: str | None = None) -> float:
    rank, size = dist.get_rank(), dist.get_world_size()
    images, labels, held_images, held_labels = load()
    parallel = DistributedDataParallel(model)
    if quantize:
        bits = 8 if quantize == "8" else quantize
        parallel.register_comm_hook(None, altorch.ops.quantized_ddp_hook(bits))
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=2e-3)
    steps = len(images) // (batch * size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=epochs * steps)
    reached = 0.0
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=rank != 0,
        transient=True,
    ) as progress:
        bar = progress.add_task("training", total=epochs * steps)
        for epoch in range(1, epochs + 1):
            parallel.train()
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
            total = torch.zeros(())
            for step in range(steps):
                mine = order[step * batch * size :][rank : batch * size : size]
                loss = nn.functional.cross_entropy(parallel(images[mine]), labels[mine])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.detach()
                progress.advance(bar)
            dist.all_reduce(total)
            mean = total.item() / steps / size
            reached = accuracy(model, held_images, held_labels)
            if rank == 0:
                progress.console.print(
                    f"epoch {epoch:2d}   loss {mean:.4f}   held-out accuracy {reached:.4f}"
                )
    return reached


def weights_agree(model: nn.Module) -> bool:
    """Compares the bits of all ranks' parameters. Batch statistics are left out: DDP broadcasts them before a step."""
    bits = torch.cat([parameter.detach().reshape(-1).view(torch.int32) for parameter in model.parameters()])
    all_ranks = [torch.empty_like(bits) for _ in range(dist.get_world_size())]
    dist.all_gather(all_ranks, bits)
    return all(torch.equal(all_ranks[0], other) for other in all_ranks[1:])


def print_statistics(seconds: float) -> None:
    """What the backend did on this rank."""
    table = Table(title="Collectives on rank 0", title_justify="left")
    table.add_column("operation")
    for column in ("count", "bytes"):
        table.add_column(column, justify="right")
    table.add_column("route")
    table.add_column("share of time", justify="right")
    rows = altorch.stats()
    for row in sorted(rows, key=lambda row: -row["seconds"]):
        table.add_row(
            row["operation"],
            f"{row['count']:,}",
            f"{row['bytes']:,}",
            row["route"],
            f"{row['seconds'] / seconds:.1%}",
        )
    console.print(table if rows else "No collective was counted: another backend than al carried them.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="al")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="images of one rank and step")
    parser.add_argument("--quantize", choices=["8", "fp8"], help="gradients travel as int8, or as float8")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    model = network()
    if rank == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        console.print(f"{size} ranks, backend {dist.get_backend()}, {count:,} parameters")
    began = time.perf_counter()
    reached = train(model, arguments.epochs, arguments.batch, arguments.quantize)
    seconds = time.perf_counter() - began
    agree = weights_agree(model)
    if rank == 0:
        print_statistics(seconds)
        console.print(f"held-out accuracy {reached:.4f} after {seconds:.1f} s (wanted: {WANTED_ACCURACY})")
        console.print(f"weights of all ranks, bit by bit: {'equal' if agree else 'DIFFERENT'}")
    dist.destroy_process_group()
    return 0 if agree and reached >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
