# SPDX-License-Identifier: BSD-3-Clause
"""What a rank says of its node: which node it is, its load, the network that carries its messages."""

from __future__ import annotations

import os
import socket
from typing import Any

from altorch.bench import tcp_floor


def place() -> tuple[str, str]:
    """What identifies this node, and its name."""
    from altorch._extension import extension

    cut = os.environ.get("ALTORCH_NODE", "")
    host = socket.gethostname().partition(".")[0]
    return extension().shared_memory_node(), f"{host}/{cut}" if cut else host


def carrier(backend: str) -> str:
    """What carries CPU tensors of the default group: mpi, gloo; the backend's name if it is not altorch's."""
    import torch
    import torch.distributed as dist

    from altorch._extension import extension

    if backend != "al":
        return backend
    return extension().transport(dist.group.WORLD._get_backend(torch.device("cpu"))) or backend


def node(carried_by: str) -> dict[str, Any]:
    """Of the rank that leads a node. `host` is the same for nodes that ALTORCH_NODE cuts out of one host."""
    identity, _ = place()
    network, nominal = _network(carried_by)
    cut = os.environ.get("ALTORCH_NODE", "")
    return {
        "host": socket.gethostname(),
        "machine": identity.rpartition("/")[0].removesuffix(cut),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "network": network,
        "nominal_GBps": nominal,
        "address": tcp_floor.own_address(os.environ.get("MASTER_ADDR", "")),
    }


def _network(carried_by: str) -> tuple[str, float | None]:
    """In words, and the nominal rate of the ports that are used, where sysfs says it."""
    from altorch.cli import _fabric, _fabric_devices

    if carried_by == "mpi":
        try:
            found = _fabric.of_this_process()
        except Exception as error:  # the figures are worth more than the name
            return f"unknown: {error}", None
        gbps = sum(row["gbps"] for row in found["ports"] if row["used"])
        return _fabric.summary(found), gbps / 8 or None
    master = os.environ.get("MASTER_ADDR", "")
    interface = (master and _fabric_devices.interface_towards(master)) or _fabric_devices.default_interface()
    ports = [port for port in _fabric_devices.ports() if interface in (port.device, *port.interfaces)]
    gbps = max((port.gbps for port in ports if interface), default=0.0)
    return f"{carried_by}: tcp" + (f" over {interface}" if interface else ""), gbps / 8 or None
