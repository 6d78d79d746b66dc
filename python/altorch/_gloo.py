# SPDX-License-Identifier: BSD-3-Clause
"""Makes torch's Gloo for the ranks of a group, on the network interface that leads to the master.

By default Gloo listens at the address of the host's own name. On many machines that is a loopback address,
and ranks on two such machines do not find each other.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import Store


def local_address() -> str:
    """This host's address towards the master; empty if the user chose an interface, or no master is known."""
    master = os.environ.get("MASTER_ADDR", "")
    if not master or os.environ.get("GLOO_SOCKET_IFNAME"):
        return ""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # of a datagram socket: picks the route, sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def agree(addresses: list[str], own: str) -> str:
    """The address to listen on, from the `local_address` of all ranks; empty: Gloo's own choice."""
    if not all(addresses):
        return ""
    import ipaddress

    loopback = [ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses]
    # A loopback address serves if all ranks have one. If only some do, these know the master by a
    # wrong name.
    return own if all(loopback) or not any(loopback) else ""


def make(store: Store, rank: int, size: int, timeout: float, addresses: list[str]) -> Any:
    """The ProcessGroupGloo of a group. `timeout`: seconds. `addresses`: each rank's `local_address`."""
    from torch.distributed import DistBackendError, ProcessGroupGloo

    address = agree(addresses, addresses[rank])
    try:
        options = ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=timeout)
        options._threads = 1  # for Gloo's own collectives, which are not used
        device = ProcessGroupGloo.create_device(hostname=address) if address else None
        options._devices = [device or ProcessGroupGloo.create_default_device()]
        return ProcessGroupGloo(store, rank, size, options)
    except RuntimeError as error:
        where = f"address {address}" if address else "its default interface"
        raise DistBackendError(
            f"altorch: rank {rank} of {size} could not connect to the others through Gloo ({where}): {error}. "
            "Check that the hosts reach each other over TCP, or name the interface in GLOO_SOCKET_IFNAME."
        ) from error
