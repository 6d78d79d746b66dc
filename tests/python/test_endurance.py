# SPDX-License-Identifier: BSD-3-Clause
"""The long runs, cut short: they end, and what they check is right; and what they must notice."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.endurance import soak, training
from tests.ranks.launch import backend_under_test

pytestmark = pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")


def command(*words, limit=120):
    return subprocess.run(
        [sys.executable, "-m", "tests.endurance", *words],
        capture_output=True,
        text=True,
        timeout=limit,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.skipif(
    not hasattr(dist, "_reconfigure"), reason=f"torch {torch.__version__} has no reconfigure()"
)
def test_a_little_churn():
    ended = command("churn", "--rounds", "12", "--ranks", "3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "nothing hung, was wrong, or was left behind" in ended.stdout


def test_a_short_soak():
    """Too short for memory to say anything."""
    ended = command("soak", "--minutes", "0.1", "--ranks", "3")
    assert "operations on 3 ranks" in ended.stdout, ended.stdout + ended.stderr
    assert not re.search(r"rank \d+ (hangs|ended with)", ended.stdout), ended.stdout + ended.stderr


def test_growth_is_noticed():
    flat = [{"descriptors": 5.0 + (count == 3)} for count in range(40)]
    assert soak.growth(flat, "descriptors") == 0
    leaks = [{"descriptors": 5.0 + count // 8} for count in range(40)]
    assert soak.growth(leaks, "descriptors") > 0


def test_the_training_is_exact_for_any_number_of_ranks(tmp_path):
    for step in (0, 1):
        whole = training.gradient(step, range(training.ITEMS))
        for size in (2, 3, 5):
            parts = [training.gradient(step, range(rank, training.ITEMS, size)) for rank in range(size)]
            assert torch.equal(sum(parts), whole)
    weights = training.undisturbed(3, tmp_path)
    assert weights.sum() > 0
