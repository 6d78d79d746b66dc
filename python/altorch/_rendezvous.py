# SPDX-License-Identifier: BSD-3-Clause
"""`init_method="mpi://"`: under mpirun or srun the user need not name a host for torch's store.

MPI starts first; rank 0 then opens a store on any free port, and MPI tells the others where. `env://` takes the same
way when a launcher started the process and MASTER_ADDR is not set.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from altorch import _launcher


def mpi_rendezvous(
    url: str, timeout: timedelta = timedelta(minutes=30), **_: Any
) -> Iterator[tuple[Any, int, int]]:
    """torch's rendezvous handler of the scheme mpi."""
    from torch.distributed import TCPStore
    from torch.distributed.rendezvous import rendezvous

    launcher = _launcher.detect()
    if not launcher.starts_mpi and "MASTER_ADDR" in os.environ and "RANK" in os.environ:
        # torchrun tells where the store is; MPI starts over it later.
        yield from rendezvous(url.replace("mpi://", "env://", 1), timeout=timeout)
        return
    rank, size = _join_job()
    fill_environment(launcher)
    if os.environ.get("RANK", str(rank)) != str(rank):
        raise RuntimeError(
            f"mpi:// rendezvous: RANK is {os.environ['RANK']}, and MPI says that this is rank {rank} of {size}. Unset "
            "RANK, or make it agree."
        )
    from altorch._extension import extension

    compiled = extension()
    store: Any = None
    offer: dict[str, Any] = {}
    if rank == 0:
        try:
            # wait_for_workers=False: they learn the port only after this returns.
            store = TCPStore("localhost", 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
            offer = {"port": store.port, "addresses": _own_addresses()}
        except RuntimeError as error:
            offer = {"problem": str(error)}
    offer = json.loads(compiled.exchange_texts(json.dumps(offer))[0])
    if "problem" in offer:
        raise RuntimeError(f"mpi:// rendezvous: rank 0 could not open a store: {offer['problem']}")
    if rank != 0:
        address = _reachable(offer["addresses"], offer["port"])
        store = TCPStore(address, offer["port"], size, is_master=False, timeout=timeout)
        os.environ.setdefault("MASTER_ADDR", address)
    else:
        os.environ.setdefault("MASTER_ADDR", offer["addresses"][0])
    yield store, rank, size
    raise RuntimeError("mpi:// rendezvous: MPI ranks cannot meet a second time")


def _join_job() -> tuple[int, int]:
    from altorch import _mpi
    from altorch._backend import shim_directory
    from altorch._extension import extension

    found = _mpi.find()
    if not found.path:
        raise RuntimeError(
            f'init_method="mpi://" needs an MPI library, and there is none: {found.reason}. Start with torchrun, or '
            "point ALTORCH_MPI to a libmpi.so."
        )
    rank, size = extension().join_launched_job(str(found.path), shim_directory())
    return rank, size


def _own_addresses() -> list[str]:
    """Addresses of this host, the ones that other hosts may reach first, a loopback one last."""
    found: list[str] = []
    for name in (socket.gethostname(), socket.getfqdn()):
        try:
            found += [str(row[4][0]) for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
        except OSError:
            continue
    for target in (
        "192.0.2.1",
        "2001:db8::1",
    ):  # reserved for documentation: picks the default route, sends nothing
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                found.append(str(probe.getsockname()[0]))
        except OSError:
            continue
    usable = [address for address in dict.fromkeys(found) if not address.startswith(("127.", "::1", "fe80:"))]
    return [*usable, "127.0.0.1"]


def _reachable(addresses: list[str], port: int) -> str:
    """The first address that takes a connection; loopback only leads to rank 0 on its own host."""
    for address in addresses:
        try:
            with socket.create_connection((address, port), timeout=5):
                return address
        except OSError:
            continue
    raise RuntimeError(
        f"mpi:// rendezvous: rank 0 keeps the store at port {port}, and none of its addresses ({', '.join(addresses)}) "
        "could be reached from this host. Check names and firewall, or set MASTER_ADDR and MASTER_PORT and use env://."
    )


def env_rendezvous(original: Any, url: str, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
    """torch's env://, which under mpirun and srun needs no variable of torch's."""
    launcher = _launcher.detect()
    fill_environment(launcher)
    if launcher.name == "srun" and launcher.size == 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "0")
    if launcher.starts_mpi and not {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return mpi_rendezvous(url, **kwargs)
    found: Iterator[tuple[Any, int, int]] = original(url, **kwargs)
    return found


def fill_environment(launcher: _launcher.Launcher) -> None:
    """RANK and its kin, as torchrun would give them; what is set already stays."""
    if not launcher.starts_mpi and launcher.name != "srun":
        return
    values: dict[str, str | int | None] = {
        "RANK": launcher.rank,
        "WORLD_SIZE": launcher.size,
        "LOCAL_RANK": launcher.local_rank,
        "LOCAL_WORLD_SIZE": launcher.local_size,
    }
    if launcher.store:
        values["MASTER_ADDR"], values["MASTER_PORT"] = launcher.store
    for name, value in values.items():
        if value is not None:
            os.environ.setdefault(name, str(value))
