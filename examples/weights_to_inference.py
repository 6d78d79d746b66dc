# SPDX-License-Identifier: BSD-3-Clause
"""Trainer ranks send their weights to inference ranks, which serve on meanwhile.

    torchrun --standalone --nproc-per-node 4 examples/weights_to_inference.py --trainers 2

The trainers train with DistributedDataParallel in a group of their own. Each inference rank has a window with two
buffers of weights: it serves from one, and the trainers put the next version into the other, a part each. The counter
behind a part tells that it has arrived, so an inference rank changes buffers between two batches and never waits, and
no batch sees parts of two versions. A signal back tells that the old buffer is free.

Prints a row for each version. Exit code 1 when a version that was served differs from the trainers' in one bit, when
weights changed while they served a batch, or when the last version is less than 90% accurate.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import altorch
from altorch import objects

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("The images come with scikit-learn: pip install 'altorch[demo]'") from None

HELD_OUT, BATCH, WANTED_ACCURACY = 360, 60, 0.9


class Weights:
    """The parameters of a model as one row of int32, whose bits can be sent, counted and compared."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )
        self.parameters = list(self.model.parameters())
        self.count = sum(parameter.numel() for parameter in self.parameters)

    @torch.no_grad()
    def row(self) -> torch.Tensor:
        return torch.cat([parameter.flatten() for parameter in self.parameters]).view(torch.int32)

    def serve_from(self, row: torch.Tensor) -> None:
        """The parameters are views of the row from now on: nothing is copied."""
        begin, floats = 0, row.view(torch.float32)
        for parameter in self.parameters:
            parameter.data = floats[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()


def digest(row: torch.Tensor) -> str:
    return hashlib.sha256(row.numpy()).hexdigest()


class Mailbox:
    """A window: at an inference rank a counter of the parts that have arrived, and two buffers."""

    def __init__(self, trainers: int, count: int) -> None:
        self.rank, self.trainers, self.count = dist.get_rank(), trainers, count
        self.servers = range(trainers, dist.get_world_size())
        self.memory = altorch.empty(1 + 2 * count if self.rank in self.servers else 0, dtype=torch.int32)
        self.window = altorch.new_window(self.memory)

    def buffer(self, version: int) -> torch.Tensor:
        return self.memory[1:].view(2, self.count)[version % 2]

    def publish(self, version: int, row: torch.Tensor) -> float:
        """A trainer's part of the row, to all inference ranks; the seconds until it has arrived."""
        begin, end = (self.count * (self.rank + each) // self.trainers for each in (0, 1))
        for server in self.servers:
            if version > 1:  # the buffer that this version takes was free at first
                self.window.wait_signal(server)
        began = time.perf_counter()
        for server in self.servers:
            place = 1 + version % 2 * self.count + begin
            self.window.put(row[begin:end], server, place, async_op=True)
        for server in self.servers:  # takes effect after the put to the same rank
            self.window.fetch_add(server, 0, 1)
        self.window.flush()  # raises what has failed
        return time.perf_counter() - began

    def newest(self) -> int:
        """The version that has arrived with all its parts. Atomic, since trainers count beside it."""
        return self.window.fetch_add(self.rank, 0, 0) // self.trainers

    def release(self) -> None:
        """An inference rank serves from a new buffer: the trainers may fill the other one."""
        for trainer in range(self.trainers):
            self.window.signal(trainer)


def train(
    mailbox: Mailbox, weights: Weights, arguments: argparse.Namespace, group: Any
) -> list[dict[str, Any]]:
    """A row for each version."""
    images, labels = data()
    images, labels = images[HELD_OUT:], labels[HELD_OUT:]
    parallel = DistributedDataParallel(weights.model, process_group=group)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=0.9)
    rows, random = [], torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, arguments.versions * arguments.steps + 1):
        mine = torch.randint(len(labels), (32,), generator=random)
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(images[mine]), labels[mine]).backward()
        optimizer.step()
        if step % arguments.steps == 0:
            version, row = step // arguments.steps, weights.row()
            seconds = mailbox.publish(version, row)
            rows.append({"version": version, "step": step, "seconds": seconds, "digest": digest(row)})
    return rows


def serve(mailbox: Mailbox, weights: Weights, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Until it has served the last version once. A row for each version that it has served."""
    images, labels = (each[:HELD_OUT] for each in data())
    rows: list[dict[str, Any]] = []
    version, batch = 0, 0
    while version < arguments.versions or rows[-1]["images"] < HELD_OUT:
        if (newest := mailbox.newest()) > version:
            version = newest
            weights.serve_from(mailbox.buffer(version))
            mailbox.release()
            rows.append({
                "version": version, "digest": digest(mailbox.buffer(version)),
                "images": 0, "right": 0, "torn": 0,
            })  # fmt: skip
        if version == 0:
            time.sleep(0.001)
            continue
        mine = slice(batch * BATCH % HELD_OUT, batch * BATCH % HELD_OUT + BATCH)
        with torch.no_grad():
            right = (weights.model(images[mine]).argmax(1) == labels[mine]).sum()
        batch += 1
        rows[-1]["torn"] += digest(mailbox.buffer(version)) != rows[-1]["digest"]
        rows[-1]["images"] += BATCH
        rows[-1]["right"] += int(right)
    return rows


def data() -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(digits.images, dtype=torch.float32).flatten(1)[order] / 16, torch.tensor(
        digits.target
    )[order]


def report(trained: list[list[dict[str, Any]]], served: list[list[dict[str, Any]]], size: int) -> int:
    """The table, and the exit code."""
    print("version  step  seconds   GB/s  inference ranks  images  accuracy")
    different = torn = 0
    accuracy = 0.0
    for ours in zip(*trained, strict=True):
        version, seconds = ours[0]["version"], max(row["seconds"] for row in ours)
        theirs = [row for rows in served for row in rows if row["version"] == version]
        different += sum(row["digest"] != ours[0]["digest"] for row in (*ours, *theirs))
        torn += sum(row["torn"] for row in theirs)
        images = sum(row["images"] for row in theirs)
        accuracy = sum(row["right"] for row in theirs) / images if images else 0.0
        rate = len(served) * size / seconds / 1e9
        print(
            f"{version:7} {ours[0]['step']:5} {seconds:8.4f} {rate:6.2f} {len(theirs):10} of {len(served)} {images:7} "
            + (f"{accuracy:9.3f}" if images else "        -")
        )
    print(f"versions that differ from the trainers' in a bit: {different}; batches from torn weights: {torn}")
    return int(different > 0 or torn > 0 or accuracy < WANTED_ACCURACY)


def main() -> int | str:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trainers", type=int, default=1, help="ranks that train; all others serve (default %(default)s)"
    )
    parser.add_argument("--width", type=int, default=1024, help="of the hidden layers (default %(default)s)")
    parser.add_argument("--versions", type=int, default=8, help="default %(default)s")
    parser.add_argument(
        "--steps", type=int, default=10, help="of training for each version (default %(default)s)"
    )
    arguments = parser.parse_args()

    dist.init_process_group("al")
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if not 0 < arguments.trainers < ranks:
        dist.destroy_process_group()
        return f"{arguments.trainers} trainers of {ranks} ranks: there must be one, and one rank that serves."
    group = dist.new_group(list(range(arguments.trainers)))
    weights = Weights(arguments.width)
    mailbox = Mailbox(arguments.trainers, weights.count)
    if rank == 0:
        print(
            f"{weights.count:,} parameters, {arguments.trainers} trainers, {len(mailbox.servers)} inference ranks, "
            f"window over {mailbox.window.route}"
        )
    if rank < arguments.trainers:
        rows = train(mailbox, weights, arguments, group)
    else:
        rows = serve(mailbox, weights, arguments)
    mailbox.window.fence()
    found: list[Any] = [None] * ranks
    objects.all_gather_object(found, rows, allow=[])
    code = (
        report(found[: arguments.trainers], found[arguments.trainers :], 4 * weights.count)
        if rank == 0
        else 0
    )
    mailbox.window.tensor_deregister()
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
