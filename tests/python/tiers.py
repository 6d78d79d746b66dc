# SPDX-License-Identifier: BSD-3-Clause
"""Tiers: which of the collected items run. `pytest --tier=full|carrier|quick`; items outside a tier are deselected.

full: everything but the covering array, whose cases the matrix holds.
carrier: what runs once more over each carrier: the covering array, and one item of each other conformance function.
quick: a check within a minute over shared memory: the covering array of 2 and 3 ranks, and one item of each function
that is fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

TIERS = ("full", "carrier", "quick")
MATRIX, COVERING = "test_matrix", "test_covering_array"
# The worlds of the covering array.
COVERED_WORLDS = {"carrier": (1, 2, 3, 4), "quick": (2, 3)}
_CONFORMANCE = ("test_matrix", "test_reductions", "test_moves", "test_point_to_point", "test_groups")
FILES = {
    "carrier": (*_CONFORMANCE, "test_one_sided"),
    "quick": (*_CONFORMANCE, "test_functional", "test_windows", "test_bad_input", "test_hooks"),
}
# Functions of the quick tier's files that take a second or more: most wait for a timeout, or start
# ranks of their own.
SLOW = frozenset(
    {
        "test_a_call_may_fail_while_the_interpreter_ends",
        "test_a_completion_hook_is_not_told_of_what_failed_and_no_caller_waits_for_it",
        "test_a_group_after_ranks_disagreed",
        "test_a_hook_that_waits_for_the_call_that_failed_is_refused",
        "test_a_temporary_timeout_ends_with_the_first_call_that_has_it",
        "test_abort_hooks_run_before_a_call_that_failed_under_way_says_so",
        "test_abort_hooks_run_once_for_an_abort_whatever_one_of_them_throws",
        "test_all_reduce_of_every_size_class",
        "test_compiled_collectives",
        "test_compiled_legacy_collectives",
        "test_debug_detail",
        "test_device_mesh_of_two_dimensions",
        "test_monitored_barrier_names_the_late_rank",
        "test_one_rank_refuses_and_the_others_learn_why",
        "test_ranks_that_disagree",
        "test_set_timeout_ends_a_wait_for_a_late_rank",
        "test_the_result_of_a_work_says_how_it_ended",
        "test_timeout_of_a_new_group",
        "test_use_local_synchronization",
        "test_what_the_root_alone_can_see_closes_the_group_on_every_rank",
        "test_work_wait_with_a_timeout",
    }
)


def select(items: Iterable[pytest.Item], tier: str) -> list[pytest.Item]:
    """The tier's items, in the order of `items`."""
    items = list(items)
    if tier == "full":
        return [item for item in items if function_of(item) != COVERING]
    chosen = set()
    by_function: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        module, function = module_of(item), function_of(item)
        if module not in FILES[tier] or function == MATRIX or (tier == "quick" and function in SLOW):
            continue
        if function == COVERING:
            chosen.add(item)
        else:
            by_function.setdefault((module, function), []).append(item)
    taken: Counter[int] = Counter()
    for turn, candidates in enumerate(by_function.values()):
        chosen.add(_one_of(candidates, COVERED_WORLDS[tier], taken, turn))
    return [item for item in items if item in chosen]


def _one_of(
    candidates: list[pytest.Item], worlds: tuple[int, ...], taken: Counter[int], turn: int
) -> pytest.Item:
    """An item of the world size that was taken least so far, of several ranks and of the tier's where there is one."""
    sizes = {world_size_of(item) for item in candidates}
    several = {size for size in sizes if size > 1}
    size = min(several.intersection(worlds) or several or sizes, key=lambda size: (taken[size], size))
    taken[size] += 1
    alike = [item for item in candidates if world_size_of(item) == size]
    return alike[turn % len(alike)]


def module_of(item: pytest.Item) -> str:
    return item.path.stem


def function_of(item: pytest.Item) -> str:
    return getattr(item, "originalname", None) or item.name


def world_size_of(item: pytest.Item) -> int:
    """0: the test starts its own ranks, or none."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("world_size", 0) if callspec else 0
