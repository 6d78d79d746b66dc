# SPDX-License-Identifier: BSD-3-Clause
"""The conformance matrix: which cases there are. operations.py performs them.

A case is one call: an operation on tensors of one type and size, in one form, on one number of ranks; a reduction has
an operator, too. `cases()` gives all valid cases, or those of some values; `covering_cases()` a covering array of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import reference as ref
import torch
from covering import CoveringArray, covering_array, valid_rows
from operations import LARGE, OPERATIONS, SCALAR, Size

FORMS_APART = (
    "in place",
    "mostly empty",
)  # the full matrix has these and, beside them, one of the other forms
NO_OPERATOR = "-"  # of operations that only move data


@dataclass(frozen=True)
class Case:
    """One value of each factor."""

    operation: str
    dtype: torch.dtype
    operator: str
    size: Size
    form: str
    world_size: int

    def __str__(self) -> str:
        operator = "" if self.operator == NO_OPERATOR else f" {self.operator}"
        return f"{self.operation} {ref.name_of(self.dtype)}{operator} {self.size} {self.form}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a tensor, or of each rank's part of it; LARGE is the size of all parts together."""
        if self.size == LARGE and OPERATIONS[self.operation].shared:
            return (LARGE // self.world_size,)
        return (self.size,) if isinstance(self.size, int) else self.size

    @property
    def asynchronous(self) -> bool:
        return self.form.endswith("async")

    @property
    def layout(self) -> str:
        """The form without the way of waiting: "" (equal parts, not in place), "uneven", "in place", ..."""
        return self.form.removesuffix("async").removesuffix("sync").strip()

    @property
    def turn(self) -> int:
        """Changes with each factor but the form."""
        return sum(FACTORS[name].index(getattr(self, name)) for name in FACTORS if name != "form")

    @property
    def root(self) -> int:
        """Of the operations that have one; every rank is the root of some cases."""
        return zlib.crc32(str(self).encode()) % self.world_size


# The order matters: constraints exclude values as soon as the factors that they read have values.
FACTORS: dict[str, Sequence[Any]] = {
    "operation": tuple(OPERATIONS),
    "dtype": tuple(ref.MOVABLE),
    "operator": (NO_OPERATOR, *ref.OPERATORS),
    "size": (0, 1, 2, 3, 17, 1000, 4099, LARGE, SCALAR, (3, 5)),
    "form": tuple(dict.fromkeys(form for operation in OPERATIONS.values() for form in operation.forms)),
    "world_size": (1, 2, 3, 4),
}


def has_type(operation: str, dtype: torch.dtype) -> bool:
    return not OPERATIONS[operation].reduces or dtype in ref.REDUCIBLE


def has_operator(operation: str, dtype: torch.dtype, operator: str) -> bool:
    if not OPERATIONS[operation].reduces:
        return operator == NO_OPERATOR
    return operator in ref.operators_of(dtype, is_al=True)


def has_form(operation: str, form: str) -> bool:
    return form in OPERATIONS[operation].forms


def has_size(operation: str, size: Size, form: str) -> bool:
    """A 0-dim tensor has no rows that could be shared out unevenly; a coalescing window holds several sizes anyway."""
    if form.startswith("uneven") and size == SCALAR:
        return False
    return size in OPERATIONS[operation].sizes and (form != "coalesced" or size in (0, 3, 1000))


def has_large_size(operator: str, size: Size) -> bool:
    """For the sake of time: the operators do not differ in how a large tensor is cut."""
    return size != LARGE or operator in (NO_OPERATOR, "SUM")


def has_enough_ranks(operation: str, world_size: int) -> bool:
    return world_size >= OPERATIONS[operation].least_ranks


def gloo_has_type(operation: str, dtype: torch.dtype) -> bool:
    """What ProcessGroupGloo takes; the suite runs against Gloo to check its own expectations."""
    if OPERATIONS[operation].reduces:
        return True  # the operators decide
    if dtype in ref.COMPLEX and operation in ("gather", "scatter", "send_recv"):
        return False
    return operation not in ("all_to_all", "gather_single") and dtype in ref.GLOO_MOVABLE


def gloo_has_operator(operation: str, dtype: torch.dtype, operator: str) -> bool:
    return not OPERATIONS[operation].reduces or operator in ref.operators_of(dtype, is_al=False)


def gloo_has_form(operation: str, form: str) -> bool:
    if form.startswith("uneven"):
        return operation == "all_to_all_single"
    return not form.startswith("stacked") and (operation, form) != ("reduce_scatter_tensor", "in place")


CONSTRAINTS: tuple[Callable[..., bool], ...] = (
    has_type,
    has_operator,
    has_form,
    has_size,
    has_large_size,
    has_enough_ranks,
)
GLOO_CONSTRAINTS = (gloo_has_type, gloo_has_operator, gloo_has_form)


def constraints(is_al: bool) -> tuple[Callable[..., bool], ...]:
    return CONSTRAINTS if is_al else CONSTRAINTS + GLOO_CONSTRAINTS


def cases(*, is_al: bool = True, **values: Sequence[Any]) -> Iterator[Case]:
    """All valid cases; `values` replaces the values of some factors: cases(operation=["reduce"])."""
    factors = FACTORS | values
    columns = list(factors.values())
    for row in valid_rows(factors, constraints(is_al)):
        yield Case(*[column[index] for column, index in zip(columns, row, strict=True)])


def matrix_cases(operation: str, dtype: torch.dtype, world_size: int, is_al: bool = True) -> Iterator[Case]:
    """One item of the full matrix: every operator and size, in place and not, and the other forms in turns."""
    every = list(cases(is_al=is_al, operation=[operation], dtype=[dtype], world_size=[world_size]))
    for _, alike in groupby(every, key=lambda case: (case.operator, case.size)):
        forms = list(alike)
        for apart in (False, True):
            if turns := [case for case in forms if case.form.startswith(FORMS_APART) == apart]:
                yield turns[turns[0].turn % len(turns)]


def valid(case: Case, *, is_al: bool = True) -> bool:
    one = {name: [getattr(case, name)] for name in FACTORS}
    return next(cases(is_al=is_al, **one), None) is not None


@lru_cache
def conformance_array(worlds: tuple[int, ...] = (1, 2, 3, 4), is_al: bool = True) -> CoveringArray:
    return covering_array(FACTORS | {"world_size": worlds}, constraints(is_al))


@lru_cache
def covering_cases(
    worlds: tuple[int, ...] = (1, 2, 3, 4), is_al: bool = True
) -> dict[tuple[int, torch.dtype], tuple[Case, ...]]:
    """The covering array's cases by world size and type: one test item each."""
    items: dict[tuple[int, torch.dtype], tuple[Case, ...]] = {}
    for row in conformance_array(worlds, is_al).rows:
        case = Case(**row)
        key = (case.world_size, case.dtype)
        items[key] = (*items.get(key, ()), case)
    return dict(sorted(items.items(), key=lambda item: (item[0][0], ref.MOVABLE.index(item[0][1]))))


def conformance_report() -> str:
    """The coverage of the array, and the number of its test items."""
    items = covering_cases()
    return f"{conformance_array().report()}\nitems (world size and type): {len(items)}"
