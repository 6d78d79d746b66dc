# SPDX-License-Identifier: BSD-3-Clause
"""Times what people do with CPU tensors: training steps of a decoder of 26 million parameters, and decoding with it.

ddp      a step with DDP, float32 and AdamW, on random tokens
fsdp2    the same with FSDP2, block by block
decode   a token of greedy decoding with the matrices split over the ranks (examples/tensor_parallel_inference.py)

Starts its ranks itself. Contenders take turns, a step or a few tokens each, there and back (A B B A); a figure is the
slowest rank's. "none" is the floor of ddp and decode: nothing moves (a DDP hook; torch's fake backend). What a step
or a token takes beyond it is the communication that computing does not hide: exposed.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable

import torch
import torch.distributed as dist
from rich.status import Status
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

from altorch.bench import clocks, contenders, process_group, rows
from altorch.bench.figures import figures, slowest_of_each
from altorch.bench.rows import Row
from altorch.cli._output import console, print_table
from benchmarks import report, training
from benchmarks.ranks import Emit, run_ranks
from examples import tensor_parallel_inference as decoding

FLOOR = "none"
WORKLOADS = ("ddp", "fsdp2", "decode")
WARM_UP = 2  # batches
PROMPT, NEW = 16, 24  # tokens of a turn of decoding
COLUMNS = ["workload", "over", "p10 [ms]", "median [ms]", "max [ms]"]
COLUMNS += ["exposed, p10", "exposed, median", "tokens/s", "gloo / it"]

Batch = Callable[[], float]  # the seconds of a step, or of a token


def trained(wrap: str, name: str, group: dist.ProcessGroup, shape: argparse.Namespace) -> Batch:
    made = training.Training(wrap, group, torch.device("cpu"), torch.float32, shape)
    if name == FLOOR:  # DDP fails over what fake's Works hold; with a hook it fills its buckets all the same
        made.model.register_comm_hook(None, noop_hook)
    return lambda: clocks.on_host(made.step)


def decoded(name: str, group: dist.ProcessGroup, shape: argparse.Namespace) -> Batch:
    """The tokens of one turn are checked before any is timed."""
    sizes = (shape.vocabulary, shape.width, shape.layers, shape.heads, PROMPT + NEW)
    whole, shard = (decoding.Shard(decoding.Shape(*sizes), batch=1, group=of) for of in (None, group))
    prompt = torch.arange(PROMPT).view(1, -1)
    expected, _ = decoding.generate(whole, prompt, NEW)
    if name != FLOOR and not decoding.agreed(decoding.generate(shard, prompt, NEW)[0], expected):
        raise AssertionError("The ranks decode other tokens than one process.")
    return lambda: decoding.generate(shard, prompt, NEW)[1] / (NEW - 1)


def measure(workload: str, groups: dict[str, dist.ProcessGroup], shape: argparse.Namespace) -> list[Row]:
    """A row of each contender, the same on every rank."""
    if workload == "fsdp2":  # needs what is gathered
        groups = {name: group for name, group in groups.items() if name != FLOOR}
    batches = {
        name: decoded(name, group, shape) if workload == "decode" else trained(workload, name, group, shape)
        for name, group in groups.items()
    }
    took: dict[str, list[float]] = {name: [] for name in groups}
    for name in training.there_and_back(list(groups), WARM_UP + shape.turns):
        dist.barrier()
        took[name].append(batches[name]())
    found = {name: figures(slowest_of_each(seconds[WARM_UP:])) for name, seconds in took.items()}
    floor = found.get(FLOOR)
    return [row_of(workload, name, row, floor, shape) for name, row in found.items()]


def about(workload: str, shape: argparse.Namespace) -> Row:
    said: Row = training.about(shape)
    if workload == "decode":  # another model of that shape
        said |= {"batch": 1, "sequence": PROMPT + NEW}
        said.pop("parameters")
    return said


def row_of(workload: str, contender: str, took: Row, floor: Row | None, shape: argparse.Namespace) -> Row:
    ranks = dist.get_world_size()
    tokens = 1 if workload == "decode" else ranks * shape.batch * shape.sequence
    row: Row = {"benchmark": "cpu_training", "workload": workload, "contender": contender}
    row |= {"ranks": ranks, "device": "cpu", "dtype": "float32"} | about(workload, shape)
    row |= {"batches": shape.turns} | took | {"tokens_per_s": round(tokens / took["median_us"] * 1e6, 1)}
    if floor is not None and contender != FLOOR:
        row |= {f"exposed_{key}": round(took[key] - floor[key], 3) for key in ("p10_us", "median_us")}
    return row


def work(config: Row, emit: Emit) -> None:
    shape = argparse.Namespace(**config)
    device = process_group.join("cpu", control="gloo")  # altorch may be left out
    groups = {name: contenders.make(name, device, ()) for name in shape.contenders}
    groups[FLOOR] = contenders.make("fake", device, ())
    for workload in shape.workloads:
        if dist.get_rank() == 0:
            emit({"at": workload})
        for row in measure(workload, groups, shape):
            if dist.get_rank() == 0:
                emit(row)
        gc.collect()  # DDP and its reducer hold each other
    process_group.leave()


def line_of(row: Row, gloo: Row | None) -> list[str]:
    keys = ("p10_us", "median_us", "max_us", "exposed_p10_us", "exposed_median_us")
    cells = [f"{row[key] / 1e3:.2f}" if key in row else "" for key in keys]
    ratio = f"{gloo['median_us'] / row['median_us']:.2f}x" if gloo else ""
    return [row["workload"], row["contender"], *cells, f"{row['tokens_per_s']:,.1f}", ratio]


def arguments_of() -> argparse.Namespace:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "al,gloo")
    report.add_ranks(parser, "2")
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--turns", type=int, help="of each contender, default 20; 8 with --quick")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    training.add_shape(parser, batch=2, sequence=64, layers=8, width=512, heads=8, vocabulary=1024)
    arguments = parser.parse_args()
    arguments.turns = arguments.turns or (8 if arguments.quick else 20)
    return arguments


def main() -> None:
    arguments = arguments_of()
    run = report.where()
    rows.append(arguments.json, [run])
    config = {
        name: getattr(arguments, name) for name in (*training.SHAPE, "contenders", "workloads", "turns")
    }
    for ranks in arguments.ranks:
        with console().status(f"{ranks} ranks") as status:

            def show(row: Row, status: Status = status, ranks: int = ranks) -> None:
                status.update(f"{ranks} ranks: {row.get('at', row.get('workload'))}")

            found = run_ranks("benchmarks.cpu_training:work", ranks, config, on_row=show)
        measured = [row for row in found if "workload" in row]
        millions = training.about(arguments)["parameters"] / 1e6
        title = f"{ranks} ranks, {millions:.1f} million parameters; of a step, of a token"
        gloo = {row["workload"]: row for row in measured if row["contender"] == "gloo"}
        lines = [line_of(row, gloo.get(row["workload"])) for row in measured]
        print_table(title, COLUMNS, lines, right=COLUMNS[2:])
        rows.append(arguments.json, measured)


if __name__ == "__main__":
    main()
