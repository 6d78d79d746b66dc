# SPDX-License-Identifier: BSD-3-Clause
"""Times a training step of a decoder transformer of 336 million parameters: altorch beside torch's own NCCL backend.

    torchrun --nproc-per-node 2 -m benchmarks.cuda_training --json results.jsonl

In bfloat16 with AdamW on random tokens, wrapped by DDP (the model in bfloat16) and by FSDP2 (block by block, parameters
gathered in bfloat16, gradients reduced in float32). The contenders take turns, there and back (A B B A), so that what
drifts disturbs them alike; each time the model is made anew. A step is the time between two events of the current
stream; the figure is the median of all steps, of the slowest rank. "none" is the floor: DDP's no_sync(), which does not
communicate.
"""

from __future__ import annotations

import argparse
import gc
import itertools
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from altorch.bench import contenders, process_group, rows
from altorch.bench.figures import slowest, slowest_median
from altorch.bench.rows import Row
from altorch.cli._output import print_table
from benchmarks import report, training

FLOOR = "none"
WARM_UP = 5
COLUMNS = ["wrap", "contender", "step [ms]", "of each turn", "tokens/s", "nccl / it", "peak [GiB]"]


class Turn(NamedTuple):
    seconds: list[float]  # of each step
    peak: int  # bytes
    loss: float  # the last


def take_turn(
    wrap: str, group: Any, here: torch.device, shape: argparse.Namespace, communicates: bool
) -> Turn:
    trained = training.Training(wrap, group, here, torch.bfloat16, shape)
    marks = []
    for step in range(WARM_UP + shape.steps):
        if step == WARM_UP:  # by now DDP has let go of a former turn's memory
            torch.cuda.reset_peak_memory_stats()
        trained.step(communicates)
        # Nothing waits here: the host runs ahead of the device, as it does in training.
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
    torch.cuda.synchronize()
    steps = itertools.pairwise(marks[WARM_UP - 1 :])
    seconds = [begin.elapsed_time(end) / 1000 for begin, end in steps]
    return Turn(seconds, torch.cuda.max_memory_allocated(), trained.loss.item())


def warm_up(wrap: str, groups: dict[str, Any], here: torch.device, shape: argparse.Namespace) -> None:
    """So that no contender's first turn pays for what is made once: NCCL's connections, plans, the memory pool."""
    brief = argparse.Namespace(**vars(shape) | {"steps": 1})
    for group in groups.values():
        take_turn(wrap, group, here, brief, communicates=True)
        clean_up()


def clean_up() -> None:
    gc.collect()  # DDP and its reducer hold each other
    torch.cuda.empty_cache()


def row_of(turns: list[Turn], shape: argparse.Namespace) -> Row:
    step = slowest_median([seconds for turn in turns for seconds in turn.seconds])
    return {
        "step_ms": round(step * 1000, 3),
        "turns_ms": [round(slowest_median(turn.seconds) * 1000, 3) for turn in turns],
        "tokens_per_s": round(dist.get_world_size() * shape.batch * shape.sequence / step),
        "peak_GiB": round(slowest(float(max(turn.peak for turn in turns))) / 2**30, 3),
        "loss": round(turns[-1].loss, 4),
    }


def cells_of(row: Row, nccl: Row | None) -> list[str]:
    ratio = f"{nccl['step_ms'] / row['step_ms']:.3f}x" if nccl else "-"
    turns = ", ".join(f"{turn:.1f}" for turn in row["turns_ms"])
    figures = [f"{row['step_ms']:.2f}", turns, f"{row['tokens_per_s']:,}", ratio, f"{row['peak_GiB']:.2f}"]
    return [row["wrap"], row["contender"], *figures]


def arguments_of() -> argparse.Namespace:
    parser = report.parser_of(__doc__)
    report.add_contenders(parser, "al,nccl")
    parser.add_argument("--wraps", nargs="*", choices=training.WRAPS, default=list(training.WRAPS))
    parser.add_argument("--repeats", type=int, default=3, help="turns of each contender, default %(default)s")
    parser.add_argument("--steps", type=int, default=10, help=f"of a turn, after {WARM_UP} more")
    training.add_shape(parser, batch=16, sequence=1024, layers=24, width=1024, heads=16, vocabulary=32768)
    return parser.parse_args()


def main() -> None:
    arguments = arguments_of()
    here = process_group.join("cuda")
    names = [name for name in arguments.contenders if not contenders.unsupported_reason(name, here)]
    groups = {name: contenders.make(name, here, ()) for name in names}
    model = training.about(arguments)
    about = {"benchmark": "cuda_training", "ranks": dist.get_world_size(), "device": "cuda"}
    about |= {"dtype": "bfloat16"} | model
    measured, lines = [], []
    for wrap in arguments.wraps:
        names = [*groups, FLOOR] if wrap == "ddp" else list(groups)
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        warm_up(wrap, groups, here, arguments)
        for name in training.there_and_back(names, arguments.repeats):
            group = groups.get(name, next(iter(groups.values())))
            turns[name].append(take_turn(wrap, group, here, arguments, communicates=name != FLOOR))
            clean_up()
        found = {
            name: about | {"wrap": wrap, "contender": name} | row_of(turns[name], arguments) for name in names
        }
        measured += found.values()
        lines += [cells_of(row, found.get("nccl")) for row in found.values()]
    if dist.get_rank() == 0:
        rows.append(arguments.json, [report.where("cuda"), *measured])
        tokens = f"{arguments.batch} x {arguments.sequence} tokens a rank"
        size = f"{model['parameters'] / 1e6:.1f} million parameters, {tokens}"
        print_table(size, COLUMNS, lines, right=COLUMNS[2:])
    process_group.leave()


if __name__ == "__main__":
    main()
