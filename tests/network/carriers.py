# SPDX-License-Identifier: BSD-3-Clause
"""What carries messages between the nodes: each MPI with a network, and Gloo."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpi_libraries import Mpi, all_mpis

# The libraries then tell in the ranks' output which network they took.
TELL = {
    "MPIR_CVAR_DEBUG_SUMMARY": "2",
    "UCX_LOG_LEVEL": "info",
    "OMPI_MCA_pml_base_verbose": "10",
    "OMPI_MCA_btl_base_verbose": "100",
}


@dataclass(frozen=True)
class Carrier:
    name: str
    title: str
    env: dict[str, str] = field(default_factory=dict)
    unsupported_reason: str = ""
    broken: dict[str, str] = field(default_factory=dict)  # with these it cannot start
    other_netmod: dict[str, str] = field(default_factory=dict)

    @property
    def has_mpi(self) -> bool:
        return self.env["ALTORCH_MPI"] != "none"


def _of(mpi: Mpi, name: str, title: str, env: dict[str, str], **more: dict[str, str]) -> Carrier:
    return Carrier(name, title, {"ALTORCH_MPI": mpi.library, **dict(mpi.env), **env}, mpi.reason, **more)


def all_carriers() -> dict[str, Carrier]:
    mpis = all_mpis()
    wheel, open_mpi_4, open_mpi_5 = mpis["mpich wheel"], mpis["Open MPI 4"], mpis["Open MPI 5"]
    ucx = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self"}
    ofi = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    no_btl = {"OMPI_MCA_btl": "none_such"}
    carriers = (
        _of(wheel, "ucx", "MPICH, `ucx`", ucx, broken={"UCX_TLS": "none_such"}, other_netmod=ofi),
        _of(wheel, "ofi", "MPICH, `ofi`", ofi, broken={"FI_PROVIDER": "none_such"}, other_netmod=ucx),
        _of(open_mpi_4, "openmpi4", "Open MPI 4", {}, broken=no_btl),
        _of(open_mpi_5, "openmpi5", "Open MPI 5", {}, broken=no_btl),
        Carrier("gloo", "Gloo", {"ALTORCH_MPI": "none"}),
    )
    return {carrier.name: carrier for carrier in carriers}
