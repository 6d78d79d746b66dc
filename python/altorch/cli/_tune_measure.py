# SPDX-License-Identifier: BSD-3-Clause
"""What `altorch tune` does on each rank: it measures, makes rules of the times, and writes the file."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from altorch.cli import _tune_group
from altorch.cli._output import Progress, human_bytes, parse_bytes, print_json, print_table

if TYPE_CHECKING:
    import torch

    from altorch.bench.rows import Row
    from altorch.bench.sweep import Job, Sweep
    from altorch.bench.tuning import Rule
    from altorch.bench.unfinished import Cell, Unfinished
    from altorch.cli._tune_group import Group


def sizes_of(arguments: argparse.Namespace) -> list[int]:
    return sorted({parse_bytes(word) for word in arguments.sizes.split(",") if word})


def measure(arguments: argparse.Namespace) -> int:
    import torch.distributed as dist

    from altorch.bench import process_group, rows, tuning
    from altorch.bench.sweep import Sweep

    device = process_group.join(arguments.device)
    group, first = _tune_group.find(device), dist.get_rank() == 0
    if group.nodes > 1 and arguments.device == "cpu":
        process_group.leave()
        if first:
            print(
                f"altorch tune: the ranks are on {group.nodes} nodes, and CPU tensors are measured only among "
                "ranks of one; start it on one node, or with --device cuda",
                file=sys.stderr,
            )
        return 2
    sizes = sizes_of(arguments)
    plans = {
        name: ["al", *(f"al:{choice}" for choice in group.choices(name))]
        for name in arguments.operations or tuning.OPERATIONS[arguments.device]
    }
    seconds = arguments.budget / (sum(map(len, plans.values())) * len(sizes) * arguments.passes)
    unfinished = _begin(arguments, plans, group) if first else None
    known: list[set[Cell] | None] = [unfinished.cells() if unfinished else None]
    dist.broadcast_object_list(known, 0)
    if known[0] is None:
        process_group.leave()
        return 2
    cells = set(itertools.product(range(arguments.passes), plans, sizes)) - known[0]
    with Progress(2 * len(cells), quiet=arguments.json or not first) as progress:  # each beside memcpy
        for number, operation in itertools.product(range(arguments.passes), plans):
            left = [size for size in sizes if (number, operation, size) in cells]
            if not left:
                continue
            sweep = Sweep(
                contenders=plans[operation],
                operations=[operation],
                dtypes=["float32"],
                sizes=left,
                seconds=seconds * len(plans[operation]),
            )
            _measure_pass(sweep, device, number, unfinished, progress)
    status = 0
    if unfinished:
        passes = unfinished.passes(arguments.passes)
        measured_sizes = {name: tuning.sizes_of(passes, name) for name in plans}
        faster = tuning.faster(passes)
        rules = tuning.rules_of(faster, measured_sizes, group.ranks, group.device, group.nodes)
        run = rows.where("altorch", arguments.device) | {"device": arguments.device}
        # Only groups on one node have costs: for several nodes a time estimate adds up stages.
        costs = tuning.costs_of(passes, faster, group.ranks, group.device) if group.nodes == 1 else []
        document = tuning.document(rules, run, costs)
        status = _write(arguments, document, list(plans), group)
        if status == 0:
            unfinished.end()
        _show(arguments, document, rules, list(plans), group)
        if status == 0 and not arguments.json:
            print(f"written: {arguments.out}; ALTORCH_TUNED={arguments.out} loads it")
    process_group.leave()
    return status


def _measure_pass(
    sweep: Sweep, device: torch.device, number: int, unfinished: Unfinished | None, progress: Progress
) -> None:
    """`unfinished`: of rank 0."""
    jobs: list[Job] = []

    def at(job: Job) -> None:
        jobs.append(job)
        progress.at(job)

    def keep(row: Row) -> None:
        if unfinished and jobs[-1].operation in sweep.operations:
            unfinished.add(number, jobs[-1].size, row)

    sweep.measure(device, keep, at)


def _begin(arguments: argparse.Namespace, plans: dict[str, list[str]], group: Group) -> Unfinished | None:
    """Null: there is something else to resume, which stays."""
    from altorch import _tuned
    from altorch._version import __version__
    from altorch.bench.unfinished import Unfinished

    asked = {
        "plans": plans,
        "sizes": sizes_of(arguments),
        "passes": arguments.passes,
        "ranks": group.ranks,
        "nodes": group.nodes,
        "device": arguments.device,
        "machine": _tuned.machine(on_gpus=arguments.device == "cuda"),
        "altorch": __version__,
    }
    found = Unfinished(arguments.out, asked)
    if arguments.resume:
        try:
            found.resume()
        except FileNotFoundError:
            print(f"altorch tune: there is no {found.path} to resume; all is measured", file=sys.stderr)
        except (OSError, ValueError) as error:
            print(f"altorch tune: --resume: {error}; without --resume all is measured", file=sys.stderr)
            return None
    if reason := found.begin():
        print(f"altorch tune: what is measured is not kept for --resume: {reason}", file=sys.stderr)
    return found


def _write(
    arguments: argparse.Namespace, document: dict[str, Any], operations: list[str], group: Group
) -> int:
    """Keeps what the file says of other operations and groups."""
    from altorch import _tuned
    from altorch._extension import extension

    try:
        if arguments.out.exists():
            before = _tuned.read(arguments.out)
            _tuned.as_text(before)
            extension().set_tuned_costs(_tuned.costs_of(before))  # refuses what does not hold
            extension().set_tuned_costs([])
            measured = {(group.device, group.ranks, group.nodes, name) for name in operations}
            for name in ("rules", "costs"):  # both were looked at
                document[name] += [
                    row
                    for row in before.get(name, [])
                    if (row.get("device", "cpu"), row["ranks"], _tuned.nodes_of(row), row["operation"])
                    not in measured
                ]
            if "gpus" in before["machine"]:  # some of these are for CUDA tensors
                document["machine"] = before["machine"]
    except (OSError, ValueError, RuntimeError) as error:
        print(f"altorch tune: {arguments.out} is replaced: {error}", file=sys.stderr)
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
    group: Group,
) -> None:
    if arguments.json:
        print_json(document)
        return
    if not rules:
        print(f"{', '.join(operations)} among {group}: no choice is faster than the default beyond noise")
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
        print_table(f"Faster than the default among {group}", ["operation", "sizes", "choice", "gain"], cells)
