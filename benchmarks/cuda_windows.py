# SPDX-License-Identifier: BSD-3-Clause
"""What one-sided access to CUDA tensors takes, beside messages and copies: windows of two ranks, through torch.

    torchrun --nproc-per-node 2 -m benchmarks.cuda_windows --json results.jsonl

one_way   half of a ping-pong: a put with a signal and the peer's wait for it; of messages, a send and its recv. `sync`:
          calls that the host issues one after another, with what it needs for one (host_us), and the device alone,
          behind a kernel that spins until all of them are issued (device_us). `graph`: replayed
stream    one rank's puts, one after another, the last of which the peer answers; of messages, its sends. Behind such
          a kernel
copy      the floor of `stream`: torch's copy_ to the other GPU (`copy`, where this process sees both), and to the
          peer's tensor as the window maps it (`mapped`); copy engines carry both out

Contenders take turns; a figure is that of the slower rank. `of_copies`: of a stream, the bandwidth against that of the
faster copies.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

import altorch
from altorch.bench import clocks, contenders, process_group, rows
from altorch.bench.figures import figures, slowest, slowest_median, slowest_of_each
from altorch.bench.rows import Row
from altorch.cli._output import Progress, human_bytes, print_table, short_number
from benchmarks import report
from benchmarks.one_sided import OverMessages, OverWindow, Way, ping_pong

WINDOW = "window"
CONTENDERS = f"{WINDOW},al,nccl"
SIZES = "8,1K,16K,64K,1M,16M,64M"
MODES = ("sync", "graph")
MOST_TRIPS, TRIPS_OF_GRAPH, REPLAYS = 50, 20, 5
BYTES_AT_ONCE = 1 << 30  # of a batch, at most
SPIN = 0.001

Issue = Callable[[], Any]


def memory(most: int, here: torch.device) -> torch.Tensor:
    """NVSHMEM (ALTORCH_ROUTE=window=nvshmem) registers what ncclMemAlloc gives."""
    if "window=nvshmem" not in os.environ.get("ALTORCH_ROUTE", ""):
        return altorch.empty(most, dtype=torch.uint8, device=here)
    backend: Any = dist.group.WORLD._get_backend(here)  # type: ignore[union-attr]
    with torch.cuda.use_mem_pool(torch.cuda.MemPool(backend.mem_allocator)):
        return torch.empty(most, dtype=torch.uint8, device=here)


class CheckedWindow(OverWindow):
    def __init__(self, most: int, here: torch.device) -> None:
        self.kept = memory(most, here)
        super().__init__(altorch.new_window(self.kept))

    def check(self, here: torch.device) -> None:
        """That what is measured arrives."""
        mine = torch.arange(len(self.kept), device=here).add(dist.get_rank()).to(torch.uint8)
        self.window.put_signal(mine, self.peer)
        self.window.wait_signal(self.peer)
        assert torch.equal(self.kept, mine + (self.peer - dist.get_rank())), "what was put is not there"
        self.window.fence()


def nothing() -> None:
    pass


@dataclass
class Lane:
    """What is timed in turns with others: `issue` gives the stream so many calls. `align` brings the ranks together."""

    about: Row
    issue: Issue
    calls: int
    align: Issue = nothing
    spin: float = 0.0
    host_too: bool = False  # its time and the device's apart
    seconds: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    covered: bool = True

    def turn(self) -> None:
        if not self.host_too:
            self.seconds.append(clocks.behind_spin(self.issue, self.align, self.spin)[0] / self.calls)
            return
        host: list[float] = []
        took, _ = clocks.behind_spin(lambda: host.append(clocks.on_host(self.issue)), self.align, 0.0)
        self.seconds.append(took / self.calls)
        self.host.append(host[0] / self.calls)
        spin = clocks.spin_for(slowest(host[0]))
        took, covered = clocks.behind_spin(self.issue, self.align, spin)
        self.behind.append(took / self.calls)
        self.covered &= covered

    def row(self) -> Row:
        row = self.about | {"calls_per_batch": self.calls, "batches": len(self.seconds)}
        row |= figures(slowest_of_each(self.seconds))
        if self.host_too:
            row["host_us"] = round(slowest_median(self.host) * 1e6, 3)
            device = round(slowest_median(self.behind) * 1e6, 3)
            if not slowest(float(not self.covered)):
                row["device_us"] = device
        return row


def can_capture(way: Way) -> bool:
    """Not where ranks share a GPU without MPS, nor where the window goes through the host's memory."""
    meet = torch.cuda.device_count() > 1 or "CUDA_MPS_PIPE_DIRECTORY" in os.environ
    return meet and (not isinstance(way, CheckedWindow) or way.window.route == "peer")


def one_way(name: str, mode: str, way: Way, data: torch.Tensor) -> Lane:
    """A call is one way of a ping-pong."""
    about = row_of("one_way", name, mode, len(data))
    align = partial(ping_pong, way, data, 1)
    trips = max(1, min(MOST_TRIPS, BYTES_AT_ONCE // len(data) // 8))
    align()
    torch.cuda.synchronize()
    if mode == "sync":
        return Lane(about, partial(ping_pong, way, data, trips), 2 * trips, align, host_too=True)
    trips = min(trips, TRIPS_OF_GRAPH)
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ping_pong(way, data, trips)

    def replay() -> None:
        for _ in range(REPLAYS):
            graph.replay()

    return Lane(about, replay, 2 * trips * REPLAYS, graph.replay, SPIN)


def stream(name: str, way: Way, data: torch.Tensor) -> Lane:
    times = times_of(data)
    align = partial(ping_pong, way, data, 1)
    issue = partial(way.stream, data, times)
    align()
    return Lane(row_of("stream", name, "sync", len(data)), issue, times, align, SPIN)


def copies(over: CheckedWindow | None, data: torch.Tensor) -> list[Lane]:
    """The first rank's; the other one has nothing to do."""
    targets: dict[str, torch.Tensor] = {}
    if over is not None and over.window.route == "peer":
        targets["mapped"] = over.window.map_remote_tensor(over.peer)[: len(data)]
    if torch.cuda.device_count() > 1:
        other = (data.device.index + 1) % torch.cuda.device_count()
        targets["copy"] = torch.empty_like(data, device=torch.device("cuda", other))
    times, lanes = times_of(data), []
    for name, target in targets.items():

        def issue(target: torch.Tensor = target) -> None:
            if dist.get_rank() == 0:
                for _ in range(times):
                    target.copy_(data, non_blocking=True)

        lanes.append(Lane(row_of("copy", name, "sync", len(data)), issue, times, spin=SPIN))
    return lanes


def times_of(data: torch.Tensor) -> int:
    return max(2, min(MOST_TRIPS, BYTES_AT_ONCE // len(data)))


def row_of(operation: str, contender: str, mode: str, size: int) -> Row:
    about = {"benchmark": "cuda_windows", "operation": operation, "contender": contender, "mode": mode}
    return about | {"ranks": 2, "device": "cuda", "dtype": "uint8", "bytes": size}


def with_share_of_copies(measured: list[Row]) -> list[Row]:
    best: dict[int, float] = {}
    for row in measured:
        if row["operation"] == "copy":
            best[row["bytes"]] = min(best.get(row["bytes"], row["median_us"]), row["median_us"])
    return [
        row | {"of_copies": round(best[row["bytes"]] / row["median_us"], 3)}
        if row["operation"] == "stream" and row["bytes"] in best
        else row
        for row in measured
    ]


def measure(ways: dict[str, Way], size: int, here: torch.device, given: Any) -> list[Row]:
    """Rows of one size, the same on both ranks."""
    data = torch.ones(size, dtype=torch.uint8, device=here)
    lanes = [
        one_way(name, mode, way, data)
        for mode in given.modes
        for name, way in ways.items()
        if mode == "sync" or can_capture(way)
    ]
    if size >= given.streams_from:
        lanes += [stream(name, way, data) for name, way in ways.items()]
        over = ways.get(WINDOW)
        lanes += copies(over if isinstance(over, CheckedWindow) else None, data)
    for lane in lanes:
        lane.turn()
        for kept in (lane.seconds, lane.host, lane.behind):
            kept.clear()
        lane.covered = True
    for _ in range(given.rounds):
        for lane in lanes:
            lane.turn()
    return with_share_of_copies([lane.row() for lane in lanes])


def show(measured: list[Row]) -> None:
    columns = ["bytes", "what", "contender", "mode", "median [us]", "host [us]", "device [us]", "of copies"]
    cells = [
        [
            human_bytes(row["bytes"]),
            *(row[key] for key in ("operation", "contender", "mode")),
            *(short_number(row[key]) if key in row else "" for key in ("median_us", "host_us", "device_us")),
            f"{row['of_copies']:.2f}" if "of_copies" in row else "",
        ]
        for row in measured
    ]
    print_table("Windows of 2 ranks on GPUs", columns, cells, right=columns[4:])


def parse(words: list[str]) -> Any:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, CONTENDERS)
    report.add_sizes(parser, SIZES)
    parser.add_argument("--modes", type=report.names, default=list(MODES), help=f"default {','.join(MODES)}")
    parser.add_argument(
        "--streams-from", type=int, default=1 << 20, metavar="BYTES", help="default %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=15, help="default %(default)s")
    return parser.parse_args(words)


def main() -> None:
    arguments = parse(sys.argv[1:])
    here = process_group.join("cuda")
    if dist.get_world_size() != 2:
        sys.exit("benchmarks.cuda_windows needs two ranks: torchrun --nproc-per-node 2")
    ways: dict[str, Way] = {}
    for name in arguments.contenders:
        if name == WINDOW:
            over = ways[name] = CheckedWindow(max(arguments.sizes), here)
            over.check(here)
        elif contenders.unsupported_reason(name, here) is None:
            ways[name] = OverMessages(contenders.make(name, here, ()))
    measured: list[Row] = []
    first = dist.get_rank() == 0
    if first:
        rows.append(arguments.json, [report.where("cuda")])
    with Progress(len(arguments.sizes), quiet=not first) as progress:
        for size in arguments.sizes:
            progress.at(human_bytes(size))
            found = measure(ways, size, here, arguments)
            measured += found
            if first:
                rows.append(arguments.json, found)
    if first:
        show(measured)
    over_window = ways.get(WINDOW)
    if isinstance(over_window, CheckedWindow):
        over_window.window.tensor_deregister()
    process_group.leave()


if __name__ == "__main__":
    main()
