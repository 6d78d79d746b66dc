# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own DistributedTest passes what it passes with Gloo and NCCL (a subset; all with --torch-suite)."""

from __future__ import annotations

import pytest
import torch_distributed_test as suite

from tests.ranks.launch import backend_under_test, launcher_under_test


@pytest.mark.parametrize(("impersonated", "ranks"), [("gloo", 2), ("gloo", 4), ("mpi", 2), ("nccl", 2)])
def test_torch_suite(request, impersonated, ranks):
    pytest.importorskip("expecttest", reason="PyTorch's DistributedTest needs expecttest")
    whole = request.config.getoption("--torch-suite")
    if launcher_under_test() != "plain":
        pytest.skip("the suite starts its ranks itself")
    if not whole and (impersonated, ranks) == ("gloo", 4):
        pytest.skip("the subset runs at 2 ranks: --torch-suite for all of it")
    if why := suite.unsupported_reason(impersonated, ranks):
        pytest.skip(why)
    reference = suite.REFERENCES[impersonated]
    if suite.baseline(impersonated, ranks) is None:
        pytest.skip(f"no run has measured what {reference} passes with torch {suite.torch_minor()}")
    jobs = 4 if whole and impersonated == "nccl" else 1  # most of the time a GPU is being set up, not used
    patterns = () if whole else suite.QUICK[impersonated]
    results = suite.run(impersonated, ranks, backend_under_test(), jobs=jobs, patterns=patterns)
    short = suite.shortfall(impersonated, ranks, backend_under_test(), results)
    details = "\n\n".join(
        f"{name}\n{results[name]['detail']}\n{results[name].get('output', '')}" for name in short
    )
    assert not short, f"{len(short)} tests that {reference} passes do not pass:\n{details}"
    assert any(entry["status"] == "passed" for entry in results.values()), results
