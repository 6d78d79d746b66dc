"""What every benchmark prints: a first row that says where it ran, JSON lines, and tables."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.ranks import REPOSITORY, Row

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
    factors = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = []
    for name in names(text):
        match = re.fullmatch(r"(\d+)([KMG]?)", name.upper())
        if match is None:
            raise argparse.ArgumentTypeError(f"{name!r} is not a size such as 8, 64K or 1M")
        sizes.append(int(match[1]) * factors[match[2]])
    return sizes


def show_bytes(count: int) -> str:
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} B"


def show_microseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


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


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def where() -> Row:
    """The row that stands first in every file of results."""
    return {
        "benchmark": "run",
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "altorch": version_of("altorch"),
        "mpich": version_of("mpich"),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python", "-m", module_name(), *(portable(word) for word in sys.argv[1:])]),
    }


def portable(word: str) -> str:
    """Paths as they are from here, so that the command means something on another machine."""
    path = Path(word)
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else word


def module_name() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else Path(sys.argv[0]).name


def append(file: Path | None, rows: Iterable[Row]) -> None:
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:
        for row in rows:
            stream.write(json.dumps(row) + "\n")


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]


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
