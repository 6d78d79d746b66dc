"""`altorch bench`: altorch beside torch's own backends, in turns in the same processes.

    altorch bench all_reduce --sizes 8,1K,1M --against gloo       starts two ranks on this machine
    torchrun --nproc-per-node 2 -m altorch bench --device cuda --against nccl,al:host_staged --graph --out rows.jsonl
    altorch plot rows.jsonl

A figure is of one call, of the slowest rank. With `--device cuda`, `device` is the time of the device alone, behind a
kernel that spins until the host has issued all calls; the others contain the host.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from altorch.cli import _ranks
from altorch.cli._output import human_bytes, parse_bytes, print_json, print_table, short_number

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


def run(arguments: argparse.Namespace) -> int:
    from altorch import _launcher

    if problem := _problem(arguments):
        print(f"altorch bench: {problem}", file=sys.stderr)
        return 2
    launcher = _launcher.detect()
    if arguments.ranks is None and launcher.name != "none":
        return _measure(arguments, launcher)
    command = ["bench", *arguments.operations]
    command += [f"--{name}={getattr(arguments, name)}" for name in _LAUNCHED]
    flags = {"--async": arguments.lazy, "--graph": arguments.graph, "--json": arguments.json}
    command += [flag for flag, given in flags.items() if given]
    command += [f"--out={arguments.out.resolve()}"] if arguments.out else []
    return _ranks.start(arguments.ranks or 2, command)


def _problem(arguments: argparse.Namespace) -> str:
    """What is wrong with the command line, found before ranks are started; empty: nothing."""
    import torch

    from altorch.bench import contenders

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


def _measure(arguments: argparse.Namespace, launcher: Any) -> int:
    import torch
    import torch.distributed as dist

    from altorch.bench import cases, contenders, rows, turns

    dtype = getattr(torch, arguments.dtype)
    torch.set_num_threads(1)
    device = torch.device("cpu")
    if arguments.device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", launcher.local_rank or 0))
        device = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(device)
    init = "mpi://" if launcher.starts_mpi and "MASTER_ADDR" not in os.environ else None
    dist.init_process_group("al", init_method=init, timeout=timedelta(minutes=5))

    names, wanted = _operations(arguments), _wanted(arguments)
    skipped = {name: why for name in wanted if (why := contenders.obstacle(name, device))}
    groups = {name: contenders.make(name, device, names) for name in wanted if name not in skipped}
    modes = ("sync", *(("async",) if arguments.lazy else ()), *(("graph",) if arguments.graph else ()))
    sizes = _sizes(arguments.sizes)
    head = rows.where("altorch") | _about(device)
    measured: list[Row] = [head] if dist.get_rank() == 0 else []
    common = {"benchmark": "bench", "device": device.type, "machine": head["machine"]}
    jobs = [(name, size) for name in names for size in (sizes if name != "barrier" else sizes[:1])]
    with _Progress(len(jobs) + len(sizes), quiet=arguments.json or dist.get_rank() > 0) as progress:
        for size in sizes:
            progress.at(f"memcpy, {human_bytes(size)}")
            measured.append(common | turns.copies(size, dtype, device))
        for name, size in jobs:
            progress.at(f"{name}, {human_bytes(size)}")
            here = {word: g for word, g in groups.items() if contenders.takes_part(word, device, name)}
            case = cases.CASES[name]
            found = turns.measure(case, size, dtype, device, here, modes=modes, seconds=arguments.seconds)
            measured += [common | row for row in found]
    if dist.get_rank() == 0:
        rows.append(arguments.out, measured)
        if arguments.json:
            print_json({"rows": measured, "skipped": skipped})
        else:
            _report(measured, skipped, dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _about(device: Any) -> Row:
    import torch

    from altorch.bench import rows

    if device.type == "cpu":
        return {"machine": rows.cpu_model()}
    return {
        "machine": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[attr-defined]
    }


class _Progress:
    """A bar on standard error, where somebody looks."""

    def __init__(self, steps: int, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True, quiet=quiet)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(
            *columns, console=console, transient=True, disable=quiet or not console.is_terminal
        )
        self._task = self._bar.add_task("", total=steps)
        self._begun = False

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def at(self, what: str) -> None:
        self._bar.update(self._task, description=what, advance=1 if self._begun else 0)
        self._begun = True


def _report(measured: list[Row], skipped: dict[str, str], ranks: int) -> None:
    head, *timed = measured
    versions = f"torch {head['torch']}, altorch {head['altorch']}, load {head['load_before']:.1f} before"
    for name, why in skipped.items():
        print(f"{name}: left out, {why}")
    floors = {row["bytes"]: row["median_us"] for row in timed if row["operation"] == "memcpy"}
    timed = [row for row in timed if row["operation"] != "memcpy"]
    ours = {(row["operation"], row["bytes"], row["mode"]): row for row in timed if row["contender"] == "al"}
    lines = []
    for row in timed:
        beside = ours[row["operation"], row["bytes"], row["mode"]]
        ratio = "" if row is beside else f"{row['median_us'] / max(beside['median_us'], 1e-9):.2f}x"
        times = [row.get(f"{name}_us") for name in ("p10", "median", "max", "host", "device")]
        figures = [short_number(value) for value in (*times, row.get("busbw_GBps"))]
        floor = short_number(floors.get(row["bytes"]))
        head_cells = [row["operation"], human_bytes(row["bytes"]), row["contender"], row["mode"]]
        lines.append([*head_cells, *figures, ratio, floor])
    columns = ["operation", "size", "over", "mode", "p10", "median", "max", "host", "device", "bus [GB/s]"]
    columns += ["of al", "memcpy"]
    if head.get("gpus") is None:
        lines = [line[:7] + line[9:] for line in lines]
        columns = columns[:7] + columns[9:]
    title = f"{ranks} ranks, {head['machine']}, {versions}; microseconds a call, of the slowest rank"
    print_table(title, columns, lines, right=columns[4:])
