# SPDX-License-Identifier: BSD-3-Clause
"""Trains a network on handwritten digits so that its weights do not depend on the number of ranks, in a single bit.

    for n in 1 2 4; do torchrun --standalone --nproc-per-node $n examples/exact_digits.py; done

Each step takes four shards of a batch, of the same samples with 1, 2 and 4 ranks. A rank computes the gradient of each
of its shards alone, and the gradients of all four are averaged exactly (docs/exact.md): by all_reduce where each rank
has one, by an all_gather and altorch.ops.exact_sum where a rank has several. Prints the accuracy and a hash of the
weights. `--ordinary` averages as usual: the hash then depends on the number of ranks.
"""

from __future__ import annotations

import argparse
import hashlib
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

import altorch
import altorch.ops

SHARDS, IMAGES = 4, 16  # of a step; of a shard
HELD_OUT = 357


def load() -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(digits.images, dtype=torch.float32).flatten(1)[order] / 16, torch.tensor(
        digits.target
    )[order]


def gradient(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The gradient of one shard, as a vector. A shard has the same shape, and so the same bits, on every rank."""
    model.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    return torch.cat(
        [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    )


def average_exactly(shards: torch.Tensor) -> torch.Tensor:
    """The mean of all ranks' shards, rounded once."""
    if len(shards) == 1:
        dist.all_reduce(shards, dist.ReduceOp.AVG)
        return shards[0]
    all_shards = torch.empty(SHARDS, shards.shape[1])
    dist.all_gather_into_tensor(all_shards, shards)
    return altorch.ops.exact_sum(all_shards, mean=True)


def average_as_usual(shards: torch.Tensor) -> torch.Tensor:
    mean = shards.mean(0)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--ordinary", action="store_true", help="average as usual: the hash depends on the ranks"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options = altorch.Options(deterministic=None if arguments.ordinary else "exact")
    dist.init_process_group("al", pg_options=options)
    rank, size = dist.get_rank(), dist.get_world_size()
    if SHARDS % size:
        parser.error(f"{SHARDS} shards cannot be shared by {size} ranks; start 1, 2 or 4")
    own = range(rank * SHARDS // size, (rank + 1) * SHARDS // size)
    images, labels = load()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    average = average_as_usual if arguments.ordinary else average_exactly
    for step in range(arguments.steps):
        order = (
            torch.randperm(len(labels) - HELD_OUT, generator=torch.Generator().manual_seed(step)) + HELD_OUT
        )
        parts = [order[shard * IMAGES : (shard + 1) * IMAGES] for shard in own]
        mean = average(torch.stack([gradient(model, images[part], labels[part]) for part in parts]))
        for parameter, piece in zip(
            model.parameters(), mean.split([p.numel() for p in model.parameters()]), strict=True
        ):
            parameter.grad = piece.view_as(parameter).clone()
        optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    right = (model(images[:HELD_OUT]).argmax(1) == labels[:HELD_OUT]).float().mean().item()
    if rank == 0:
        name = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
        print(f"{size} ranks, {arguments.steps} steps: held-out accuracy {right:.4f}, weights {name}")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
