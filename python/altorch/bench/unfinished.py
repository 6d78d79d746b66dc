# SPDX-License-Identifier: BSD-3-Clause
"""What `altorch tune` has measured so far, in a file beside --out, so that --resume goes on where it was stopped.

Lines of JSON: first what was asked, then rows, each with the pass and the size that it was measured for. A size that
was stopped between its rows is measured again. Rank 0 alone has the file. Where it cannot be written, a run that is
stopped has to begin anew.
"""

from __future__ import annotations

import json
from pathlib import Path

from altorch.bench.rows import Row

# What was measured: pass, operation, and bytes as they were asked for.
Cell = tuple[int, str, int]


class Unfinished:
    def __init__(self, out: Path, asked: Row, contenders: dict[str, int]) -> None:
        """`asked`: what a run that goes on with this one must have in common. `contenders`: rows of a cell."""
        self.path = out.with_name(f"{out.name}.unfinished")
        self.rows: list[Row] = []
        self._asked = asked
        self._contenders = contenders
        self._is_kept = True

    def resume(self) -> None:
        """Reads the file. Raises ValueError if it is of something else, OSError if it cannot be read."""
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        if not lines or lines[0] != self._asked:
            raise ValueError(
                f"{self.path} is of other operations, sizes, passes or ranks, another machine or altorch"
            )
        try:
            cells = [_checked(row) for row in lines[1:]]
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{self.path} has a line that is no row") from None
        whole = {cell for cell in cells if cells.count(cell) == self._contenders.get(cell[1])}
        self.rows = [row for row, cell in zip(lines[1:], cells, strict=True) if cell in whole]

    def begin(self) -> None:
        """Writes the file anew, with the rows that there are."""
        self._write("w", [self._asked, *self.rows])

    def add(self, number: int, size: int, row: Row) -> None:
        self.rows.append(row | {"pass": number, "size": size})
        self._write("a", self.rows[-1:])

    def cells(self) -> set[Cell]:
        return {_checked(row) for row in self.rows}

    def passes(self, number: int) -> list[list[Row]]:
        return [[row for row in self.rows if row["pass"] == each] for each in range(number)]

    def end(self) -> None:
        if self._is_kept:
            self.path.unlink(missing_ok=True)

    def _write(self, mode: str, lines: list[Row]) -> None:
        if not self._is_kept:
            return
        try:
            with self.path.open(mode) as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        except OSError:  # the other ranks go on measuring
            self._is_kept = False


def _checked(row: Row) -> Cell:
    if not float(row["p10_us"]) > 0 or not float(row["median_us"]) > 0:
        raise ValueError("a call took no time")
    return int(row["pass"]), str(row["operation"]), int(row["size"])
