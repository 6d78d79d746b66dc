# SPDX-License-Identifier: BSD-3-Clause
"""Weights from one trainer to processes that infer with them: torch's transport "al" beside broadcasts of a group.

    python -m benchmarks.weights --json results.jsonl

read          the receivers read the trainer's tensors through the transport, which need no common group
written       the trainer writes into the receivers' tensors, one after another
gloo, al      one broadcast for each tensor, asynchronous, in a group of all; the floor of `al` is shared memory's
memcpy        the floor: a process copies the tensors for itself, all of them at the same time

2 GiB in 500 tensors by default. Ways take turns; a figure is the median of rounds, from a barrier to the slowest
receiver's last tensor, as GiB/s that each receiver got. More processes than cores share them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from altorch.bench import process_group, rows
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table
from benchmarks import report
from benchmarks.ranks import Emit, run_ranks

WAYS = ("read", "written", "al", "gloo", "memcpy")
TRAINER = 0


class Weights:
    def __init__(self, total: int, number: int) -> None:
        self.tensors = [torch.ones(total // number, dtype=torch.uint8) for _ in range(number)]
        self.others = [torch.zeros_like(each) for each in self.tensors]
        self.groups = {name: dist.new_group(backend=name) for name in ("al", "gloo")}
        self.connect()

    def connect(self) -> None:
        from torch.distributed._transport import new_transport_rank

        from altorch.transport import AlRemoteBuffer

        store = dist.distributed_c10d._get_default_store()
        rank, receivers = dist.get_rank(), range(1, dist.get_world_size())
        peers = receivers if rank == TRAINER else [TRAINER]
        self.ends = {}
        for peer in peers:
            end = new_transport_rank("al", store=store, peer_rank=peer)
            views = [end.register_memory(each) for each in self.tensors]
            text = b"\n".join(view.to_remote_buffer().serialize() for view in views)
            store.set(f"weights/{rank}/{peer}", text)
            theirs = store.get(f"weights/{peer}/{rank}").split(b"\n")
            self.ends[peer] = (
                end,
                [view.to_mutable_view() for view in views],
                [AlRemoteBuffer.deserialize(each) for each in theirs],
            )

    def read(self) -> None:
        for end, views, buffers in self.ends.values() if dist.get_rank() != TRAINER else ():
            for view, buffer in zip(views, buffers, strict=True):
                end.read(view, buffer)

    def written(self) -> None:
        for end, views, buffers in self.ends.values() if dist.get_rank() == TRAINER else ():
            for view, buffer in zip(views, buffers, strict=True):
                end.write(view, buffer)

    def broadcast(self, name: str) -> None:
        group = self.groups[name]
        for work in [dist.broadcast(each, TRAINER, group=group, async_op=True) for each in self.tensors]:
            work.wait()

    def memcpy(self) -> None:
        for each, other in zip(self.tensors, self.others, strict=True) if dist.get_rank() != TRAINER else ():
            other.copy_(each)

    def way(self, name: str) -> Callable[[], None]:
        return (lambda: self.broadcast(name)) if name in self.groups else getattr(self, name)


def work(config: Row, emit: Emit) -> None:
    shape = argparse.Namespace(**config)
    process_group.join("cpu", control="gloo")
    weights = Weights(shape.bytes, shape.tensors)
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(shape.rounds + 1):  # the first is to warm up
        for name in WAYS:
            dist.barrier()
            began = time.perf_counter()
            weights.way(name)()
            dist.barrier()
            taken[name].append(time.perf_counter() - began)
    if dist.get_rank() == TRAINER:
        about = {
            "benchmark": "weights",
            "device": "cpu",
            "ranks": dist.get_world_size(),
            "bytes": shape.bytes,
        }
        for name, seconds in taken.items():
            median = statistics.median(seconds[1:])
            emit(
                about
                | {
                    "operation": "weights",
                    "contender": name,
                    "tensors": shape.tensors,
                    "median_us": median * 1e6,
                }
            )
    process_group.leave()


def main() -> None:
    parser = report.parser_of(__doc__)
    parser.add_argument("--receivers", type=int, default=2, help="default %(default)s")
    parser.add_argument("--bytes", type=int, default=2 << 30, help="default %(default)s")
    parser.add_argument("--tensors", type=int, default=500, help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default %(default)s")
    arguments = parser.parse_args()
    rows.append(arguments.json, [report.where()])
    config = {name: getattr(arguments, name) for name in ("bytes", "tensors", "rounds")}
    with console().status(f"{arguments.receivers} receivers"):
        measured = run_ranks("benchmarks.weights:work", 1 + arguments.receivers, config)
    rows.append(arguments.json, measured)
    seconds = {row["contender"]: row["median_us"] / 1e6 for row in measured}
    print_table(
        f"{arguments.bytes / 2**30:.2f} GiB in {arguments.tensors} tensors to {arguments.receivers} receivers",
        ["way", "ms", "GiB/s each", "of memcpy", "against gloo"],
        [
            [
                name,
                f"{1000 * took:.0f}",
                f"{arguments.bytes / took / 2**30:.2f}",
                f"{seconds['memcpy'] / took:.2f}",
                f"{seconds['gloo'] / took:.2f}x",
            ]
            for name, took in seconds.items()
        ],
        right=["ms", "GiB/s each", "of memcpy", "against gloo"],
    )


if __name__ == "__main__":
    main()
