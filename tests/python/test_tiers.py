# SPDX-License-Identifier: BSD-3-Clause
"""Which items the tiers select."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path

import matrix
import pytest
import tiers

HERE = Path(__file__).parent


# One interpreter collects every tier: importing torch and the files takes most of the time.
COLLECT = """
import sys, pytest
for tier in ("full", "carrier", "quick", "carrier"):
    print("tier", tier)
    assert pytest.main(["--collect-only", "-q", f"--tier={tier}", *sys.argv[1:]]) == 0
"""


@lru_cache
def collected():
    """The tiers and the test ids that pytest collects in them; the last is the tier `carrier` once more."""
    files = sorted({f"{module}.py" for files in tiers.FILES.values() for module in files})
    command = [sys.executable, "-c", COLLECT, *files]
    output = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = []
    for line in output.splitlines():
        if line.startswith("tier "):
            found.append((line.removeprefix("tier "), []))
        elif "::" in line:
            found[-1][1].append(line.rpartition("/")[2])
    return found


def ids_of(tier):
    return dict(collected())[tier]


def functions_of(ids):
    return Counter(each.partition("[")[0] for each in ids)


def test_full_leaves_out_the_covering_array_alone():
    functions = functions_of(ids_of("full"))
    assert "test_matrix.py::test_covering_array" not in functions
    assert functions["test_matrix.py::test_matrix"] > 900


@pytest.mark.parametrize("tier", ["carrier", "quick"])
def test_a_tier_has_one_item_of_each_function(tier):
    functions = functions_of(ids_of(tier))
    array = functions.pop("test_matrix.py::test_covering_array")
    assert array == len(matrix.FACTORS["dtype"]) * len(tiers.COVERED_WORLDS[tier])
    assert set(functions.values()) == {1}
    everything = {
        name
        for name in functions_of(ids_of("full"))
        if name.partition(".")[0] in tiers.FILES[tier] and name.partition("::")[2] != tiers.MATRIX
    }
    left_out = {name.partition("::")[2] for name in everything - set(functions)}
    assert left_out == (tiers.SLOW if tier == "quick" else set())
    print(f"{tier}: {array + len(functions)} items")


def test_world_sizes_are_taken_in_turns():
    sizes = Counter(
        size
        for each in ids_of("carrier")
        for size in (2, 3, 4)
        if f"{size}ranks" in each and "array" not in each
    )
    assert min(sizes.values()) >= 5, sizes


def test_selection_is_deterministic():
    first, again = [ids for tier, ids in collected() if tier == "carrier"]
    assert first == again
