# SPDX-License-Identifier: BSD-3-Clause
"""The network that MPI takes, beside the ports of this machine: for `altorch info` and `altorch explain`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from altorch.cli import _fabric_advice as advice
from altorch.cli import _fabric_devices as devices
from altorch.cli import _fabric_probe as probe
from altorch.cli import _fabric_taken as taking
from altorch.cli._fabric_advice import Machine, Warning
from altorch.cli._output import print_pairs, print_table

# Variables of the user by which MPI chooses a network.
_CHOOSES = re.compile(r"(UCX|FI|MPIR_CVAR_CH4|OMPI_MCA_(pml|btl|mtl)|I_MPI)(_|$)")


def of_this_process() -> dict[str, Any]:
    """Asks the MPI that altorch would load here."""
    from altorch import _mpi

    choice = _mpi.find()
    return gather(choice.path, choice.family, choice.reason)


def gather(
    library: Path | None, family: str = "", reason: str = "", root: Path = Path("/")
) -> dict[str, Any]:
    """Asks `library`, if there is one; `reason` says why there is none."""
    found = devices.ports(root)
    master = os.environ.get("MASTER_ADDR", "")
    interface = (master and devices.interface_towards(master)) or devices.default_interface(root)
    sets = probe.altorch_sets(found, interface, os.environ, open_mpi=family == "openmpi")
    answer = probe.Answer("", reason or "there is no MPI library", 0.0)
    if library is not None:
        may_choose = bool(interface) and probe.may_choose_netmod(found, os.environ)
        words = [
            word for word, holds in (("fast", probe.has_fast_network(found)), ("choose", may_choose)) if holds
        ]
        answer = probe.ask(library, probe.environment_of_probe(os.environ, sets, library), words)
        taken = taking.read(answer.output)
        if may_choose and {"ucx", "ofi"} <= {*taken.netmods}:
            sets["MPIR_CVAR_CH4_NETMOD"] = "ofi"
        if "Open MPI v5" not in taken.library:
            sets.pop("OMPI_MCA_mpi_ft_enable", None)
        if answer.failure:
            answer = answer._replace(failure=": ".join((answer.failure, *probe.last_line(answer.output))))
    return document(Machine(found, os.environ, root), answer, sets)


def document(machine: Machine, answer: probe.Answer, sets: Mapping[str, str]) -> dict[str, Any]:
    taken = taking.read(answer.output)
    if answer.failure:  # what it printed before may not be what it would have taken
        taken.netmod = ""
    return {
        "library": taken.library,
        "netmods": list(taken.netmods),
        "netmod": taken.netmod,
        "transports": taken.transports if taken.netmod else [],
        "devices": taken.devices if taken.netmod else [],
        "gid": _gid(machine, taken),
        "unknown": _unknown(machine, taken, answer),
        "remarks": taken.remarks,
        "altorch_sets": dict(sets),
        "ports": [_row(port, taken) for port in machine.ports],
        "warnings": [{"warning": one.text, "set": one.remedy} for one in _warnings(machine, taken, answer)],
        "probe": {"seconds": round(answer.seconds, 3), "output": answer.output},
    }


def _warnings(machine: Machine, taken: taking.Taken, answer: probe.Answer) -> list[Warning]:
    found = advice.warnings(machine, taken)
    if answer.failure and taken.library:
        asked = [
            f"{name}={value}" for name, value in sorted(machine.environment.items()) if _CHOOSES.match(name)
        ]
        look = f"Look at {' '.join(asked)}; a" if asked else "A"
        found.append(
            Warning(
                f"{taken.library} did not start alone: {answer.failure}.",
                f"{look}ltorch info --fabric shows what MPI printed.",
            )
        )
    return found


def _row(port: devices.Port, taken: taking.Taken) -> dict[str, Any]:
    used = taken.uses(port.device, port.number) if taken.devices and taken.netmod else None
    return {
        "name": port.name,
        "fabric": port.fabric,
        "state": port.state,
        "gbps": port.gbps,
        "used": used,
        "gids": [asdict(gid) for gid in port.gids],
        "interfaces": list(port.interfaces),
    }


def _gid(machine: Machine, taken: taking.Taken) -> dict[str, str]:
    """By port, for RoCE ports that UCX uses."""
    found = {}
    for port in machine.active(devices.ROCE) if taken.over_ucx else []:
        gid = advice.gid_taken(port, taken, machine.environment)
        if gid and taken.uses(port.device, port.number):
            found[port.name] = f"index {gid.index} ({gid.kind}, {gid.address})"
    return found


def _unknown(machine: Machine, taken: taking.Taken, answer: probe.Answer) -> dict[str, str]:
    """What could not be asked, and why."""
    found = {}
    if not taken.netmod:
        why = answer.failure or f"{taken.library or 'the library'} does not say it"
        return {"netmod": why}
    if not taken.transports:
        found["transport"] = f"{taken.netmod} does not say it"
    if not taken.devices:
        found["device"] = f"{', '.join(taken.transports) or taken.netmod} does not say it"
    if taken.over_libfabric and machine.active(devices.ROCE):
        found["GID"] = "libfabric does not say it; its verbs provider takes that of the interface's address"
    return found


def print_fabric(found: dict[str, Any], with_output: bool = False) -> None:
    unknown = {name: f"unknown: {why}" for name, why in found["unknown"].items()}
    gid = ", ".join(f"{name} {text}" for name, text in found["gid"].items())
    built = f" (built with {', '.join(found['netmods'])})" if found["netmods"] else ""
    print_pairs(
        "Fabric: what MPI takes between nodes, asked of one process",
        {
            "library": found["library"] + built,
            "netmod": found["netmod"] or unknown.get("netmod", ""),
            "transport": ", ".join(found["transports"]) or unknown.get("transport", ""),
            "device": ", ".join(found["devices"]) or unknown.get("device", ""),
            "GID": gid or unknown.get("GID", "") or ("none: no RoCE port is used" if found["netmod"] else ""),
            "altorch sets": " ".join(f"{name}={value}" for name, value in found["altorch_sets"].items()),
            "remarks": "; ".join(found["remarks"]),
        },
    )
    _print_ports(found["ports"])
    print_warnings(found["warnings"])
    if with_output:
        print(f"What MPI printed, in {found['probe']['seconds']} s\n{found['probe']['output']}")


def _print_ports(rows: list[dict[str, Any]]) -> None:
    if rows:
        print_table(
            "Network ports of this machine",
            ["port", "fabric", "state", "rate", "used by this process", "interface"],
            [
                [
                    row["name"],
                    row["fabric"],
                    row["state"] or "not told",
                    f"{row['gbps']:g} Gb/s" if row["gbps"] else "not told",
                    "unknown" if row["used"] is None else row["used"],
                    ", ".join(row["interfaces"]),
                ]
                for row in rows
            ],
        )


def print_warnings(rows: list[dict[str, str]]) -> None:
    if rows:
        print_table("Idle or slow", ["warning", "set"], [[row["warning"], row["set"]] for row in rows])


def summary(found: dict[str, Any]) -> str:
    """One line: `MPICH Version: 5.0.2, netmod ucx: tcp over eth0`."""
    if not found["netmod"]:
        return f"unknown: {found['unknown']['netmod']}"
    over = f" over {', '.join(found['devices'])}" if found["devices"] else ""
    gid = "".join(f", GID {text}" for text in found["gid"].values())
    return f"{found['library']}, {found['netmod']}: {', '.join(found['transports'])}{over}{gid}"
