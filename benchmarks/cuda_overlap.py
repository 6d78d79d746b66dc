# SPDX-License-Identifier: BSD-3-Clause
"""How much of an asynchronous all_reduce hides behind matrix products, by each route of CUDA tensors and torch's NCCL.

    torchrun --nproc-per-node 2 -m benchmarks.cuda_overlap --json results.jsonl

Per contender: the products alone (so many that they take about 1.3 times the communication), the communication alone,
and both: `work = all_reduce(async_op=True)`, the products on the current stream, `work.wait()`. Each is the time from
one event to another of the current stream, behind a kernel that spins until the host has issued everything: the host is
ahead, as it is in training (where it is late, the times hold some of its own). Hidden is 1 - (both - products) /
communication. The contenders take turns; figures are medians of rounds, of the slowest rank. NCCL's kernels take
multiprocessors from the products; copies take none.

`--leave N` tells cuBLASLt to plan the products beside the communication (not those alone) for N multiprocessors fewer.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from altorch.bench import clocks, contenders, process_group, rows
from altorch.bench.figures import slowest, slowest_median
from altorch.bench.rows import Row
from altorch.cli._output import print_table, short_number
from benchmarks import report
from benchmarks.cuda_aims import PRODUCT

CONTENDERS = "al,al:max_ctas=4,al:host_staged,al:host_relay,nccl"
KINDS = ("products", "communication", "both")
LONGER = 1.3  # the products than the communication
WARM_UP = 3


class Contender:
    """What is timed over one group: the products alone, the communication alone, both."""

    def __init__(
        self, name: str, here: torch.device, tensor: torch.Tensor, product: Callable[[], Any], leave: int
    ) -> None:
        self.name, self.tensor, self.product, self.leave = name, tensor, product, leave
        self.group = contenders.make(name, here, ())
        self.small = torch.zeros(1, device=here)
        for _ in range(WARM_UP):
            self.communicate()
        alone = slowest_median([self.time(self.communicate)[0] for _ in range(5)])
        self.number = 10
        one = slowest_median([self.time(self.products)[0] / self.number for _ in range(5)])
        self.number = max(1, math.ceil(LONGER * alone / one))
        self.issues = dict(zip(KINDS, (self.products, self.communicate, self.both), strict=True))
        self.spins = {kind: clocks.spin_for(host_seconds(issue)) for kind, issue in self.issues.items()}
        self.rounds: dict[str, list[tuple[float, bool]]] = {kind: [] for kind in self.issues}

    def align(self) -> None:
        dist.all_reduce(self.small, group=self.group)

    def products(self) -> None:
        for _ in range(self.number):
            self.product()

    def communicate(self) -> None:
        dist.all_reduce(self.tensor, group=self.group, async_op=True).wait()

    def both(self) -> None:
        work = dist.all_reduce(self.tensor, group=self.group, async_op=True)
        with leaving(self.leave):
            self.products()
        work.wait()

    def time(self, issue: Callable[[], None], spin: float = clocks.LONGEST_SPIN) -> tuple[float, bool]:
        return clocks.behind_spin(issue, self.align, spin)

    def one_round(self) -> None:
        for kind, issue in self.issues.items():
            self.rounds[kind].append(self.time(issue, self.spins[kind]))

    def result(self) -> Row:
        seconds = {kind: slowest_median([took for took, _ in rounds]) for kind, rounds in self.rounds.items()}
        late = [
            slowest_median([float(not covered) for _, covered in rounds]) for rounds in self.rounds.values()
        ]
        hidden = 1 - (seconds["both"] - seconds["products"]) / seconds["communication"]
        return {
            "products": self.number, "hidden_percent": round(100 * hidden, 2),
            **{f"{kind}_us": round(value * 1e6, 2) for kind, value in seconds.items()}, "host_late": max(late) > 0,
        }  # fmt: skip


@contextlib.contextmanager
def leaving(multiprocessors: int) -> Iterator[None]:
    """Products within are planned for so many fewer."""
    if not multiprocessors:
        yield
        return
    torch._C._set_sm_carveout_experimental(multiprocessors)
    try:
        yield
    finally:
        torch._C._set_sm_carveout_experimental(None)


def host_seconds(issue: Callable[[], None]) -> float:
    issue()
    torch.cuda.synchronize()
    dist.barrier()
    return slowest(clocks.on_host(issue))


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, CONTENDERS)
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="of the all_reduce"
    )
    parser.add_argument("--bytes", type=int, default=64 << 20, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--product", type=int, nargs=3, default=PRODUCT, metavar=("ROWS", "COLUMNS", "INNER"),
        help="sizes of the matrix product, default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--leave", type=int, default=0, metavar="N",
        help="multiprocessors that the products leave to the communication, default: %(default)s",
    )  # fmt: skip
    arguments = parser.parse_args()
    here = process_group.join("cuda")
    if arguments.leave:  # cuBLAS itself does not know the limit
        torch.backends.cuda.preferred_blas_library("cublaslt")
    dtype = getattr(torch, arguments.dtype)
    tensor = torch.zeros(arguments.bytes // dtype.itemsize, dtype=dtype, device=here)
    height, width, inner = arguments.product
    left = torch.randn(height, inner, device=here).to(torch.bfloat16)
    right = torch.randn(inner, width, device=here).to(torch.bfloat16)
    result = left.new_empty(height, width)
    taking = [
        Contender(name, here, tensor, lambda: torch.mm(left, right, out=result), arguments.leave)
        for name in arguments.contenders
        if not contenders.unsupported_reason(name, here)
    ]
    for _ in range(arguments.rounds):
        for contender in taking:
            contender.one_round()
    about = {
        "benchmark": "cuda_overlap", "ranks": dist.get_world_size(), "device": "cuda",
        "operation": "all_reduce", "dtype": arguments.dtype, "bytes": arguments.bytes,
        "product": list(arguments.product), "left_multiprocessors": arguments.leave,
    }  # fmt: skip
    measured = [about | {"contender": contender.name} | contender.result() for contender in taking]
    if dist.get_rank() == 0:
        rows.append(arguments.json, [report.where("cuda"), *measured])
        shape = " x ".join(map(str, arguments.product))
        title = f"all_reduce, {arguments.bytes} bytes, {arguments.dtype}; products of bfloat16, {shape}"
        columns = ["contender", "products", *(f"{kind} [us]" for kind in KINDS), "hidden [%]", "host late"]
        print_table(title, columns, map(cells_of, measured), right=columns[1:])
    process_group.leave()


def cells_of(row: Row) -> list[Any]:
    times = [short_number(row[f"{kind}_us"]) for kind in KINDS]
    return [row["contender"], row["products"], *times, f"{row['hidden_percent']:.1f}", row["host_late"]]


if __name__ == "__main__":
    main()
