# SPDX-License-Identifier: BSD-3-Clause
"""`altorch tune`: measures what ALTORCH_ROUTE can name on this machine, and writes where it is faster than the default.

    altorch tune --ranks 4 --out altorch-tuned.json               starts four ranks here
    ALTORCH_TUNED=altorch-tuned.json torchrun train.py            groups of as many ranks choose by the file
    ALTORCH_TUNED=altorch-tuned.json altorch bench all_reduce --ranks 4 --against al:untuned
    altorch tune --diff --out altorch-tuned.json                  what the file changes, and what that has gained

    torchrun --nproc-per-node 2 -m altorch tune --device cuda     the same for CUDA tensors
    srun -N 2 --ntasks-per-node 8 altorch tune --device cuda      for groups of 16 ranks on two nodes

A choice must be 5 % faster than the default in every pass, else the default stays. What --out says of other numbers
of ranks or nodes, or of the other device, is kept. ALTORCH_ROUTE comes before the file. CPU tensors are measured only
among ranks of one node. For the other operations `altorch bench --against al:...` compares, and ALTORCH_ROUTE says
what to take.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from altorch.bench.tuning import OPERATIONS
from altorch.cli import _ranks, _tune_measure

SUMMARY = "Measure routes and protocols on this machine, and write which are faster than the defaults."
_LAUNCHED = ("sizes", "budget", "passes", "device")
_FLAGS = ("json", "resume")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "operations",
        nargs="*",
        metavar="OPERATION",
        help=f"default: {', '.join(OPERATIONS['cpu'])}; of CUDA tensors {', '.join(OPERATIONS['cuda'])}",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: %(default)s")
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
    parser.add_argument(
        "--resume", action="store_true", help="go on where a run with the same arguments was stopped"
    )
    parser.add_argument(
        "--diff", action="store_true", help="print what --out changes against the defaults; measures nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    from altorch import _launcher

    if problem := _problem(arguments):
        print(f"altorch tune: {problem}", file=sys.stderr)
        return 2
    os.environ.pop("ALTORCH_TUNED", None)  # what is compared with is the default
    if arguments.diff:
        from altorch.cli import _tune_diff

        return _tune_diff.show(arguments.out, arguments.json)
    if arguments.ranks is None and _launcher.detect().name != "none":
        return _tune_measure.measure(arguments)
    command = ["tune", *arguments.operations]
    command += [f"--{name}={getattr(arguments, name)}" for name in _LAUNCHED]
    command += [f"--{name}" for name in _FLAGS if getattr(arguments, name)]
    command += [f"--out={arguments.out.resolve()}"]
    return _ranks.start(arguments.ranks or 2, command)


def _problem(arguments: argparse.Namespace) -> str:
    from altorch import _launcher

    known = OPERATIONS[arguments.device]
    for name in arguments.operations:
        if name not in known:
            return f"'{name}' is none of {', '.join(known)}"
    if arguments.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            return "torch finds no GPU here; leave out --device cuda"
    try:
        sizes = _tune_measure.sizes_of(arguments)
    except (ValueError, OverflowError) as error:
        return str(error)
    if not sizes or not 1 <= arguments.passes <= 100 or not 0 < arguments.budget <= 86_400:
        return "--sizes names none, --passes is not 1 to 100, or --budget is no time up to a day"
    if arguments.ranks is not None and arguments.ranks < 2:
        return "--ranks must be at least 2: a rank alone has no choice"
    writes = not _launcher.detect().rank  # rank 0, or a process that no launcher has started
    if writes and (
        not arguments.out.resolve().parent.is_dir()
        or (arguments.out.exists() and not arguments.out.is_file())
    ):
        return f"--out: {arguments.out} cannot be written: no such folder, or it is no file"
    if os.environ.get("ALTORCH_ROUTE"):
        return "ALTORCH_ROUTE is set, and would choose instead of the default; unset it"
    return ""
