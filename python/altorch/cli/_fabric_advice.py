# SPDX-License-Identifier: BSD-3-Clause
"""Compares the ports of a machine with what MPI took: which port is idle, which choice is slow, and what to set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from altorch.cli._fabric_devices import EFA, ETHERNET, INFINIBAND, ROCE, SLINGSHOT, Gid, Port
from altorch.cli._fabric_taken import OPEN_MPI, Taken

CRAY_MPI = "opt/cray/pe/mpich/*/ofi/*/*/lib-abi-mpich/libmpi.so.12"


class Warning(NamedTuple):
    text: str
    remedy: str  # what to set or do


class Machine(NamedTuple):
    ports: list[Port]
    environment: Mapping[str, str]  # the user's
    root: Path = Path("/")

    def active(self, *fabrics: str) -> list[Port]:
        return [port for port in self.ports if port.fabric in fabrics and port.active]


def warnings(machine: Machine, taken: Taken) -> list[Warning]:
    """None where it is unknown what MPI took, but those that need no MPI."""
    found = list(_ports_that_wait(machine))
    if taken.netmod:
        for rule in (_efa, _slingshot, _idle_rdma, _other_ports, _roce_gid, _slow_provider, _slow_interface):
            found += rule(machine, taken)
    return found


def _ports_that_wait(machine: Machine) -> Iterator[Warning]:
    for port in machine.ports:
        if port.fabric == INFINIBAND and port.state == "init":
            yield Warning(
                f"{port.described} waits for a subnet manager.",
                "Start one: opensm on a node, or that of the switch.",
            )


def _efa(machine: Machine, taken: Taken) -> Iterator[Warning]:
    ports = machine.active(EFA)
    if not ports or "efa" in taken.transports:
        return
    remedy = _closed_device(machine) or _to_libfabric(taken, "efa")
    if _used(ports, taken):
        yield Warning(
            f"UCX drives {_names(ports)} by {_by(taken)}; nothing of altorch has run that way.", remedy
        )
    else:
        yield Warning(f"{_names(ports)} idle: {_route(taken)}.", remedy)


def _slingshot(machine: Machine, taken: Taken) -> Iterator[Warning]:
    ports = [port for port in machine.ports if port.fabric == SLINGSHOT and port.state in ("active", "")]
    if not ports or "cxi" in taken.transports:
        return
    own = sorted(machine.root.glob(CRAY_MPI))
    path = f"/{own[-1].relative_to(machine.root)}" if own else "the path of the site's libmpi.so"
    yield Warning(
        f"{_names(ports)} idle: {_route(taken)}.",
        f"ALTORCH_MPI={path}, whose libfabric has the provider cxi (that of the mpich package has not); "
        f"then {_to_libfabric(taken, 'cxi')}",
    )


def _idle_rdma(machine: Machine, taken: Taken) -> Iterator[Warning]:
    ports = machine.active(INFINIBAND, ROCE)
    if ports and not _used(ports, taken):
        yield Warning(f"{_names(ports)} idle: {_route(taken)}.", _to_rdma(machine, taken, ports))


def _other_ports(machine: Machine, taken: Taken) -> Iterator[Warning]:
    """Ports beside one that is used. Ranks near another NUMA node may use the ports there."""
    ports = machine.active(INFINIBAND, ROCE, EFA, SLINGSHOT)
    used = _used(ports, taken)
    near = [
        port
        for port in ports
        if any((port.card, port.fabric) == (one.card, one.fabric) or port.numa == one.numa for one in used)
    ]
    idle = [port for port in near if port not in used]
    if not idle or (taken.over_libfabric and taken.nics >= len(near)):
        return
    if taken.over_ucx:
        rails = f" UCX_MAX_RNDV_RAILS={len(near)}" if len(near) > 2 else ""
        remedy = f"UCX_NET_DEVICES={_devices(near)}{rails}"
    elif taken.family == OPEN_MPI:
        remedy = "Open MPI's mtl uses one port for each rank: bind ranks to the cores near each port."
    else:
        remedy = f"MPIR_CVAR_CH4_OFI_MAX_NICS={len(near)}"
    yield Warning(f"{_names(idle)} idle beside {_names(used)}.", remedy)


def _roce_gid(machine: Machine, taken: Taken) -> Iterator[Warning]:
    """Of UCX only: libfabric's verbs takes the GID of the interface's address."""
    for port in _used(machine.active(ROCE), taken) if taken.over_ucx else []:
        best = best_gid(port)
        if best is None:
            interface = "".join(port.interfaces[:1]) or "its interface"
            yield Warning(
                f"{port.described} has no RoCE v2 GID, so that its packets pass no router.",
                f"Give {interface} an IP address.",
            )
        elif (chosen := gid_taken(port, taken, machine.environment)) and not chosen.routable:
            yield Warning(
                f"{port.described} uses GID index {chosen.index} ({chosen.kind or 'unknown type'}, "
                f"{chosen.address}), whose packets pass no router.",
                f"UCX_IB_GID_INDEX={best.index} ({best.kind}, {best.address})",
            )


def best_gid(port: Port) -> Gid | None:
    """The first RoCE v2 GID that is routed; of an IPv4 address if there is one, as UCX prefers."""
    routable = [gid for gid in port.gids if gid.routable]
    return min(routable, key=lambda gid: (not gid.is_ipv4, gid.index), default=None)


def gid_taken(port: Port, taken: Taken, environment: Mapping[str, str]) -> Gid | None:
    """UCX says the index that it selects, but not one that the user has set."""
    index, kind = taken.gids.get(port.name, (-1, ""))
    asked = environment.get("UCX_IB_GID_INDEX", "")
    if asked.isdecimal():
        index, kind = int(asked), ""
    known = next((gid for gid in port.gids if gid.index == index), None)
    return known or (Gid(index, kind, "::") if index >= 0 else None)


def _slow_provider(machine: Machine, taken: Taken) -> Iterator[Warning]:
    slow = {"sockets", "udp;ofi_rxd", "udp"} & {*taken.transports}
    if slow and taken.over_libfabric and not machine.active(INFINIBAND, ROCE, EFA, SLINGSHOT):
        yield Warning(
            f"libfabric's provider {', '.join(sorted(slow))} is for development: it is slower than tcp.",
            "FI_PROVIDER=tcp, or MPIR_CVAR_CH4_NETMOD=ucx" if "ucx" in taken.netmods else "FI_PROVIDER=tcp",
        )


def _slow_interface(machine: Machine, taken: Taken) -> Iterator[Warning]:
    ports = machine.active(ETHERNET)
    used = _used(ports, taken)
    if not used or machine.active(INFINIBAND, ROCE, EFA, SLINGSHOT):
        return
    best = max(ports, key=lambda port: port.gbps)
    if best.gbps > max(port.gbps for port in used):
        if taken.over_ucx:
            remedy = f"UCX_NET_DEVICES={best.device}"
        elif taken.over_libfabric:
            remedy = f"FI_TCP_IFACE={best.device}"
        else:
            remedy = f"OMPI_MCA_btl_tcp_if_include={best.device}"
        yield Warning(
            f"{best.described} idle: {_route(taken)}.",
            f"{remedy}, or a MASTER_ADDR that is reached over it",
        )


def _to_rdma(machine: Machine, taken: Taken, ports: list[Port]) -> str:
    devices = f"UCX_NET_DEVICES={_devices(ports)}"
    if closed := _closed_device(machine):
        return closed
    if taken.family == OPEN_MPI and not taken.over_ucx:
        return f"OMPI_MCA_pml=ucx {devices}"
    if not taken.over_ucx:
        return f"MPIR_CVAR_CH4_NETMOD=ucx {devices}" if "ucx" in taken.netmods else "FI_PROVIDER=verbs"
    if "UCX_TLS" in machine.environment:
        return f"Unset UCX_TLS ({machine.environment['UCX_TLS']}), or name rc and ud in it."
    if "UCX_NET_DEVICES" in machine.environment:
        return devices
    return "Raise the limit of locked memory (ulimit -l unlimited); UCX_LOG_LEVEL=info says more."


def _to_libfabric(taken: Taken, provider: str) -> str:
    if taken.family == OPEN_MPI:
        return f"OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER={provider}"
    if taken.netmods and "ofi" not in taken.netmods:
        return f"An MPI with libfabric (this one has {', '.join(taken.netmods)}) and FI_PROVIDER={provider}"
    return f"MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER={provider}"


def _closed_device(machine: Machine) -> str:
    if any((machine.root / "dev/infiniband").glob("uverbs*")):
        return ""
    return (
        "This process sees no /dev/infiniband/uverbs*: load ib_uverbs; a container needs "
        "--device=/dev/infiniband --ulimit memlock=-1."
    )


def _used(ports: list[Port], taken: Taken) -> list[Port]:
    return [port for port in ports if taken.uses(port.device, port.number)]


def _names(ports: list[Port]) -> str:
    """`mlx5_0:1, mlx5_0:2 (InfiniBand, 100 Gb/s)`, for ports of the same kind."""
    first = ports[0]
    alike = all((port.fabric, port.rate) == (first.fabric, first.rate) for port in ports)
    if not alike:
        return ", ".join(port.described for port in ports)
    return ", ".join([*(port.name for port in ports[:-1]), ports[-1].described])


def _devices(ports: list[Port]) -> str:
    return ",".join(port.name for port in ports)


def _by(taken: Taken) -> str:
    return ", ".join(taken.transports) or "an unknown transport"


def _route(taken: Taken) -> str:
    over = f" over {', '.join(taken.devices)}" if taken.devices else ""
    return f"{taken.family}'s {taken.netmod} takes {_by(taken)}{over}"
