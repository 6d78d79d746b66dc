# SPDX-License-Identifier: BSD-3-Clause
"""Covering arrays of strength 2: few rows in which every possible pair of values of two factors occurs.

`covering_array(factors, constraints)` takes the values of each factor by the factor's name. A constraint is a
predicate whose parameters are names of factors: a row is valid if every constraint holds. A pair of values is
possible if it occurs in a valid row, and every possible pair occurs in a row of the array.

The generator is greedy, as AETG is: each step takes the uncovered pair that the fewest valid rows hold, and of a
sample of these rows the one that covers most. Equal arguments give equal rows, in every process.

Run as a program, it prints the coverage of the conformance matrix (matrix.py).
"""

from __future__ import annotations

import inspect
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

SAMPLE = 64  # valid rows that one step compares

Indices = tuple[int, ...]  # a row: for each factor the index of its value
Pair = tuple[int, int]  # two values, counted through all factors
NamedPair = tuple[tuple[str, Any], tuple[str, Any]]


@dataclass(frozen=True)
class CoveringArray:
    factors: Mapping[str, Sequence[Any]]
    rows: list[dict[str, Any]]
    possible: frozenset[NamedPair]
    valid_rows: int

    @property
    def pairs(self) -> int:
        """The pairs of values of two factors, possible or not."""
        return sum(len(a) * len(b) for a, b in combinations(self.factors.values(), 2))

    def impossible(self) -> set[NamedPair]:
        columns = [[(name, value) for value in values] for name, values in self.factors.items()]
        return {pair for a, b in combinations(columns, 2) for pair in product(a, b)} - self.possible

    def covered(self) -> set[NamedPair]:
        """The pairs that occur in the rows, counted from the rows alone."""
        return {pair for row in self.rows for pair in combinations(row.items(), 2)}

    def report(self) -> str:
        lines = [f"{name}: {len(values)} values" for name, values in self.factors.items()]
        covered = len(self.covered())
        lines += [
            f"pairs: {self.pairs}, possible: {len(self.possible)}, covered: {covered}",
            f"valid rows: {self.valid_rows}, rows of the covering array: {len(self.rows)}",
        ]
        return "\n".join(lines)


def valid_rows(
    factors: Mapping[str, Sequence[Any]], constraints: Sequence[Callable[..., bool]] = ()
) -> Iterator[Indices]:
    """All valid rows, factor by factor: a constraint is asked as soon as its factors have values."""
    names = list(factors)
    checks: list[list[tuple[Callable[..., bool], list[int]]]] = [[] for _ in names]
    for constraint in constraints:
        reads = [names.index(name) for name in inspect.signature(constraint).parameters]
        checks[max(reads)].append((constraint, reads))

    def extend(row: list[Any], indices: Indices) -> Iterator[Indices]:
        depth = len(row)
        if depth == len(names):
            yield indices
            return
        for index, value in enumerate(factors[names[depth]]):
            row.append(value)
            if all(constraint(*[row[factor] for factor in reads]) for constraint, reads in checks[depth]):
                yield from extend(row, (*indices, index))
            row.pop()

    return extend([], ())


def covering_array(
    factors: Mapping[str, Sequence[Any]], constraints: Sequence[Callable[..., bool]] = ()
) -> CoveringArray:
    names, values = list(factors), list(factors.values())
    starts = [sum(map(len, values[:factor])) for factor in range(len(values))]
    rows = list(valid_rows(factors, constraints))
    pairs_of: list[list[Pair]] = []
    rows_with: dict[Pair, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        pairs = list(combinations([start + index for start, index in zip(starts, row, strict=True)], 2))
        pairs_of.append(pairs)
        for pair in pairs:
            rows_with[pair].append(number)

    chooser = random.Random(0)
    uncovered = set(rows_with)
    chosen = []
    for pair in sorted(rows_with, key=lambda pair: (len(rows_with[pair]), pair)):
        if pair not in uncovered:
            continue
        candidates = rows_with[pair]
        if len(candidates) > SAMPLE:
            candidates = chooser.sample(candidates, SAMPLE)
        best = max(candidates, key=lambda number: len(uncovered.intersection(pairs_of[number])))
        uncovered.difference_update(pairs_of[best])
        chosen.append(best)

    value_of = [(name, value) for name, column in factors.items() for value in column]
    return CoveringArray(
        factors=factors,
        rows=[
            {name: values[factor][rows[number][factor]] for factor, name in enumerate(names)}
            for number in sorted(chosen)
        ],
        possible=frozenset((value_of[first], value_of[second]) for first, second in rows_with),
        valid_rows=len(rows),
    )


def main() -> None:
    import matrix

    print(matrix.conformance_report())


if __name__ == "__main__":
    main()
