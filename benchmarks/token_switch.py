# SPDX-License-Identifier: BSD-3-Clause
"""What a layer of experts waits for: altorch.TokenSwitch beside all_to_all_single with splits that the host knows.

    torchrun --nproc-per-node 4 -m benchmarks.token_switch --json results.jsonl
    torchrun --nproc-per-node 4 -m benchmarks.token_switch --device cuda --json results.jsonl

switch       dispatch and combine of one routing, in rows by expert, without experts between them. Like all_to_all, it
             receives into tensors that were allocated before
routing      create_routing alone, which the others have for nothing
all_to_all   what a program does without a switch, over nccl or gloo: index_select in an order computed before,
             all_to_all_single there and back, index_add. Its rows come by source rank, not by expert
bare         the two all_to_all_single alone

Contenders take turns; a figure is that of the slowest rank. `graph`: replayed CUDA graphs, in which the routing is not
captured. `GB/s`: what a rank receives of the others in dispatch and combine, to be held against its link. `floor`: a
copy of as many bytes, on all ranks at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import altorch
from altorch.bench import clocks, contenders, floors, process_group, rows
from altorch.bench.figures import figures, slowest, slowest_of_each
from altorch.bench.rows import Row
from altorch.cli._output import Progress, human_bytes, print_table, short_number
from benchmarks import report

TOKENS = "4,16,64,256,1024,4096"
MODES = ("sync", "graph")
SECONDS_OF_A_TURN, MOST_CALLS = 0.02, 100
ROUNDING = 0.02

Layer = Callable[[], Any]


class Switch:
    def __init__(self, group: dist.ProcessGroup, tokens: Tensor, chosen: Tensor, experts: int) -> None:
        self.tokens, self.chosen = tokens, chosen
        self.weights = torch.ones(chosen.shape, device=tokens.device)
        self.switch = altorch.TokenSwitch(group, experts, len(tokens))
        self.known = self.routing()
        self.out = self.switch.dispatch(self.known, tokens, self.weights)
        self.result = torch.empty_like(tokens)

    def routing(self) -> Any:
        return self.switch.create_routing(self.chosen)

    def layer(self) -> Tensor:
        self.switch.dispatch(self.known, self.tokens, self.weights, out=self.out)
        return self.switch.combine(self.known, self.out[0], out=self.result)


class AllToAll:
    def __init__(self, group: dist.ProcessGroup, tokens: Tensor, chosen: Tensor, experts: int) -> None:
        self.group, self.tokens, width = group, tokens, tokens.shape[1]
        owners, order = (chosen.reshape(-1) // (experts // group.size())).sort(stable=True)
        mine = owners.bincount(minlength=group.size())
        theirs = torch.empty_like(mine)
        dist.all_to_all_single(theirs, mine, group=group)
        self.sent, self.came = mine.tolist(), theirs.tolist()
        self.source = order // chosen.shape[1]
        self.inbox = tokens.new_empty(sum(self.came), width)
        self.back = tokens.new_zeros(len(order), width)

    def bare(self) -> None:
        self.exchange(self.back)

    def exchange(self, outgoing: Tensor) -> None:
        dist.all_to_all_single(self.inbox, outgoing, self.came, self.sent, group=self.group)
        dist.all_to_all_single(self.back, self.inbox, self.sent, self.came, group=self.group)

    def layer(self) -> Tensor:
        self.exchange(self.tokens.index_select(0, self.source))
        return torch.zeros_like(self.tokens).index_add_(0, self.source, self.back)


@dataclass
class Lane:
    """A contender that takes turns with others."""

    name: str
    mode: str
    call: Layer
    here: torch.device
    calls: int = 1
    seconds: list[float] = field(default_factory=list)

    def turn(self) -> float:
        return clocks.per_call(self.call, self.calls, self.here)

    def settle(self) -> None:
        self.turn()
        took = slowest(self.turn())
        self.calls = max(1, min(MOST_CALLS, int(SECONDS_OF_A_TURN / max(took, 1e-9))))


def captured(layer: Layer) -> Layer:
    layer()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer()
    replay: Layer = graph.replay
    return replay


def check(first: Tensor, other: Tensor) -> None:
    distance = (first.float() - other.float()).norm() / first.float().norm().clamp(min=1e-9)
    if not distance < ROUNDING:
        raise RuntimeError(f"the results differ by {float(distance):.2%}")


def measure(count: int, given: Any, groups: dict[str, dist.ProcessGroup], here: torch.device) -> list[Row]:
    generator = torch.Generator().manual_seed(1000 * count + dist.get_rank())
    tokens = torch.randn(count, given.width, generator=generator).to(here, torch.bfloat16)
    chosen = torch.rand(count, given.experts, generator=generator).topk(given.chosen).indices.to(here)
    switch = Switch(groups["al"], tokens, chosen, given.experts)
    (rival,) = (name for name in groups if name != "al")
    beside = AllToAll(groups[rival], tokens, chosen, given.experts)
    check(switch.layer(), beside.layer())
    lanes = [Lane("routing", "sync", switch.routing, here)]
    for mode in given.modes:
        for name, layer in (("switch", switch.layer), ("all_to_all", beside.layer), ("bare", beside.bare)):
            lanes.append(Lane(name, mode, captured(layer) if mode == "graph" else layer, here))
    for lane in lanes:
        lane.settle()
    for _ in range(given.turns):
        for lane in lanes:
            lane.seconds.append(lane.turn())
    ranks = dist.get_world_size()
    moved = 2 * (ranks - 1) * tokens.nbytes
    about = {
        "benchmark": "token_switch", "device": here.type, "ranks": ranks, "dtype": "bfloat16", "tokens": count,
        "width": given.width, "experts": given.experts, "chosen": given.chosen, "bytes": tokens.nbytes,
    }  # fmt: skip
    found = []
    for lane in lanes:
        over = "al" if lane.name in ("routing", "switch") else rival
        row = about | {"operation": lane.name, "contender": over, "mode": lane.mode}
        found.append(row | figures(slowest_of_each(lane.seconds)))
        if lane.name == "switch":
            found[-1]["received_GBps"] = round(moved / found[-1]["median_us"] / 1e3, 3)
    if moved:
        floor = floors.copies(moved, torch.bfloat16, here)
        row = about | {"operation": "floor", "contender": "memcpy", "mode": "sync", "bytes": moved}
        found.append(row | {key: floor[key] for key in ("p10_us", "median_us", "max_us")})
    return found


def with_ratios(measured: list[Row]) -> list[Row]:
    """Of a switch: how many times as fast it is as all_to_all."""
    rivals = {row["mode"]: row["median_us"] for row in measured if row["operation"] == "all_to_all"}
    return [
        row
        | (
            {"ratio": round(rivals[row["mode"]] / row["median_us"], 3)}
            if row["operation"] == "switch"
            else {}
        )
        for row in measured
    ]


def show(measured: list[Row], given: Any) -> None:
    columns = [
        "tokens",
        "bytes",
        "what",
        "over",
        "mode",
        "p10 [us]",
        "median [us]",
        "GB/s",
        "all_to_all / switch",
    ]
    cells = [
        [
            str(row["tokens"]),
            human_bytes(row["bytes"]),
            *(row[key] for key in ("operation", "contender", "mode")),
            *(short_number(row[key]) for key in ("p10_us", "median_us")),
            short_number(row["received_GBps"]) if "received_GBps" in row else "",
            f"{row['ratio']:.2f}" if "ratio" in row else "",
        ]
        for row in measured
    ]
    title = (
        f"{dist.get_world_size()} ranks, {given.device}: {given.chosen} of {given.experts} experts, tokens of "
        f"{given.width} bfloat16"
    )
    print_table(title, columns, cells, right=[*columns[:2], *columns[5:]])


def parse(words: list[str]) -> Any:
    parser = report.parser_of(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--against", help="default gloo on CPUs, nccl on GPUs")
    parser.add_argument(
        "--tokens", type=report.numbers, default=report.numbers(TOKENS), help=f"default {TOKENS}"
    )
    parser.add_argument("--width", type=int, default=7168, help="default %(default)s")
    parser.add_argument("--experts", type=int, default=64, help="default %(default)s")
    parser.add_argument("--chosen", type=int, default=8, help="experts of a token, default %(default)s")
    parser.add_argument("--modes", type=report.names, help=f"default {','.join(MODES)} on GPUs, sync on CPUs")
    parser.add_argument("--turns", type=int, default=11, help="default %(default)s")
    given = parser.parse_args(words)
    given.modes = given.modes or (MODES if given.device == "cuda" else MODES[:1])
    given.against = given.against or ("nccl" if given.device == "cuda" else "gloo")
    return given


def main() -> None:
    given = parse(sys.argv[1:])
    here = process_group.join(given.device)
    if why := contenders.unsupported_reason(given.against, here):
        sys.exit(f"benchmarks.token_switch: {given.against}: {why}")
    groups = {name: contenders.make(name, here, ()) for name in ("al", given.against)}
    first = dist.get_rank() == 0
    if first:
        rows.append(given.json, [report.where(given.device)])
    measured: list[Row] = []
    with Progress(len(given.tokens), quiet=not first) as progress:
        for count in given.tokens:
            progress.at(f"{count} tokens")
            found = with_ratios(measure(count, given, groups, here))
            measured += found
            if first:
                rows.append(given.json, found)
    if first:
        show(measured, given)
    process_group.leave()


if __name__ == "__main__":
    main()
