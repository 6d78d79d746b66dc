# SPDX-License-Identifier: BSD-3-Clause
"""`altorch bench`: altorch beside torch's own backends, in turns in the same processes.

    altorch bench all_reduce --sizes 8,1K,1M --against gloo       starts two ranks on this machine
    torchrun --nproc-per-node 2 -m altorch bench --device cuda --against nccl,al:host_staged --graph --out rows.jsonl
    altorch plot rows.jsonl                                       pictures; --html FILE writes a page at once

A figure is of one call, of the slowest rank. With `--device cuda`, `device` is the time of the device alone, behind a
kernel that spins until the host has issued all calls; the others contain the host.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from altorch.cli import _ranks
from altorch.cli._output import Progress, parse_bytes, print_json

if TYPE_CHECKING:
    from altorch.bench.rows import Row

SUMMARY = (
    "Time operations over altorch and over other backends, in turns, with the physical floor beside them."
)

# Not taken from altorch.bench.cases: that imports torch.
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv", "barrier")
_LAUNCHED = ("sizes", "dtype", "device", "against", "seconds")


def _sizes(text: str) -> list[int]:
    return [parse_bytes(word) for word in text.split(",") if word]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "operations", nargs="*", metavar="OPERATION", help=f"{', '.join(OPERATIONS)} (default: all_reduce)"
    )
    parser.add_argument("--sizes", default="8,1K,16K,256K,4M,64M", help="bytes (default: %(default)s)")
    parser.add_argument("--dtype", default="float32", help="torch's name of the type (default: %(default)s)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: %(default)s")
    parser.add_argument(
        "--against",
        default="gloo",
        metavar="LIST",
        help="what takes turns with altorch: gloo, nccl, fake (torch's own dispatch), al:ROUTE or al:ALGORITHM, "
        "al:OPTION=NUMBER; '' for nothing (default: %(default)s)",
    )
    parser.add_argument("--async", dest="lazy", action="store_true", help="async_op=True and wait(), too")
    parser.add_argument("--graph", action="store_true", help="replay of a CUDA graph, too")
    parser.add_argument(
        "--seconds", type=float, default=0.6, help="for one operation and size (default: %(default)s)"
    )
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="start N ranks here (2 when nothing started us)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="append the rows to FILE as JSON lines")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write bandwidth by size as a page, too")


def run(arguments: argparse.Namespace) -> int:
    from altorch import _launcher

    if problem := _problem(arguments):
        print(f"altorch bench: {problem}", file=sys.stderr)
        return 2
    if arguments.ranks is None and _launcher.detect().name != "none":
        return _measure(arguments)
    command = ["bench", *arguments.operations]
    command += [f"--{name}={getattr(arguments, name)}" for name in _LAUNCHED]
    flags = {"--async": arguments.lazy, "--graph": arguments.graph, "--json": arguments.json}
    command += [flag for flag, given in flags.items() if given]
    for name in ("out", "html"):
        if file := getattr(arguments, name):
            command.append(f"--{name}={file.resolve()}")
    return _ranks.start(arguments.ranks or 2, command)


def _problem(arguments: argparse.Namespace) -> str:
    """What is wrong with the command line, found before ranks are started; empty: nothing."""
    import torch

    from altorch import report
    from altorch.bench import contenders

    if arguments.html and (problem := report.unwritable(arguments.html)):
        return f"--html: {problem}"
    names = _operations(arguments)
    for name in names:
        if name not in OPERATIONS:
            return f"'{name}' is none of {', '.join(OPERATIONS)}"
    if not isinstance(getattr(torch, arguments.dtype, None), torch.dtype):
        return f"'{arguments.dtype}' is no type of torch; try float32"
    if arguments.device == "cuda" and not torch.cuda.is_available():
        return "torch finds no GPU here; leave out --device cuda"
    try:
        if not _sizes(arguments.sizes):
            return "--sizes names none"
        for name in _wanted(arguments):
            contenders.settings(name, torch.device(arguments.device), names)
    except ValueError as error:
        return str(error)
    return ""


def _operations(arguments: argparse.Namespace) -> list[str]:
    return arguments.operations or ["all_reduce"]


def _wanted(arguments: argparse.Namespace) -> list[str]:
    return list(dict.fromkeys(["al", *(word for word in arguments.against.split(",") if word)]))


def _measure(arguments: argparse.Namespace) -> int:
    import torch.distributed as dist

    from altorch import report
    from altorch.bench import process_group, rows, table
    from altorch.bench.sweep import Sweep

    device = process_group.join(arguments.device)
    modes = ("sync", *(("async",) if arguments.lazy else ()), *(("graph",) if arguments.graph else ()))
    sweep = Sweep(
        contenders=_wanted(arguments),
        operations=_operations(arguments),
        dtypes=[arguments.dtype],
        sizes=_sizes(arguments.sizes),
        modes=modes,
        seconds=arguments.seconds,
    )
    run, first = rows.where("altorch", arguments.device), dist.get_rank() == 0
    measured: list[Row] = []
    with Progress(len(sweep.jobs()), quiet=arguments.json or not first) as progress:
        skipped = sweep.measure(
            device, lambda row: measured.append({"benchmark": "bench"} | row), progress.at
        )
    if first:
        rows.append(arguments.out, [run, *measured])
        if arguments.html:
            report.write_bench(arguments.html, [run, *measured])
        if arguments.json:
            print_json({"rows": [run, *measured], "skipped": skipped})
        else:
            table.show(run, measured, skipped)
    process_group.leave()
    return 0
