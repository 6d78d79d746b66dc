# SPDX-License-Identifier: BSD-3-Clause
"""The conformance matrix (matrix.py): whole, or as a covering array in the tiers `carrier` and `quick` (tiers.py)."""

from __future__ import annotations

import matrix
import pytest
import reference as ref
from harness import on_ranks
from operations import perform
from tiers import COVERED_WORLDS

from tests.ranks.launch import backend_under_test

IS_AL = backend_under_test() != "gloo"


def perform_all(world, cases):
    """The group may be Gloo's for want of an MPI, which was not known when the items were collected."""
    performed = 0
    for case in cases:
        if world.is_al or matrix.valid(case, is_al=False):
            perform(world, case)
            performed += 1
    if not performed:
        pytest.skip(f"{world.backend} takes none of these cases")


def pytest_generate_tests(metafunc):
    if metafunc.function.__name__ == "test_matrix":
        names = ("operation", "dtype", "world_size")
        values = {name: matrix.FACTORS[name] for name in names}
        items = [
            (operation, dtype, size)
            for operation in values["operation"]
            for dtype in values["dtype"]
            for size in values["world_size"]
            if has_cases(operation, dtype, size)
        ]
        ids = [f"{operation}-{ref.name_of(dtype)}-{size}ranks" for operation, dtype, size in items]
        metafunc.parametrize(names, items, ids=ids)
    elif metafunc.function.__name__ == "test_covering_array":
        worlds = COVERED_WORLDS.get(metafunc.config.getoption("--tier"), ())
        array = matrix.covering_cases(worlds, IS_AL) if worlds else {}
        items = [(size, dtype, cases) for (size, dtype), cases in array.items()]
        ids = [f"{size}ranks-{ref.name_of(dtype)}" for size, dtype, _ in items]
        metafunc.parametrize(("world_size", "dtype", "cases"), items, ids=ids)


def has_cases(operation, dtype, world_size):
    values = {"operation": [operation], "dtype": [dtype], "world_size": [world_size]}
    return next(matrix.cases(is_al=IS_AL, **values), None) is not None


@on_ranks()
def test_matrix(world, operation, dtype):
    """Every operator, size and layout."""
    perform_all(world, matrix.matrix_cases(operation, dtype, world.size, world.is_al))


@on_ranks()
def test_covering_array(world, dtype, cases):
    """Every pair of values of two factors occurs in a case of one of these items."""
    perform_all(world, cases)
