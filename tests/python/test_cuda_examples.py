# SPDX-License-Identifier: BSD-3-Clause
"""The examples of windows and of experts on GPUs, as programs under torchrun. Marked gpu; ranks may share one GPU."""

from __future__ import annotations

import pytest
from harness import Cluster
from test_examples import run_as_program

from tests.ranks.launch import REPOSITORY

pytestmark = pytest.mark.gpu


def run(example, *words, ranks=2):
    """What rank 0 said, with all ranks at their right end."""
    path = str(REPOSITORY / "examples" / f"{example}.py")
    with Cluster(ranks, group=False, launcher="torchrun") as cluster:
        words = ["--device", "cuda", *words]
        (said, code), *others = cluster.check(run_as_program, path=path, words=words, deadline=120)
    assert code == 0 and all(end == ("", 0) for end in others), (said, code, others)
    return said


@pytest.mark.parametrize("size", [37, 256])
def test_jacobi_is_the_same_on_any_number_of_ranks(size):
    for ranks in (1, 2, 3):
        said = run("jacobi", "--size", str(size), "--steps", "60", "--turns", "1", ranks=ranks)
        assert "largest difference from one process: 0.0e+00" in said and "messages / window" in said


def test_tokens_reach_their_experts_in_three_ways():
    for ranks in (2, 3):
        said = run("expert_dispatch", "--width", "33", "--tokens", "1,5,40", "--times", "2", ranks=ranks)
        assert "the same results" in said and said.count("tokens: all_to_all") == 3
    assert "largest relative difference of a loss" in run("moe", "--steps", "40")


def test_parameter_server():
    assert "together 300" in run("parameter_server", "--updates", "300")
