# SPDX-License-Identifier: BSD-3-Clause
"""`altorch tune`: measures what ALTORCH_ROUTE can name on this machine, and writes where it is faster than the default.

    altorch tune --ranks 4 --out altorch-tuned.json               starts four ranks here
    ALTORCH_TUNED=altorch-tuned.json torchrun train.py            groups of as many ranks choose by the file
    ALTORCH_TUNED=altorch-tuned.json altorch bench all_reduce --ranks 4 --against al:untuned

A choice must be 5 % faster than the default in every pass, else the default stays. What --out says of other numbers
of ranks is kept. ALTORCH_ROUTE comes before the file. So far: all_reduce of CPU tensors, ranks on one node; for the
others, and on GPUs, `altorch bench --against al:...` compares, and ALTORCH_ROUTE says what to take.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from altorch.cli import _ranks
from altorch.cli._output import Progress, human_bytes, parse_bytes, print_json, print_table

if TYPE_CHECKING:
    from altorch.bench.rows import Row
    from altorch.bench.tuning import Rule

SUMMARY = "Measure routes and protocols on this machine, and write which are faster than the defaults."
OPERATIONS = ("all_reduce",)
_LAUNCHED = ("sizes", "budget", "passes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "operations", nargs="*", metavar="OPERATION", help=f"default: {', '.join(OPERATIONS)}"
    )
    parser.add_argument(
        "--sizes", default="1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,4M", help="bytes (default: %(default)s)"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=120,
        metavar="SECONDS",
        help="about so long in all (default: %(default)s)",
    )
    parser.add_argument(
        "--passes", type=int, default=2, help="how often all is measured (default: %(default)s)"
    )
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="start N ranks here (2 when nothing started us)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("altorch-tuned.json"), metavar="FILE", help="default: %(default)s"
    )


def run(arguments: argparse.Namespace) -> int:
    from altorch import _launcher

    if problem := _problem(arguments):
        print(f"altorch tune: {problem}", file=sys.stderr)
        return 2
    os.environ.pop("ALTORCH_TUNED", None)  # what is compared with is the default
    if arguments.ranks is None and _launcher.detect().name != "none":
        return _measure(arguments)
    command = ["tune", *arguments.operations]
    command += [f"--{name}={getattr(arguments, name)}" for name in _LAUNCHED]
    command += ["--json"] if arguments.json else []
    command += [f"--out={arguments.out.resolve()}"]
    return _ranks.start(arguments.ranks or 2, command)


def _problem(arguments: argparse.Namespace) -> str:
    for name in arguments.operations:
        if name not in OPERATIONS:
            return f"'{name}' is none of {', '.join(OPERATIONS)}"
    try:
        sizes = _sizes(arguments)
    except (ValueError, OverflowError) as error:
        return str(error)
    if not sizes or not 1 <= arguments.passes <= 100 or not 0 < arguments.budget <= 86_400:
        return "--sizes names none, --passes is not 1 to 100, or --budget is no time up to a day"
    if arguments.ranks is not None and arguments.ranks < 2:
        return "--ranks must be at least 2: a rank alone has no choice"
    if not arguments.out.resolve().parent.is_dir() or (
        arguments.out.exists() and not arguments.out.is_file()
    ):
        return f"--out: {arguments.out} cannot be written: no such folder, or it is no file"
    if os.environ.get("ALTORCH_ROUTE"):
        return "ALTORCH_ROUTE is set, and would choose instead of the default; unset it"
    return ""


def _sizes(arguments: argparse.Namespace) -> list[int]:
    return sorted({parse_bytes(word) for word in arguments.sizes.split(",") if word})


def _measure(arguments: argparse.Namespace) -> int:
    import torch.distributed as dist

    from altorch.bench import process_group, rows, tuning
    from altorch.bench.sweep import Sweep

    device = process_group.join("cpu")
    ranks, first = dist.get_world_size(), dist.get_rank() == 0
    nodes: list[object] = [None] * ranks
    dist.all_gather_object(nodes, platform.node())
    if len(set(nodes)) > 1:
        process_group.leave()
        if first:
            print("altorch tune: the ranks are on several nodes; what it tries is for one", file=sys.stderr)
        return 2
    sizes = _sizes(arguments)
    plans = {
        name: ["al", *(f"al:{choice}" for choice in tuning.CHOICES[name])]
        for name in arguments.operations or OPERATIONS
    }
    cells = sum(map(len, plans.values())) * len(sizes) * arguments.passes
    seconds = arguments.budget / cells
    passes: list[list[Row]] = []
    jobs = 2 * len(sizes) * len(plans) * arguments.passes  # each beside memcpy
    with Progress(jobs, quiet=arguments.json or not first) as progress:
        for _ in range(arguments.passes):
            measured: list[Row] = []
            for operation, names in plans.items():
                sweep = Sweep(
                    contenders=names,
                    operations=[operation],
                    dtypes=["float32"],
                    sizes=sizes,
                    seconds=seconds * len(names),
                )
                sweep.measure(device, measured.append, progress.at)
            passes.append(measured)
    status = 0
    if first:
        measured_sizes = {name: tuning.sizes_of(passes, name) for name in plans}
        rules = tuning.rules_of(tuning.faster(passes), measured_sizes, ranks)
        document = tuning.document(rules, rows.where("altorch"))
        status = _write(arguments, document, list(plans), ranks)
        _show(arguments, document, rules, list(plans), ranks)
        if status == 0 and not arguments.json:
            print(f"written: {arguments.out}; ALTORCH_TUNED={arguments.out} loads it")
    process_group.leave()
    return status


def _write(
    arguments: argparse.Namespace, document: dict[str, object], operations: list[str], ranks: int
) -> int:
    """Keeps what the file says of other operations and numbers of ranks."""
    from altorch import _tuned

    rules = document["rules"]
    assert isinstance(rules, list)
    try:
        if arguments.out.exists():
            before = _tuned.read(arguments.out)
            _tuned.as_text(before)
            rules += [
                rule
                for rule in before["rules"]
                if rule["ranks"] != ranks or rule["operation"] not in operations
            ]
    except (OSError, ValueError) as error:
        print(f"altorch tune: {arguments.out} is written anew: {error}", file=sys.stderr)
    try:
        written = arguments.out.with_name(f"{arguments.out.name}.{os.getpid()}")
        written.write_text(json.dumps(document, indent=1) + "\n")
        written.replace(arguments.out)  # a program that reads it sees one or the other
    except OSError as error:
        print(f"altorch tune: {arguments.out}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _show(
    arguments: argparse.Namespace,
    document: dict[str, object],
    rules: list[Rule],
    operations: list[str],
    ranks: int,
) -> None:
    if arguments.json:
        print_json(document)
        return
    if not rules:
        print(
            f"{', '.join(operations)} among {ranks} ranks: no choice is faster than the default beyond noise"
        )
    else:
        cells = [
            [
                rule.operation,
                f"{human_bytes(rule.begin)} to {human_bytes(rule.below)}",
                rule.choice,
                f"{rule.gain:.2f}x",
            ]
            for rule in rules
        ]
        print_table(
            f"Faster than the default among {ranks} ranks", ["operation", "sizes", "choice", "gain"], cells
        )
