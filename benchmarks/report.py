"""What every benchmark prints: a first row that says where it ran, JSON lines, and tables."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from altorch.bench import rows
from altorch.bench.rows import Row, append, read
from altorch.cli._output import human_bytes as show_bytes
from altorch.cli._output import parse_bytes
from altorch.cli._output import short_number as show_microseconds

__all__ = ["append", "read", "show_bytes", "show_microseconds"]

REPOSITORY = Path(__file__).resolve().parent.parent
console = Console(width=None if sys.stdout.isatty() else 140)


def add_common_arguments(parser: argparse.ArgumentParser, *, backends: str, ranks: str) -> None:
    parser.add_argument("--backends", type=names, default=names(backends), help=f"default {backends}")
    parser.add_argument(
        "--ranks", type=numbers, default=numbers(ranks), help=f"numbers of ranks, default {ranks}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the rows to FILE as JSON lines")


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

    try:
        changed = git(
            "status", "--porcelain", "--untracked-files=no", "--", "csrc", "python", "benchmarks/*.py"
        )
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def where() -> Row:
    """The row that stands first in every file of results."""
    return rows.where(f"python -m {module_name()}") | {"commit": commit()}


def module_name() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else Path(sys.argv[0]).name


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> None:
    """``left`` columns are aligned left, the rest are figures."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", no_wrap=index >= left)
    for row in rows:
        table.add_row(*[str(cell) for cell in row])
    console.print(table)


def print_where(row: Row) -> None:
    console.print(
        f"{row['cpu']}, {row['cores']} cores, torch {row['torch']}, altorch {row['altorch']}, commit {row['commit']}, "
        f"load {row['load_before']:.1f}",
        highlight=False,
    )
