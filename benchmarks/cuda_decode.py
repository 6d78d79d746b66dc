# SPDX-License-Identifier: BSD-3-Clause
"""Times a decoding step of a transformer whose matrices are split over the GPUs, as a CUDA graph, in bfloat16.

    torchrun --nproc-per-node 2 -m benchmarks.cuda_decode --json results.jsonl

A layer is what tensor-parallel inference makes of it: norm, queries, keys and values, attention over a cache, the
matrix behind it, all_reduce; norm, up, GELU, down, all_reduce. Each contender has a graph of some layers over a group
of its own, on the same weights; replays take turns. A figure is the slowest rank's time for one layer. `fake` moves
nothing: what is beyond it is communication. `al+norm` has altorch.ops.all_reduce_rms_norm do the addition and
the norm behind each all_reduce, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

import altorch.ops
from altorch.bench import clocks, contenders, process_group, rows
from altorch.bench.figures import figures, slowest_of_each
from altorch.bench.rows import Row
from altorch.cli._output import Progress, print_table, short_number
from benchmarks import report

CONTENDERS = "al,al+norm,nccl,fake"
FUSED = "+norm"
HEAD = 128  # channels
WARM_UP = 3
EPSILON = 1e-6
ROUNDING = 0.05


class Layer:
    def __init__(self, width: int, context: int, batch: int, ranks: int, here: torch.device) -> None:
        def matrix(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, device=here) / columns**0.5).to(torch.bfloat16)

        self.width, self.heads = width, width // HEAD // ranks
        self.mixed, self.attended = matrix(3 * width // ranks, width), matrix(width, width // ranks)
        self.up, self.down = matrix(4 * width // ranks, width), matrix(width, 4 * width // ranks)
        shape = (batch, self.heads, context, HEAD)
        self.keys, self.values = (torch.randn(shape, device=here).to(torch.bfloat16) for _ in range(2))

    def __call__(self, normal: Tensor, x: Tensor, join: Join) -> tuple[Tensor, Tensor]:
        query = functional.linear(normal, self.mixed).unflatten(-1, (3, self.heads, HEAD))[:, 0].unsqueeze(2)
        attended = functional.scaled_dot_product_attention(query, self.keys, self.values).flatten(1)
        normal, x = join(functional.linear(attended, self.attended), x)
        inner = functional.gelu(functional.linear(normal, self.up))
        return join(functional.linear(inner, self.down), x)


# The step between two layers. It adds the output parts of all ranks to x, and returns the norm of
# the sum and the sum.
Join = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def separately(group: dist.ProcessGroup) -> Join:
    def join(part: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        dist.all_reduce(part, group=group)
        x = x + part
        return functional.rms_norm(x, x.shape[-1:], eps=EPSILON), x

    return join


def together(group: dist.ProcessGroup) -> Join:
    return lambda part, x: altorch.ops.all_reduce_rms_norm(part, x, eps=EPSILON, group=group)


class Contender:
    def __init__(self, name: str, group: dist.ProcessGroup, layers: list[Layer], x: Tensor) -> None:
        self.name, self.layers, self.seconds = name, len(layers), list[float]()
        join = together(group) if name.endswith(FUSED) else separately(group)

        def step() -> Tensor:
            normal, out = functional.rms_norm(x, x.shape[-1:], eps=EPSILON), x
            for layer in layers:
                normal, out = layer(normal, out, join)
            return out

        for _ in range(WARM_UP):
            step()
        torch.cuda.synchronize()
        dist.barrier()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = step()
        self.graph.replay()
        torch.cuda.synchronize()

    def turn(self, replays: int) -> None:
        def issue() -> None:
            for _ in range(replays):
                self.graph.replay()

        self.graph.replay()  # brings the ranks together
        self.seconds.append(clocks.on_device(issue)[0] / replays / self.layers)


def measure(groups: dict[str, dist.ProcessGroup], batch: int, here: torch.device, given: Any) -> list[Row]:
    torch.manual_seed(dist.get_rank())
    ranks = dist.get_world_size()
    layers = [Layer(given.width, given.context, batch, ranks, here) for _ in range(given.layers)]
    torch.manual_seed(0)
    x = torch.randn(batch, given.width, device=here).to(torch.bfloat16)
    taking = [Contender(name, group, layers, x) for name, group in groups.items()]
    results = {contender.name: contender.out.float() for contender in taking if contender.name != "fake"}
    first = next(iter(results.values()))
    for name, result in results.items():
        # Every library rounds sums of bfloat16 in its own places, the more of them the more ranks
        # there are.
        distance = ((result - first).norm() / first.norm()).item()
        if not distance < ROUNDING:
            raise RuntimeError(f"{name} differs by {distance:.2%} of what {next(iter(results))} has")
    for _ in range(given.turns):
        for contender in taking:
            contender.turn(given.replays)
    about = {
        "benchmark": "cuda_decode", "ranks": ranks, "device": "cuda", "dtype": "bfloat16", "batch": batch,
        "width": given.width, "context": given.context, "layers": given.layers,
    }  # fmt: skip
    return [about | {"contender": each.name} | figures(slowest_of_each(each.seconds)) for each in taking]


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, CONTENDERS)
    parser.add_argument(
        "--batches", type=report.numbers, default=[1, 8, 32], help="tokens a step, default 1,8,32"
    )
    parser.add_argument("--width", type=int, default=4096, help="default: %(default)s")
    parser.add_argument("--context", type=int, default=256, help="tokens in the cache, default: %(default)s")
    parser.add_argument("--layers", type=int, default=8, help="of a graph, default: %(default)s")
    parser.add_argument("--replays", type=int, default=20, help="of a turn, default: %(default)s")
    parser.add_argument("--turns", type=int, default=15, help="default: %(default)s")
    arguments = parser.parse_args()
    here = process_group.join("cuda")
    groups = {
        name: contenders.make(name.removesuffix(FUSED), here, ())
        for name in arguments.contenders
        if not contenders.unsupported_reason(name.removesuffix(FUSED), here)
    }
    measured: list[Row] = []
    with Progress(len(arguments.batches), quiet=dist.get_rank() != 0) as progress:
        for batch in arguments.batches:
            progress.at(f"batch {batch}")
            measured += measure(groups, batch, here, arguments)
    if dist.get_rank() == 0:
        rows.append(arguments.json, [report.where("cuda"), *measured])
        columns = ["batch", "contender", "p10 [us]", "median [us]", "max [us]"]
        cells = [
            [
                row["batch"],
                row["contender"],
                *(short_number(row[f"{key}_us"]) for key in ("p10", "median", "max")),
            ]
            for row in measured
        ]
        print_table(
            f"one layer, width {arguments.width}, bfloat16, in a graph", columns, cells, right=columns[2:]
        )
    process_group.leave()


if __name__ == "__main__":
    main()
