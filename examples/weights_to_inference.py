# SPDX-License-Identifier: BSD-3-Clause
"""Trainer ranks send their weights to inference ranks, which serve meanwhile.

    torchrun --standalone --nproc-per-node 4 examples/weights_to_inference.py --trainers 2

The trainers train with DistributedDataParallel in a group of their own. Each inference rank has a window with two
buffers of weights: it serves from one, and each trainer puts its slice of the next version into the other. After a
slice, the trainer increments a counter in the window. An inference rank reads the counter between two batches and
switches buffers when all slices have arrived, so it never waits, and no batch sees slices of two versions. A signal
tells the trainers that the old buffer is free.

Prints a row for each version. Exit code 1 when a version that was served differs from the trainers' in one bit, when
weights changed during a batch, or when the last version is less than 90% accurate.
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
Record = dict[str, Any]  # what one rank knows of one version


class Weights:
    """A model whose parameters can be sent and compared as one tensor of int32, bit by bit."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )
        self.parameters = list(self.model.parameters())
        self.count = sum(parameter.numel() for parameter in self.parameters)

    @torch.no_grad()
    def flattened(self) -> torch.Tensor:
        return torch.cat([parameter.flatten() for parameter in self.parameters]).view(torch.int32)

    def use_buffer(self, buffer: torch.Tensor) -> None:
        """The parameters become views of the buffer: nothing is copied."""
        begin, floats = 0, buffer.view(torch.float32)
        for parameter in self.parameters:
            parameter.data = floats[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()


def digest(weights: torch.Tensor) -> str:
    return hashlib.sha256(weights.numpy()).hexdigest()


class WeightWindow:
    """A window in which inference ranks receive weights.

    On an inference rank it holds a counter of slices that have arrived, then the two buffers; version v goes into
    buffer v % 2. On a trainer it is empty.
    """

    def __init__(self, trainers: int, count: int) -> None:
        self.rank, self.trainers, self.count = dist.get_rank(), trainers, count
        self.inference_ranks = range(trainers, dist.get_world_size())
        elements = 1 + 2 * count if self.rank in self.inference_ranks else 0
        self.memory = altorch.empty(elements, dtype=torch.int32)
        self.window = altorch.new_window(self.memory)

    def publish(self, version: int, weights: torch.Tensor) -> float:
        """Trainer: puts its slice on all inference ranks. Returns the seconds until it has arrived."""
        if version > 1:  # at first both buffers are free
            for rank in self.inference_ranks:
                self.window.wait_signal(rank)
        begin, end = (self.count * (self.rank + each) // self.trainers for each in (0, 1))
        offset = 1 + version % 2 * self.count + begin
        began = time.perf_counter()
        for rank in self.inference_ranks:
            self.window.put(weights[begin:end], rank, offset, async_op=True)
        for rank in self.inference_ranks:  # takes effect after the put to the same rank
            self.window.fetch_add(rank, 0, 1)
        self.window.flush()  # raises if a put failed
        return time.perf_counter() - began

    def newest_version(self) -> int:
        """Inference rank: the version whose slices have all arrived. Atomic, because trainers add meanwhile."""
        return self.window.fetch_add(self.rank, 0, 0) // self.trainers

    def buffer(self, version: int) -> torch.Tensor:
        return self.memory[1:].view(2, self.count)[version % 2]

    def release_other_buffer(self) -> None:
        """Inference rank: it serves from the newest buffer, so the trainers may fill the other one."""
        for trainer in range(self.trainers):
            self.window.signal(trainer)

    def close(self) -> None:
        self.window.tensor_deregister()


def shuffled_digits() -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    return images[order], torch.tensor(digits.target)[order]


def train(window: WeightWindow, weights: Weights, arguments: argparse.Namespace, group: Any) -> list[Record]:
    """Publishes a version after every `--steps` steps. Returns a record for each version."""
    images, labels = (each[HELD_OUT:] for each in shuffled_digits())
    parallel = DistributedDataParallel(weights.model, process_group=group)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=0.9)
    records, random = [], torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, arguments.versions * arguments.steps + 1):
        batch = torch.randint(len(labels), (32,), generator=random)
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(images[batch]), labels[batch]).backward()
        optimizer.step()
        if step % arguments.steps == 0:
            version, flattened = step // arguments.steps, weights.flattened()
            seconds = window.publish(version, flattened)
            records.append({
                "version": version, "step": step, "seconds": seconds, "digest": digest(flattened)
            })  # fmt: skip
    return records


def switch_to(version: int, window: WeightWindow, weights: Weights) -> Record:
    buffer = window.buffer(version)
    weights.use_buffer(buffer)
    window.release_other_buffer()
    return {"version": version, "digest": digest(buffer), "images": 0, "right": 0, "torn": 0}


@torch.no_grad()
def serve_batch(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, number: int) -> int:
    """How many images of this batch the model recognises."""
    begin = number * BATCH % HELD_OUT
    batch = slice(begin, begin + BATCH)
    return int((model(images[batch]).argmax(1) == labels[batch]).sum())


def serve(window: WeightWindow, weights: Weights, arguments: argparse.Namespace) -> list[Record]:
    """Serves until the last version has seen every image. Returns a record for each version that it served."""
    images, labels = (each[:HELD_OUT] for each in shuffled_digits())
    records: list[Record] = []
    version, batch = 0, 0
    while version < arguments.versions or records[-1]["images"] < HELD_OUT:
        if (newest := window.newest_version()) > version:
            version = newest
            records.append(switch_to(version, window, weights))
        if version == 0:
            time.sleep(0.001)
            continue
        record = records[-1]
        record["right"] += serve_batch(weights.model, images, labels, batch)
        record["images"] += BATCH
        record["torn"] += digest(window.buffer(version)) != record["digest"]
        batch += 1
    return records


def print_version(trained: list[Record], served: list[Record], inference_ranks: int, size: int) -> float:
    """A row of the table. Returns the accuracy of this version."""
    seconds = max(record["seconds"] for record in trained)
    rate = inference_ranks * size / seconds / 1e9
    images = sum(record["images"] for record in served)
    accuracy = sum(record["right"] for record in served) / images if images else 0.0
    print(
        f"{trained[0]['version']:7} {trained[0]['step']:5} {seconds:8.4f} {rate:6.2f} "
        f"{len(served):10} of {inference_ranks} {images:7} " + (f"{accuracy:9.3f}" if images else "        -")
    )
    return accuracy


def report(trained: list[list[Record]], served: list[list[Record]], size: int) -> int:
    """Prints the table. `size`: bytes of a version. Returns the exit code."""
    print("version  step  seconds   GB/s  inference ranks  images  accuracy")
    different = torn = 0
    accuracy = 0.0
    for of_trainers in zip(*trained, strict=True):
        version, expected = of_trainers[0]["version"], of_trainers[0]["digest"]
        of_servers = [record for records in served for record in records if record["version"] == version]
        different += sum(record["digest"] != expected for record in (*of_trainers, *of_servers))
        torn += sum(record["torn"] for record in of_servers)
        accuracy = print_version(list(of_trainers), of_servers, len(served), size)
    print(f"versions that differ from the trainers' in a bit: {different}; batches from torn weights: {torn}")
    return int(different > 0 or torn > 0 or accuracy < WANTED_ACCURACY)


def train_or_serve(arguments: argparse.Namespace) -> int:
    """Returns the exit code: on rank 0, that of the report."""
    rank, ranks, trainers = dist.get_rank(), dist.get_world_size(), arguments.trainers
    group = dist.new_group(list(range(trainers)))
    weights = Weights(arguments.width)
    window = WeightWindow(trainers, weights.count)
    if rank == 0:
        print(
            f"{weights.count:,} parameters, {trainers} trainers, {ranks - trainers} inference ranks, "
            f"window over {window.window.route}"
        )
    is_trainer = rank < trainers
    own = train(window, weights, arguments, group) if is_trainer else serve(window, weights, arguments)
    window.window.fence()
    records: list[Any] = [None] * ranks
    objects.all_gather_object(records, own, allow=[])
    code = report(records[:trainers], records[trainers:], 4 * weights.count) if rank == 0 else 0
    window.close()
    return code


def parse_arguments() -> argparse.Namespace:
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
    return parser.parse_args()


def main() -> int | str:
    arguments = parse_arguments()
    dist.init_process_group("al")
    torch.set_num_threads(1)
    ranks = dist.get_world_size()
    if 0 < arguments.trainers < ranks:
        result: int | str = train_or_serve(arguments)
    else:
        result = (
            f"{arguments.trainers} trainers of {ranks} ranks: there must be one, and one rank that serves."
        )
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    sys.exit(main())
