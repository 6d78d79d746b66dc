# SPDX-License-Identifier: BSD-3-Clause
"""Aims: figures that rows should reach.

An aim takes a number, or one per case, from the rows of a device and number of ranks; each has to reach the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from altorch.bench.rows import Row
from altorch.cli._output import human_bytes, print_table

Cases = dict[str, float]
REACHED = {True: "yes", False: "no", None: "not measured"}


class Results:
    """Rows to select from; of what was measured more than once, the last."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)

    def of(self, **wanted: Any) -> list[Row]:
        """Those with these values; a range or a tuple allows any of its own."""

        def fits(row: Row) -> bool:
            return all(
                key in row and row[key] in (value if isinstance(value, (range, tuple)) else (value,))
                for key, value in wanted.items()
            )

        return [row for row in self.rows if fits(row)]

    def figures(self, *keys: str, **wanted: Any) -> dict[tuple[str, str, int], float]:
        """By operation, type and size: the first of the keys that a row has."""
        return {
            (row["operation"], row["dtype"], row["bytes"]): row[key]
            for row in self.of(**wanted)
            if (key := next((key for key in keys if row.get(key)), None))
        }

    def ratios(self, mine: str, theirs: str, *keys: str, **wanted: Any) -> Cases:
        """How many times less than `theirs` the contender `mine` took, wherever both were measured."""
        over = self.figures(*keys, contender=theirs, **wanted)
        under = self.figures(*keys, contender=mine, **wanted)
        return labelled({case: over[case] / took for case, took in under.items() if case in over})


def labelled(found: dict[tuple[str, str, int], float]) -> Cases:
    """Named by what tells the cases apart."""
    telling = [len(set(column)) > 1 for column in zip(*found, strict=True)]

    def label(operation: str, dtype: str, size: int) -> str:
        words = zip((operation, dtype, human_bytes(size)), telling, strict=True)
        return " ".join(word for word, tells in words if tells and word)

    return {label(*case): value for case, value in found.items()}


class AimResult(NamedTuple):
    what: str
    aim: str
    measured: str
    reached: bool | None  # None: not measured


class Aim(NamedTuple):
    what: str
    target: float
    measure: Callable[[Results], Cases | float | None]  # one number needs no name
    unit: str = "x"
    digits: int = 2
    at_most: bool = False  # rather than at least
    ranks: int | None = None  # judged with so many, or with any number
    remark: Callable[[Results], str] = lambda results: ""

    def judge(self, results: Results) -> AimResult:
        aim = f"{'<=' if self.at_most else '>='} {self.target:g}{self.unit}"
        measured = self.measure(results)
        found = {"": measured} if isinstance(measured, (int, float)) else measured
        if not found:
            return AimResult(self.what, aim, "not measured", None)
        ordered = sorted(found.items(), key=lambda case: case[1], reverse=self.at_most)
        ends = ordered[:1] + (ordered[-1:] if len(ordered) > 1 else [])
        text = " to ".join(
            f"{value:.{self.digits}f}{self.unit}" + (f" ({case})" if case else "") for case, value in ends
        )
        reach = sum(
            value <= self.target if self.at_most else value >= self.target for value in found.values()
        )
        if reach < len(found) > 1:
            text += f"; {reach} of {len(found)} reach it"
        if remark := self.remark(results):
            text += f"; {remark}"
        return AimResult(self.what, aim, text, reach == len(found))


def judge(aims: Sequence[Aim], rows: Iterable[Row], ranks: int) -> list[AimResult]:
    results = Results(row for row in rows if row.get("ranks") == ranks)
    return [aim.judge(results) for aim in aims if aim.ranks in (None, ranks)]


def show(title: str, results: Iterable[AimResult]) -> None:
    columns = ["what", "aim", "measured", "reached"]
    print_table(title, columns, [(*result[:3], REACHED[result.reached]) for result in results])
