# SPDX-License-Identifier: BSD-3-Clause
"""Objects between ranks: altorch.objects against torch.distributed's calls, over altorch and over Gloo.

Starts its ranks itself. The contenders take turns; figures are medians of rounds, of the slowest rank. `pickle` is the
floor of small and structured objects: a rank pickles its object once and unpickles what it gets. `copy` is the floor of
arrays: the bytes that the busiest rank receives, copied once. `--memory` measures how far the resident set of the root
grows during one call, relative to the bytes that it receives; `--checkpoint` the planning of dcp.save() and dcp.load().
"""

from __future__ import annotations

import argparse
import functools
import pickle
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from altorch import objects
from altorch.bench import clocks, process_group, rows
from altorch.bench.figures import slowest_median
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table, short_number
from benchmarks import report
from benchmarks.link import Node
from benchmarks.ranks import Emit, run_ranks

CONTENDERS = ("objects", "al", "gloo")
OPERATIONS = ("all_gather", "gather", "broadcast", "scatter")
OBJECTS: dict[str, Callable[[], Any]] = {
    "1 KiB": lambda: "x" * 1000,
    "dict of 10000": lambda: {f"key {number}": number * 1.5 for number in range(10_000)},
    "64 MiB array": lambda: np.ones(64 << 17),
    "64 MiB tensor": lambda: torch.ones(64 << 18),
}
LARGE = ("64 MiB array", "64 MiB tensor")


class Contender:
    def __init__(self, name: str) -> None:
        self.module: Any = objects if name == "objects" else dist
        self.group = dist.new_group(backend="gloo" if name == "gloo" else "al")

    def call(self, operation: str, value: Any) -> None:
        size, is_root = dist.get_world_size(), dist.get_rank() == 0
        if operation == "all_gather":
            self.module.all_gather_object([None] * size, value, group=self.group)
        elif operation == "gather":
            self.module.gather_object(value, [None] * size if is_root else None, dst=0, group=self.group)
        elif operation == "broadcast":
            self.module.broadcast_object_list([value if is_root else None], src=0, group=self.group)
        else:
            sent = [value] * size if is_root else None
            self.module.scatter_object_list([None], sent, src=0, group=self.group)

    def time(self, operation: str, value: Any, calls: int) -> float:
        """Seconds of one call, when all ranks are there."""
        dist.barrier(group=self.group)
        return clocks.on_host(lambda: [self.call(operation, value) for _ in range(calls)]) / calls


def floor(operation: str, name: str, value: Any) -> float:
    """Seconds that the busiest rank cannot save."""
    size = dist.get_world_size()
    arrive = {"all_gather": size, "gather": size, "broadcast": 1, "scatter": 1}[operation]
    if name in LARGE:
        one = torch.ones(64 << 18)
        took = [clocks.on_host(lambda: [one.clone() for _ in range(arrive)]) for _ in range(5)]
    else:
        data = pickle.dumps(value)
        took = [
            clocks.on_host(lambda: (pickle.dumps(value), [pickle.loads(data) for _ in range(arrive)]))
            for _ in range(20)
        ]
    return sorted(took)[len(took) // 2]


def work(config: Row, emit: Emit) -> None:
    torch.set_num_threads(1)
    shape = argparse.Namespace(**config)
    process_group.join("cpu", control="gloo")
    contenders = {name: Contender(name) for name in CONTENDERS}
    about = {"benchmark": "objects", "ranks": dist.get_world_size(), "device": "cpu"}
    for name in shape.objects:
        value = OBJECTS[name]()
        calls, rounds = (1, max(3, shape.rounds // 6)) if name in LARGE else (shape.calls, shape.rounds)
        for operation in OPERATIONS:
            took: dict[str, list[float]] = {each: [] for each in CONTENDERS}
            for turn in range(rounds + 1):  # the first one warms up
                for each, contender in contenders.items():
                    seconds = contender.time(operation, value, calls)
                    if turn:
                        took[each].append(seconds)
            figures = {f"{each}_us": round(slowest_median(times) * 1e6, 1) for each, times in took.items()}
            row = about | {
                "operation": operation,
                "object": name,
                "floor_us": round(floor(operation, name, value) * 1e6, 1),
            }
            if dist.get_rank() == 0:
                emit(row | figures)
    process_group.leave()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def memory_work(config: Row, emit: Emit) -> None:
    """The growth of the root's resident set during one call: its highest value, seen every millisecond."""
    process_group.join("cpu", control="gloo")
    contender = Contender(config["contender"])
    value = OBJECTS[config["object"]]()
    contender.call(config["operation"], "warm")
    dist.barrier()
    before = highest = resident()
    stop = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not stop.wait(0.001):
            highest = max(highest, resident())

    thread = threading.Thread(target=watch)
    thread.start()
    contender.call(config["operation"], value)
    highest = max(highest, resident())
    stop.set()
    thread.join()
    if dist.get_rank() == 0:
        payload = 64 * dist.get_world_size() << 20
        about = {"benchmark": "objects_memory", "ranks": dist.get_world_size(), **config}
        emit(about | {"peak_of_payload": round((highest - before) / payload, 2)})
    process_group.leave()


def checkpoint_work(config: Row, emit: Emit) -> None:
    """dcp.save() and dcp.load() of many small tensors: the whole call, and its exchange of plans."""
    torch.set_num_threads(1)
    process_group.join("cpu", control=config["control"])
    if config["objects"]:
        objects.install()
    rank = dist.get_rank()
    state = {
        f"layer.{number}.rank{rank}": torch.full((4,), float(number)) for number in range(config["tensors"])
    }
    planning = _timed_planning()
    with tempfile.TemporaryDirectory() as folder:
        where = [folder]
        dist.broadcast_object_list(where, src=0)
        figures: Row = {}
        for kind, act in (("save", dcp.save), ("load", dcp.load)):
            best = None
            for _ in range(config["rounds"]):
                planning.clear()
                dist.barrier()
                whole = clocks.on_host(functools.partial(act, state, checkpoint_id=f"{where[0]}/saved"))
                best = min(best or (9e9, 0.0), (whole, sum(planning)))
            assert best is not None
            figures |= {f"{kind}_s": round(best[0], 3), f"{kind}_planning_s": round(best[1], 3)}
        dist.barrier()
    if rank == 0:
        emit({"benchmark": "objects_checkpoint", "ranks": dist.get_world_size(), **config, **figures})
    process_group.leave()


def _timed_planning() -> list[float]:
    """What the exchange of plans takes: _DistWrapper.reduce_scatter() and its relatives, by call."""
    from torch.distributed.checkpoint.utils import _DistWrapper

    took: list[float] = []
    for name in ("reduce_scatter", "all_reduce"):
        original = getattr(_DistWrapper, name)

        def timed(self: Any, *arguments: Any, original: Any = original, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(self, *arguments, **options)
            finally:
                took.append(time.perf_counter() - began)

        setattr(_DistWrapper, name, timed)
    return took


def print_times(ranks: int, measured: list[Row]) -> None:
    columns = [
        "object",
        "operation",
        "objects [us]",
        "al [us]",
        "gloo [us]",
        "al / objects",
        "gloo / objects",
        "floor [us]",
    ]
    lines = [
        [row["object"], row["operation"]]
        + [short_number(row[f"{each}_us"]) for each in CONTENDERS]
        + [f"{row[f'{each}_us'] / row['objects_us']:.1f}" for each in ("al", "gloo")]
        + [short_number(row["floor_us"])]
        for row in measured
    ]
    print_table(f"Objects, {ranks} ranks", columns, lines, right=columns[2:])


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_ranks(parser, "4")
    parser.add_argument(
        "--nodes", type=int, default=1, help="as if the ranks were on so many (default: %(default)s)"
    )
    parser.add_argument(
        "--objects", type=lambda text: text.split(","), default=list(OBJECTS), help="default all"
    )
    parser.add_argument("--rounds", type=int, default=30, help="default %(default)s")
    parser.add_argument(
        "--calls", type=int, default=20, help="of a small object in a round; default %(default)s"
    )
    parser.add_argument("--memory", action="store_true", help="measure memory instead")
    parser.add_argument("--checkpoint", action="store_true", help="measure dcp.save() and dcp.load() instead")
    parser.add_argument(
        "--tensors", type=int, default=10_000, help="of a rank, with --checkpoint; default %(default)s"
    )
    arguments = parser.parse_args()
    rows.append(arguments.json, [report.where()])
    for ranks in arguments.ranks:
        with console().status(f"{ranks} ranks"):
            measured = _measure(arguments, ranks)
        if arguments.memory:
            columns = ["object", "operation", "contender", "peak of payload"]
            lines = [
                [row["object"], row["operation"], row["contender"], row["peak_of_payload"]]
                for row in measured
            ]
            print_table(f"Growth of the root's memory, {ranks} ranks", columns, lines)
        elif arguments.checkpoint:
            figures = ["save_s", "save_planning_s", "load_s", "load_planning_s"]
            lines = [[_checkpoint_name(row), *(row[each] for each in figures)] for row in measured]
            print_table(
                f"{arguments.tensors:,} tensors of each of {ranks} ranks", ["contender", *figures], lines
            )
        else:
            print_times(ranks, measured)
        rows.append(arguments.json, measured)


def _checkpoint_name(row: Row) -> str:
    return f"objects over {row['control']}" if row["objects"] else f"torch over {row['control']}"


def _measure(arguments: argparse.Namespace, ranks: int) -> list[Row]:
    measured: list[Row] = []
    if arguments.memory:
        for operation in ("gather", "all_gather"):
            for name in LARGE:
                for contender in CONTENDERS:
                    config = {"operation": operation, "object": name, "contender": contender}
                    measured += run_ranks(
                        "benchmarks.objects:memory_work", ranks, config, nodes=[Node()] * arguments.nodes
                    )
        return measured
    if arguments.checkpoint:
        for control, ours in (("al", True), ("al", False), ("gloo", False)):
            config = {"control": control, "objects": ours, "tensors": arguments.tensors, "rounds": 3}
            measured += run_ranks(
                "benchmarks.objects:checkpoint_work", ranks, config, nodes=[Node()] * arguments.nodes
            )
        return measured
    config = {name: getattr(arguments, name) for name in ("objects", "rounds", "calls")}
    return run_ranks("benchmarks.objects:work", ranks, config, nodes=[Node()] * arguments.nodes, deadline=900)


if __name__ == "__main__":
    main()
