# SPDX-License-Identifier: BSD-3-Clause
"""How the commands print: rich tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def print_json(document: object) -> None:
    print(json.dumps(document, indent=2, default=str))


def console() -> Console:
    """As wide as the terminal; wide enough not to fold where a file or a pipe takes the output."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()
) -> None:
    """`right`: names of the columns to align to the right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(plain(column), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    console().print(table)


class Progress:
    """A progress bar on standard error; if that is no terminal, a line every LINE_EVERY seconds."""

    LINE_EVERY = 30

    def __init__(self, steps: int, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True, quiet=quiet)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Bar(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task("", total=steps)
        self._steps, self._done = steps, -1  # before the first one begins
        self._next_line = time.monotonic() + self.LINE_EVERY if self._bar.disable and not quiet else math.inf

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def at(self, what: object) -> None:
        self._bar.update(self._task, description=str(what), advance=0 if self._done < 0 else 1)
        self._done += 1
        if time.monotonic() > self._next_line:
            self._next_line = time.monotonic() + self.LINE_EVERY
            print(f"{self._done} of {self._steps} done, at {what}", file=sys.stderr, flush=True)

    def describe(self, what: str) -> None:
        self._bar.update(self._task, description=what)


def print_pairs(title: str, pairs: Mapping[str, Any]) -> None:
    """Names and values, one a line; empty values are left out."""
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
    )
    table.add_column(overflow="fold", min_width=14)
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        if value != "":
            table.add_row(plain(name), plain(value))
    console().print(table)
    print()


def plain(cell: Any) -> str:
    """Text for a cell; brackets are text, not rich's markup."""
    from rich.markup import escape

    if cell is True:
        return "yes"
    if cell is False:
        return "no"
    return "" if cell is None else escape(str(cell))


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count == int(count) else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def short_number(value: float | None) -> str:
    """Three digits or so; nothing is a dash."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def parse_bytes(text: str) -> int:
    """`4096`, `4K`, `4KiB`, `1.5M`: units are powers of 1024."""
    units = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = number[-1:] if number[-1:].isalpha() else ""
    try:
        value = float(number.removesuffix(unit)) * units[unit]
    except (ValueError, KeyError):
        raise ValueError(f"'{text}' is not a size: write 4096, 64K, 4M or 1G.") from None
    if value < 0:
        raise ValueError(f"'{text}' is not a size: it is negative.")
    if value >= 1 << 62:  # NaN and infinity came from no number that float() takes with a unit
        raise ValueError(f"'{text}' is not a size: no memory holds so much.")
    return int(value)
