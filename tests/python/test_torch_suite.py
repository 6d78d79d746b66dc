"""PyTorch's own DistributedTest with this backend passes what Gloo passes (a subset; all with --torch-suite)."""

from __future__ import annotations

import pytest
import torch_distributed_test as suite
from launching import backend_under_test, launcher_under_test


@pytest.mark.parametrize(("persona", "ranks"), [("gloo", 2), ("gloo", 4), ("mpi", 2)])
def test_torch_suite(request, persona, ranks):
    pytest.importorskip("expecttest", reason="PyTorch's DistributedTest needs expecttest")
    whole = request.config.getoption("--torch-suite")
    if launcher_under_test() != "plain":
        pytest.skip("the suite starts its ranks itself")
    if not whole and (persona, ranks) == ("gloo", 4):
        pytest.skip("the subset runs at 2 ranks: --torch-suite for all of it")
    if suite.baseline(persona, ranks) is None:
        pytest.skip(f"nobody has measured what Gloo passes with torch {suite.torch_minor()}")
    patterns = () if whole else suite.QUICK if persona == "gloo" else suite.QUICK_MPI
    results = suite.run(persona, ranks, backend_under_test(), patterns=patterns)
    short = suite.shortfall(persona, ranks, backend_under_test(), results)
    details = "\n\n".join(
        f"{name}\n{results[name]['detail']}\n{results[name].get('output', '')}" for name in short
    )
    assert not short, f"{len(short)} tests that Gloo passes do not pass:\n{details}"
    assert any(entry["status"] == "passed" for entry in results.values()), results
