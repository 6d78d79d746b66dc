# SPDX-License-Identifier: BSD-3-Clause
"""Asks an MPI library which network it takes: a process of its own initialises MPI and has it say what it chooses.

The process is a job of one rank. It sends to itself over the network, because UCX may not use shared memory there; so
UCX selects transports and devices as it does for a rank of another node.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from altorch.cli._fabric_devices import ETHERNET, SLINGSHOT, Port

SECONDS = 5.0  # MPI_Init takes 0.1 to 0.5 s on the machines where this was measured
LONGEST = 1 << 20  # characters of the output

PROGRAM = Path(__file__).with_name("_fabric_ask.py")

# What process managers set for the processes that they start, as csrc/bootstrap/environment.cpp.
_IDENTITY = re.compile(
    r"(PMI|PMI2|PMIX|HYDI|HYDRA|MPIEXEC|OMPI_COMM_WORLD|OMPI_APP_CTX|PRTE|ORTE|MV2_COMM_WORLD|FLUX|PALS|JSM)_.*"
    r"|MPI_LOCALN?RANK(ID|S)|OMPI_(UNIVERSE_SIZE|FIRST_RANKS|NUM_APP_CTX|FILE_LOCATION|COMMAND|ARGV|VERSION)"
    r"|OMPI_PARENT_PORT|OMPI_MCA_(orte_|ess|pmix|plm).*|OMPI_MCA_(initial_wdir|shmem_RUNTIME_QUERY_hint)"
)
_KEPT = re.compile(r"(PMIX|PRTE)_MCA_.*|HYDRA_FULL_CXX")
# By which the user selects a network of MPICH.
_SELECTS = ("MPIR_CVAR_CH4_NETMOD", "FI_PROVIDER", "FI_TCP_IFACE", "UCX_TLS", "UCX_NET_DEVICES")
_ON_THE_NODE = ("posix", "sysv", "cma", "knem", "xpmem", "self")
_LOCAL_TRANSPORTS = {*_ON_THE_NODE, "sm", "shm", "mm"}


class Answer(NamedTuple):
    output: str
    failure: str  # why MPI did not start, or empty
    seconds: float
    timed_out: bool = False


def altorch_sets(
    found: list[Port], interface: str, environment: Mapping[str, str], open_mpi: bool = False
) -> dict[str, str]:
    """What altorch sets in a job whose other nodes are reached over `interface`, where the user has not."""
    if not interface:
        return {}
    rdma = [port.name for port in found if _is_usable_rdma(port)]
    values = {
        "UCX_NET_DEVICES": ",".join([*rdma, interface]),
        "FI_TCP_IFACE": interface,
    }
    if all(port.fabric != SLINGSHOT for port in found):
        values["FI_PROVIDER"] = "^sockets"
    if open_mpi:
        values["OMPI_MCA_btl_tcp_if_include"] = interface
        if not has_fast_network(found):  # Open MPI 5, and if no other node has one
            values["OMPI_MCA_mpi_ft_enable"] = "1"
    return {name: value for name, value in values.items() if name not in environment}


def network_transports(asked: str) -> str:
    """UCX_TLS without what works on one node only."""
    if asked.startswith("^"):
        return ",".join([asked, *_ON_THE_NODE])
    kept = [name for name in asked.split(",") if name and name not in _LOCAL_TRANSPORTS]
    return "^" + ",".join(_ON_THE_NODE) if not kept or kept == ["all"] else ",".join(kept)


def environment_of_probe(
    environment: Mapping[str, str], defaults: Mapping[str, str], library: Path
) -> dict[str, str]:
    """No launcher's identity; the user's settings, altorch's, and those that make the libraries speak."""
    kept = {
        name: value
        for name, value in environment.items()
        if not _IDENTITY.fullmatch(name) or _KEPT.fullmatch(name)
    }
    prefix = library.resolve().parent.parent
    if prefix != Path("/usr") and (prefix / "share/openmpi").exists():
        kept.setdefault("OPAL_PREFIX", str(prefix))
    for name, value in defaults.items():
        kept.setdefault(name, value)
    return kept | {
        "UCX_TLS": network_transports(kept.get("UCX_TLS", "")),
        "UCX_LOG_LEVEL": "debug",  # the GID is told at this level only
        "UCX_LOG_FILE": "stderr",
        "MPIR_CVAR_DEBUG_SUMMARY": "2",
        "MPIR_CVAR_SINGLE_HOST_ENABLED": "0",  # otherwise MPICH passes cxi over in a job of one host
        "I_MPI_DEBUG": "4",
        "OMPI_MCA_pml_base_verbose": "10",
        "OMPI_MCA_mtl_base_verbose": "10",
        "OMPI_MCA_opal_common_ofi_verbose": "10",
        "OMPI_MCA_btl_base_verbose": "100",
    }


def _is_usable_rdma(port: Port) -> bool:
    return port.fabric not in (ETHERNET, SLINGSHOT) and port.state in ("active", "")


def has_fast_network(found: list[Port]) -> bool:
    """As csrc/platform/fabric.cpp."""
    return any(port.fabric == SLINGSHOT or _is_usable_rdma(port) for port in found)


def may_choose_netmod(found: list[Port], environment: Mapping[str, str]) -> bool:
    """Whether altorch chooses MPICH's netmod, as csrc/platform/fabric.cpp."""
    chosen = {"MPIR_CVAR_CH4_NETMOD", "UCX_TLS", "UCX_NET_DEVICES"} & {*environment}
    return not chosen and not has_fast_network(found)


def selected_network_fails(library: Path, environment: Mapping[str, str]) -> str:
    """Why MPICH does not start over the network that its user selects; empty if it does, or if none is selected.

    In the job itself MPI_Init would end the process. It takes 0.1 to 0.5 s.
    """
    selected = [f"{name}={environment[name]}" for name in _SELECTS if name in environment]
    if not selected:
        return ""
    answer = ask(library, environment_of_probe(environment, {}, library))
    if not answer.failure or answer.timed_out:
        return ""
    return ": ".join(
        (f"MPI does not start with {' '.join(selected)}", answer.failure, *last_line(answer.output))
    )


def last_line(output: str) -> list[str]:
    """Of what MPI printed, if it printed anything."""
    lines = [line.strip() for line in output.splitlines() if "UCX  DEBUG" not in line]
    return [line for line in lines if line and not line.startswith("Library version:")][-1:]


def ask(
    library: Path, environment: Mapping[str, str], words: Sequence[str] = (), seconds: float = SECONDS
) -> Answer:
    """Starts the process, and ends it after `seconds` with all that it started. `words`: of _fabric_ask.py."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), str(library), *words]
    begin = time.monotonic()
    child = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    failure, timed_out = "", False
    try:
        output, _ = child.communicate(timeout=seconds)
        if child.returncode:
            failure = f"MPI_Init failed: {_ending(child.returncode)}"
    except subprocess.TimeoutExpired:
        failure, timed_out = f"MPI_Init did not end within {seconds:g} s", True
        _kill(child)
        output = _rest(child)
    return Answer(output.decode(errors="replace")[:LONGEST], failure, time.monotonic() - begin, timed_out)


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _rest(child: subprocess.Popen[bytes]) -> bytes:
    """What it had printed. A daemon that it started may hold the pipe open."""
    try:
        return child.communicate(timeout=1)[0]
    except subprocess.TimeoutExpired as error:
        return error.output or b""
