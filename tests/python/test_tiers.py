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


@lru_cache
def collected(tier, *arguments):
    """The test ids that pytest collects in a tier."""
    files = sorted({f"{module}.py" for files in tiers.FILES.values() for module in files})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--tier={tier}", *arguments, *files]
    output = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line.rpartition("/")[2] for line in output.splitlines() if "::" in line]


def functions_of(ids):
    return Counter(each.partition("[")[0] for each in ids)


def test_full_leaves_out_the_covering_array_alone():
    functions = functions_of(collected("full"))
    assert "test_matrix.py::test_covering_array" not in functions
    assert functions["test_matrix.py::test_matrix"] > 900


@pytest.mark.parametrize("tier", ["carrier", "quick"])
def test_a_tier_has_one_item_of_each_function(tier):
    functions = functions_of(collected(tier))
    array = functions.pop("test_matrix.py::test_covering_array")
    assert array == len(matrix.FACTORS["dtype"]) * len(tiers.COVERED_WORLDS[tier])
    assert set(functions.values()) == {1}
    everything = {
        name
        for name in functions_of(collected("full"))
        if name.partition(".")[0] in tiers.FILES[tier] and name.partition("::")[2] != tiers.MATRIX
    }
    left_out = {name.partition("::")[2] for name in everything - set(functions)}
    assert left_out == (tiers.SLOW if tier == "quick" else set())
    print(f"{tier}: {array + len(functions)} items")


def test_world_sizes_are_taken_in_turns():
    sizes = Counter(
        size
        for each in collected("carrier")
        for size in (2, 3, 4)
        if f"{size}ranks" in each and "array" not in each
    )
    assert min(sizes.values()) >= 5, sizes


def test_selection_is_deterministic():
    assert collected("carrier") == collected("carrier", "-p", "no:cacheprovider")
