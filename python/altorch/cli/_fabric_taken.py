# SPDX-License-Identifier: BSD-3-Clause
"""Reads from the output of MPI, UCX and libfabric which network they took."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MPICH, OPEN_MPI = "MPICH", "Open MPI"
_ROCE_VERSIONS = {"0": "RoCE v1", "1": "RoCE v1.5", "2": "RoCE v2"}  # UCX's uct_ib_roce_version_t

# One line for each endpoint configuration: `ep_cfg[0]: tag(tcp/lo tcp/eth0)` until UCX 1.13, later
# `ucp_context_0 inter-node cfg#1 tag(rc_mlx5/mlx5_0:1)`.
_UCX_ENDPOINT = re.compile(r"UCX  INFO .*?(?:ep_cfg\[\d+\]:|cfg#\d+)\s+(.*)")
_UCX_LANE = re.compile(r"(\w+)/([\w.-]+(?::\d+)?)")
_UCX_GID = re.compile(r"UCX  DEBUG ([\w.-]+:\d+) using gid_index=(\d+) ver=(\d+)")
_UCX_WARNING = re.compile(r"UCX  (?:WARN|ERROR)\s+(.*)")


@dataclass
class Taken:
    """Empty fields are unknown."""

    library: str = ""
    family: str = ""
    netmods: tuple[str, ...] = ()  # that this MPICH was built with
    netmod: str = ""  # MPICH: ucx, ofi; Open MPI: its pml
    transports: list[str] = field(default_factory=list)  # of UCX; provider of libfabric; btl of Open MPI
    devices: list[str] = field(default_factory=list)
    gids: dict[str, tuple[int, str]] = field(default_factory=dict)  # port: index and RoCE version
    nics: int = 1  # of this process over libfabric; MPICH names the first
    remarks: list[str] = field(default_factory=list)  # warnings of UCX

    @property
    def over_ucx(self) -> bool:
        return self.netmod == "ucx"

    @property
    def over_libfabric(self) -> bool:
        return self.netmod in ("ofi", "cm")

    def uses(self, device: str, number: int = 0) -> bool:
        """libfabric names a device without its port, and may add a kind: `mlx5_0-xrc`."""
        names = {device, f"{device}:{number}"}
        return any(name in names or name.partition("-")[0] == device for name in self.devices)


def read(output: str) -> Taken:
    taken = Taken()
    lines = output.splitlines()
    _read_library(taken, output)
    if taken.family == OPEN_MPI:
        _read_open_mpi(taken, output)
    elif "UCX netmod Capability" in output or _UCX_ENDPOINT.search(output):
        taken.netmod = "ucx"
    elif provider := re.search(r"libfabric provider: (\S+)", output):
        taken.netmod = "ofi"
        taken.transports = [provider[1]]
        taken.nics = max([1, *map(int, re.findall(r"^num_nics: (\d+)", output, re.MULTILINE))])
        taken.devices = _unique(re.findall(r"^Rank: \d+, Local_rank: \d+, NIC: (\S+)", output, re.MULTILINE))
    if taken.over_ucx:
        _read_ucx(taken, lines)
    taken.remarks = _unique(
        match[1]
        for line in lines
        # UCX misses transports that only altorch named.
        if (match := _UCX_WARNING.search(line)) and not match[1].startswith("transports 'knem'")
    )
    return taken


def _read_library(taken: Taken, output: str) -> None:
    """The program of the probe prints it behind these words, its lines joined by bars."""
    if version := re.search(r"^Library version: (.*)$", output, re.MULTILINE):
        taken.library = " ".join(re.split(r" \| |, package", version[1])[0].split())
        taken.family = OPEN_MPI if taken.library.startswith("Open MPI") else MPICH
        device = re.search(r"MPICH Device:\s+(.*?)( \||$)", version[1])
        taken.netmods = tuple(re.findall(r"\b(ucx|ofi)\b", device[1])) if device else ()


def _read_ucx(taken: Taken, lines: list[str]) -> None:
    lanes = [
        lane
        for line in lines
        if (endpoint := _UCX_ENDPOINT.search(line))
        for lane in _UCX_LANE.findall(endpoint[1])
        if lane[1] != "memory"
    ]
    taken.transports = _unique(transport for transport, _ in lanes)
    taken.devices = _unique(device for _, device in lanes)
    for line in lines:
        if match := _UCX_GID.search(line):
            taken.gids[match[1]] = (int(match[2]), _ROCE_VERSIONS.get(match[3], ""))


def _read_open_mpi(taken: Taken, output: str) -> None:
    if chosen := re.search(r"selected (\w+) best priority", output):
        taken.netmod = chosen[1]
    if taken.netmod == "cm":
        mtl = re.search(r"\(\s*mtl\) Selected component \[(\w+)\]", output)
        # The provider of the last candidate before the line that names the chosen domain.
        domain = re.search(r"mtl:ofi:provider: (\S+)", output)
        providers = re.findall(r"mtl:ofi:prov: (\S+)", output[: domain.start()] if domain else "")
        taken.transports = providers[-1:] or ([mtl[1]] if mtl else [])
        taken.devices = [domain[1]] if domain and domain[1] != "none" else []
    elif taken.netmod == "ob1":
        started = re.findall(r"select: init of component (\w+) returned success", output)
        taken.transports = [name for name in _unique(started) if name not in ("self", "sm", "vader", "uct")]
        over_tcp = r"btl:tcp: using ipv[46] interface (\S+)|btl:tcp: 0x[0-9a-f]+: if (\S+) kidx"
        taken.devices = _unique(first or second for first, second in re.findall(over_tcp, output))


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
