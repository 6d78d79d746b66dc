# SPDX-License-Identifier: BSD-3-Clause
"""The generator of covering arrays, and the covering array of the conformance matrix."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from random import Random

import matrix
import pytest
from covering import covering_array, valid_rows


def random_problem(seed):
    """Factors, and constraints of two factors and of all."""
    chooser = Random(seed)
    factors = {name: tuple(range(chooser.randint(2, 7))) for name in "abcde"[: chooser.randint(2, 5)]}
    forbidden = {(chooser.randrange(7), chooser.randrange(7)) for _ in range(8)}
    modulus = chooser.choice((1, 2, 3))

    def two(a, b):
        return (a, b) not in forbidden

    def every(a, b, c=0, d=0, e=0):
        return (a + 2 * b + c + 3 * d + e) % (modulus + 1) != modulus

    if len(factors) == 5:
        return factors, (two, every)
    return factors, (two,)


def naive_rows(factors, constraints):
    """The whole product, row by row."""
    for values in product(*factors.values()):
        row = dict(zip(factors, values, strict=True))
        arguments = [
            [row[name] for name in rule.__code__.co_varnames[: rule.__code__.co_argcount]]
            for rule in constraints
        ]
        if all(rule(*given) for rule, given in zip(constraints, arguments, strict=True)):
            yield row


@pytest.mark.parametrize("seed", range(30))
def test_every_possible_pair_is_covered(seed):
    factors, constraints = random_problem(seed)
    rows = list(naive_rows(factors, constraints))
    array = covering_array(factors, constraints)
    possible = {pair for row in rows for pair in combinations(row.items(), 2)}
    assert array.possible == possible
    assert array.covered() == possible
    assert all(row in rows for row in array.rows), "a row is not valid"
    assert array.valid_rows == len(rows)


def test_equal_arguments_give_equal_rows_in_every_process():
    factors, constraints = random_problem(4)
    assert covering_array(factors, constraints).rows == covering_array(factors, constraints).rows
    outputs = {
        subprocess.run(
            [sys.executable, "-c", "import matrix; print(matrix.conformance_array((2,)).rows)"],
            cwd=Path(__file__).parent,
            env={"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_impossible_pairs_are_reported():
    array = covering_array(
        {"a": (0, 1), "b": (0, 1), "c": (0, 1)},
        (lambda a, b: not (a == 1 and b == 1), lambda a, c: a == 0 or c == 0, lambda b, c: b == 1 or c == 0),
    )
    assert array.pairs == 12
    assert array.impossible() == {(("a", 1), ("b", 1)), (("a", 1), ("c", 1)), (("b", 0), ("c", 1))}
    assert "pairs: 12, possible: 9, covered: 9" in array.report()


def test_no_valid_row():
    array = covering_array({"a": (0, 1), "b": (0, 1)}, (lambda a, b: False,))
    assert array.rows == [] and len(array.impossible()) == array.pairs == 4


def test_far_fewer_rows_than_the_product():
    factors = {name: tuple(range(5)) for name in "abcdef"}
    array = covering_array(factors)
    assert array.valid_rows == 5**6
    assert 25 <= len(array.rows) <= 60, len(array.rows)


def test_a_constraint_is_asked_as_soon_as_its_factors_have_values():
    asked = []

    def even(a):
        asked.append(a)
        return a % 2 == 0

    rows = list(valid_rows({"a": (0, 1, 2), "b": range(100)}, (even,)))
    assert len(rows) == 200 and asked == [0, 1, 2]


@pytest.mark.parametrize("worlds", [(1, 2, 3, 4), (2, 3)], ids=["carrier", "quick"])
def test_the_conformance_array(worlds):
    array = matrix.conformance_array(worlds)
    print(array.report())
    assert array.covered() == array.possible
    assert len(array.rows) < array.valid_rows / 60
    items = matrix.covering_cases(worlds)
    assert len(items) == len(worlds) * len(matrix.FACTORS["dtype"])
    assert sum(map(len, items.values())) == len(array.rows)
    assert all(matrix.valid(case) for cases in items.values() for case in cases)


def test_the_matrix_holds_every_possible_pair():
    """Its items take the forms in turns; still no pair is missing."""
    pairs = set()
    for operation, dtype, size in product(
        *(matrix.FACTORS[name] for name in ("operation", "dtype", "world_size"))
    ):
        for case in matrix.matrix_cases(operation, dtype, size):
            pairs.update(combinations([(name, getattr(case, name)) for name in matrix.FACTORS], 2))
    assert pairs == matrix.conformance_array().possible


def test_the_program_prints_the_coverage():
    output = subprocess.run(
        [sys.executable, Path(__file__).with_name("covering.py")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    for part in (
        "operation: ",
        "pairs: ",
        "possible: ",
        "covered: ",
        "rows of the covering array: ",
        "items ",
    ):
        assert part in output, output
