# SPDX-License-Identifier: BSD-3-Clause
"""What `altorch tune` has measured so far, in a file beside --out, so that --resume goes on where it was stopped.

Lines of JSON: first what was asked, then rows, each with the pass and the size that it was measured for. A size that
was stopped between its rows is measured again. Rank 0 alone has the file. Where it cannot be written, a run that is
stopped has to begin anew.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from altorch.bench.rows import Row

# What was measured: pass, operation, and bytes as they were asked for.
Cell = tuple[int, str, int]


class Unfinished:
    def __init__(self, out: Path, asked: Row) -> None:
        """`asked`: what a run that goes on with this one must have in common; its `plans`: contenders by operation."""
        self.path = out.with_name(f"{out.name}.unfinished")
        self.rows: list[Row] = []
        self._asked = asked
        self._is_kept = True

    def resume(self) -> None:
        """Reads the file. Raises ValueError if it is of something else, OSError if it cannot be read."""
        if self.path.exists() and not self.path.is_file():
            raise ValueError(f"{self.path} is no file")
        text = self.path.read_text()
        whole_lines = text[: text.rfind("\n") + 1].splitlines()  # a full disk may have cut the last one
        try:
            lines = [json.loads(line) for line in whole_lines]
        except RecursionError:
            raise ValueError(f"{self.path} has brackets that are nested too deep") from None
        if not lines or lines[0] != self._asked:
            raise ValueError(
                f"{self.path} is of other operations, sizes, passes, ranks or nodes, another machine or altorch"
            )
        measured: dict[Cell, dict[str, Row]] = {}
        for row in lines[1:]:
            if not self._is_row(row):
                raise ValueError(f"{self.path} has a line that is no row")
            measured.setdefault(_cell(row), {})[row["contender"]] = row
        self.rows = [
            row
            for cell, rows in measured.items()
            for row in rows.values()
            if set(rows) == set(self._asked["plans"][cell[1]])
        ]

    def begin(self) -> str | None:
        """Writes the file anew, with the rows that there are. Returns why it cannot be kept, or nothing."""
        return self._write("w", [self._asked, *self.rows])

    def add(self, number: int, size: int, row: Row) -> None:
        self.rows.append(row | {"pass": number, "size": size})
        self._write("a", self.rows[-1:])

    def cells(self) -> set[Cell]:
        return {_cell(row) for row in self.rows}

    def passes(self, number: int) -> list[list[Row]]:
        return [[row for row in self.rows if row["pass"] == each] for each in range(number)]

    def end(self) -> None:
        """The run is whole."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _write(self, mode: str, lines: list[Row]) -> str | None:
        if not self._is_kept:
            return None
        try:
            with self.path.open(mode) as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        except OSError as error:  # the other ranks go on measuring
            self._is_kept = False
            return f"{self.path}: {error.strerror}"
        return None

    def _is_row(self, row: Any) -> bool:
        return (
            isinstance(row, dict)
            and all(type(row.get(name)) is int for name in ("pass", "size", "bytes"))
            and all(isinstance(row.get(name), str) for name in ("operation", "contender"))
            and all(type(row.get(name)) is float and 0 < row[name] < 1e12 for name in ("p10_us", "median_us"))
            and row["contender"] in self._asked["plans"].get(row["operation"], ())
            and 0 <= row["pass"] < self._asked["passes"]
            and row["size"] in self._asked["sizes"]
        )


def _cell(row: Row) -> Cell:
    return row["pass"], row["operation"], row["size"]
