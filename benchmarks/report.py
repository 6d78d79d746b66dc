# SPDX-License-Identifier: BSD-3-Clause
"""What the suites share: the options that most of them have, and the row of a run with its commit."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from altorch.bench import rows
from altorch.bench.rows import Row
from altorch.cli._output import parse_bytes

SIZES = "8,1K,16K,256K,1M,16M,64M"
REPOSITORY = Path(__file__).resolve().parent.parent


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the rows to FILE as JSON lines")
    return parser


def add_contenders(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--contenders", type=names, default=names(default), metavar="LIST", help=f"default {default}"
    )


def add_ranks(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--ranks", type=numbers, default=numbers(default), help=f"how many, default {default}"
    )


def add_sizes(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--sizes", type=byte_sizes, default=byte_sizes(default), help=f"default {default}")


def add_operations(parser: argparse.ArgumentParser, operations: str, sizes: str) -> None:
    parser.add_argument("--operations", type=names, default=names(operations), help=f"default {operations}")
    add_sizes(parser, sizes)


def add_sweep(
    parser: argparse.ArgumentParser, contenders: str, operations: str, dtypes: str, sizes: str
) -> None:
    add_contenders(parser, contenders)
    add_operations(parser, operations, sizes)
    parser.add_argument("--dtypes", type=names, default=names(dtypes), help=f"default {dtypes}")
    parser.add_argument("--seconds", type=float, default=0.6, help="time for one operation, type and size")


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def numbers(text: str) -> list[int]:
    return [int(number) for number in names(text)]


def byte_sizes(text: str) -> list[int]:
    """8,1K,64K,1M -> bytes."""
    try:
        return [parse_bytes(name) for name in names(text)]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def commit() -> str:
    """The commit measured, with "+" when files that are built or run differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout.strip()

    if named := os.environ.get("ALTORCH_TEST_COMMIT"):  # of a copy without git
        return named
    try:
        changed = git(
            "status", "--porcelain", "--untracked-files=no", "--", "csrc", "python", "benchmarks/*.py"
        )
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def where(device: str = "cpu") -> Row:
    """The row of this run; prints the most of it, too."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"python -m {spec.name}" if spec is not None else Path(sys.argv[0]).name
    run = rows.where(program, device) | {"commit": commit()}
    many = f"{run['gpus']} GPUs, NCCL {run['nccl']}" if device == "cuda" else f"{run['cores']} cores"
    versions = f"torch {run['torch']}, altorch {run['altorch']}, commit {run['commit']}"
    print(f"{run['machine']}, {many}, {versions}, load {run['load_before']:.1f}", flush=True)
    return run
