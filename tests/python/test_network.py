# SPDX-License-Identifier: BSD-3-Clause
"""One cell of `make test-network`; what it judges and writes; MPI's networks that differ or do not start."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
import virtual_nodes
from harness import Cluster, Outcome
from mpi_libraries import all_mpis

from altorch import _backend
from tests.network import report, runner, stage
from tests.network.carriers import Carrier, all_carriers
from tests.network.cells import CELLS
from tests.ranks.launch import backend_under_test

pytestmark = pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")
OPERATIONS = CELLS[0]


def test_every_operation_between_two_nodes():
    if problem := virtual_nodes.unsupported_reason():
        pytest.skip(problem)
    carriers = all_carriers()
    carrier = carriers["gloo" if carriers["ofi"].unsupported_reason else "ofi"]
    result = runner.run(OPERATIONS, carrier, 2)
    assert result.status == "passed", f"{result}\n{result.log}"


def test_a_carrier_that_is_not_here_is_skipped_with_the_reason():
    result = runner.run(OPERATIONS, Carrier("ucx", "UCX", unsupported_reason="no such MPI"), 2)
    assert (result.status, result.details) == ("skipped", "no such MPI")


def outcomes(*seconds, status="ok"):
    raised = [Outcome(rank, "ok", {"at": 100 + each, "error": "lost"}) for rank, each in enumerate(seconds)]
    return [*raised, Outcome(len(seconds), status, {})]


def test_what_the_other_ranks_raise_is_judged():
    lost = [2]
    assert stage.told(outcomes(1, 3, status="died"), 100, 5, lost) == ("error after 1.0 to 3.0 s", "lost")
    with pytest.raises(stage.Failed, match=r"expected within 5 s; rank 1"):
        stage.told(outcomes(1, 300, status="died"), 100, 5, lost)
    with pytest.raises(stage.Failed, match="rank 2: hang"):
        stage.told(outcomes(1, 3, status="late"), 100, 5)
    with pytest.raises(stage.Failed, match="rank 0 has raised nothing"):
        stage.told([Outcome(0, "ok", {"at": 101, "carries": "MPICH"})], 100, 5)


def test_the_table(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}old\n{report.END}after\n")
    good = report.Result("operations", "ofi", 2, "passed", "right", "details", 1)
    bad = report.Result("operations", "gloo", 2, "failed", "hang", "rank 1: hang", 1)
    report.write_markdown(page, [good, bad])
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| every operation | 2 | right | right | **hang** |" in text


def test_ranks_that_select_different_networks_of_mpi():
    group = object.__new__(_backend.Group)
    group.global_ranks = [0, 3, 5]

    def reason(*networks):
        return group._different_networks([_backend._Standing(network=network) for network in networks])

    setting = "MPIR_CVAR_CH4_NETMOD="
    assert reason(setting, setting, setting) is None
    assert f"ranks 0 and 5 select different networks of MPI ({setting}ofi and {setting}ucx)" in reason(
        f"{setting}ofi", f"{setting}ofi", f"{setting}ucx"
    )
    assert "MPIR_CVAR_CH4_NETMOD=ofi" in reason(setting, f"{setting}ofi", setting)
    # Different MPIs are told of when they are loaded.
    assert reason(f"{setting}ofi", "OMPI_MCA_pml=", "OMPI_MCA_pml=") is None


def starts_over_gloo(world):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world.start(timeout=60)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2, 2, 2]
    return [str(each.message) for each in caught if "altorch" in str(each.message)]


def test_gloo_serves_where_the_selected_network_does_not_start():
    wheel = all_mpis()["mpich wheel"]
    if wheel.reason:
        pytest.skip(wheel.reason)
    selected = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "none_such"}
    with Cluster(2, group=False, launcher="plain", env={"ALTORCH_TEST_NODES": "2", **selected}) as cluster:
        (warning,), none = cluster.check(starts_over_gloo)
    assert none == []
    text = "MPI does not start with MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=none_such: MPI_Init failed: "
    assert (
        warning.startswith("altorch: torch's Gloo carries the traffic, not MPI: rank 0 has no MPI")
        and text in warning
    )
