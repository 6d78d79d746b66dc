# SPDX-License-Identifier: BSD-3-Clause
"""What one-sided access to CPU tensors takes, beside messages: windows of two ranks, through torch.

Starts its ranks itself. Per contender and size: half of a ping-pong (a put with a signal, and the peer's wait for it;
of messages, a send and its recv), and the bandwidth of one rank's puts, the last of which the peer answers. Contenders
take turns; figures are 10th percentiles of rounds. The floors: `call`, what a method of a window takes that does
nothing (`flush`), and `memcpy`, what torch's copy_ takes for as many bytes in one process.

mapped             a window over altorch.empty(): the peer's memory, written as one's own
plain              a window over an ordinary tensor: the system copies
messages           a window without shared memory (ALTORCH_SHM_BYTES=0)
al, gloo           send and recv
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

import altorch
from altorch.bench import process_group, rows
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table, short_number
from benchmarks import report
from benchmarks.one_sided import OverMessages, OverWindow, ping_pong
from benchmarks.ranks import Emit, run_ranks

WINDOWS = ("mapped", "plain", "messages")
MESSAGES = ("al", "gloo")


class NamedWindow(OverWindow):
    def __init__(self, name: str, most: int) -> None:
        if name == "messages":
            os.environ["ALTORCH_SHM_BYTES"] = "0"
        self.name = name
        group = dist.new_group(backend="al")
        kept = (
            altorch.empty(most, dtype=torch.uint8)
            if name == "mapped"
            else torch.zeros(most, dtype=torch.uint8)
        )
        super().__init__(altorch.new_window(kept, group))
        os.environ.pop("ALTORCH_SHM_BYTES", None)


class NamedMessages(OverMessages):
    def __init__(self, name: str, _: int) -> None:
        super().__init__(dist.new_group(backend=name))
        self.name = name


def repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


def seconds_of(issue: Callable[[], None]) -> float:
    dist.barrier()
    began = time.perf_counter()
    issue()
    return time.perf_counter() - began


def tenth(values: list[float]) -> float:
    return statistics.quantiles(values, n=10)[0]


def work(config: Row, emit: Emit) -> None:
    shape = argparse.Namespace(**config)
    process_group.join("cpu", control="al")
    most = max(shape.sizes)
    ways = [(NamedWindow if name in WINDOWS else NamedMessages)(name, most) for name in shape.contenders]
    about = {"benchmark": "windows", "ranks": 2, "device": "cpu", "dtype": "uint8"}
    window = altorch.new_window(torch.zeros(1))
    idle = [seconds_of(partial(repeat, window.flush, 1000)) / 1000 for _ in range(shape.rounds)]
    if dist.get_rank() == 0:
        emit(about | {"operation": "call", "contender": "floor", "bytes": 0, "p10_us": tenth(idle) * 1e6})
    for size in shape.sizes:
        data, other = torch.ones(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
        times = max(1, min(1000, (1 << 26) // max(size, 1 << 13)))
        copied = [seconds_of(partial(repeat, partial(other.copy_, data), times)) for _ in range(shape.rounds)]
        found: dict[str, tuple[list[float], list[float]]] = {way.name: ([], []) for way in ways}
        for _ in range(shape.rounds):
            for way in ways:
                fewer = times if way.name != "messages" else max(1, times // 10)
                there, streamed = found[way.name]
                there.append(seconds_of(partial(ping_pong, way, data, fewer)) / fewer / 2)
                streamed.append(seconds_of(partial(way.stream, data, fewer)) / fewer)
        if dist.get_rank() > 0:
            continue
        floor = tenth(copied) / times
        emit(about | {"operation": "memcpy", "contender": "floor", "bytes": size, "p10_us": floor * 1e6})
        for name, (there, streamed) in found.items():
            row = about | {"contender": name, "bytes": size}
            emit(row | {"operation": "one_way", "p10_us": tenth(there) * 1e6})
            emit(
                row
                | {
                    "operation": "stream",
                    "p10_us": tenth(streamed) * 1e6,
                    "of_memcpy": floor / tenth(streamed),
                }
            )
    dist.barrier()
    process_group.leave()


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, ",".join(WINDOWS + MESSAGES))
    report.add_sizes(parser, "8,1K,64K,1M,16M")
    parser.add_argument("--rounds", type=int, default=12, help="default %(default)s")
    arguments = parser.parse_args()
    run = report.where()
    rows.append(arguments.json, [run])
    config = {name: getattr(arguments, name) for name in ("contenders", "sizes", "rounds")}
    with console().status("2 ranks"):
        measured = run_ranks("benchmarks.windows:work", 2, config)
    rows.append(arguments.json, measured)
    took = {(row["operation"], row["contender"], row["bytes"]): row for row in measured}
    lines = []
    for size in arguments.sizes:
        for name in arguments.contenders:
            one_way, stream = took["one_way", name, size], took["stream", name, size]
            gibibytes = size / stream["p10_us"] * 1e6 / 2**30
            lines.append(
                [
                    size,
                    name,
                    short_number(one_way["p10_us"]),
                    f"{gibibytes:.2f}",
                    f"{stream['of_memcpy']:.2f}",
                ]
            )
    call = took["call", "floor", 0]["p10_us"]
    print_table(
        f"Windows of 2 ranks; an empty call takes {call:.2f} us",
        ["bytes", "contender", "one way [us]", "puts [GiB/s]", "of memcpy"],
        lines,
        right=["one way [us]", "puts [GiB/s]", "of memcpy"],
    )


if __name__ == "__main__":
    main()
