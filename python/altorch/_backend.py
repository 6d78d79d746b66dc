# SPDX-License-Identifier: BSD-3-Clause
"""Makes the backend of one process group: agrees with the other ranks on what carries it.

Ranks of one node share memory and need nothing else. If the ranks are on several nodes, MPI carries the
group, or Gloo if there is no MPI. On one node MPI comes in, too, if one of these asks for it: an MPI
launcher, ALTORCH_MPI, or a rule in ALTORCH_ROUTE for MPI's own collectives or windows.

The ranks agree three times. First before any rank looks for MPI, because that takes longer than all the rest.
Then before any rank touches MPI, so that one rank without MPI cannot leave the others waiting in MPI_Init.
And once more after MPI has started, because the start may fail on one rank alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import warnings
import zlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from altorch import _launcher, _time_estimate, _tuned
from altorch._extension import extension, own_process
from altorch._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed import Store

_warned = False


class _Place(NamedTuple):
    """What a rank tells the other ranks of the group first."""

    job: str = ""  # the MPI job this process belongs to already; empty: MPI has not been started
    mpi_rank: int = -1  # its rank there
    node: str = ""  # ranks with the same one can share the group's memory; empty: this one shall not
    wants_mpi: bool = False  # also where all ranks are on one node

    def fields(self) -> list[str]:
        return [json.dumps(value) for value in self]

    @classmethod
    def of(cls, fields: list[str]) -> _Place:
        return cls(*(json.loads(text) for text in fields))


class _Standing(NamedTuple):
    """What a rank tells them about MPI, if shared memory is not enough."""

    library: str = ""  # path of the MPI library; empty: none
    reason: str = ""  # why this one, or why none
    chosen_by_user: bool = False  # through ALTORCH_MPI
    refused_by_user: bool = False  # ALTORCH_MPI=none
    network: str = ""  # the setting by which the user selects MPI's network, NAME=value


_own = _Place()
_without_mpi = ""  # why this process goes on without MPI, see leave_mpi()


def shim_directory() -> str:
    """Where the MPI shims and bootstrap helpers lie."""
    return str(Path(__file__).parent / "lib")


@functools.cache
def _install_objects() -> None:
    """ALTORCH_OBJECTS, when the first group is made."""
    if os.environ.get("ALTORCH_OBJECTS") == "1":
        from altorch import objects

        objects.install()


def _prepare() -> None:
    """Before a group is made."""
    _install_objects()
    _time_estimate.install()
    _tuned.apply()


def _checked(options: Any) -> Any:
    options = options if options is not None else extension().Options()
    if not isinstance(options, extension().Options):
        raise TypeError(
            f"pg_options is a {type(options).__name__}, and the backend 'al' takes altorch.Options. Pass that, or none."
        )
    return options


def create(backend_options: Any, options: Any) -> Any:
    """The creator that torch calls; every member of the group is in it at the same time."""

    compiled = extension()
    _prepare()
    options = _checked(options)
    _choose_recorder(options.served_name, compiled.records_for_itself())
    from torch.distributed import is_initialized

    size = backend_options.group_size
    member = Member(
        name=backend_options.group_id,
        rank=backend_options.group_rank,
        # torch gives an empty list for the whole world
        global_ranks=list(backend_options.global_ranks_in_group) or list(range(size)),
        timeout=backend_options.timeout,
        is_job=not is_initialized(),
        prefixes=compiled.prefixes_of(backend_options.store),
    )
    if getattr(backend_options, "enable_reconfigure", False):  # torch 2.15
        from altorch import _reconfigure

        return _reconfigure.create(backend_options.store, member, options)
    if not member.is_job and (generation := _generation_of_world()):
        # Others may have the same numbers, and other names for the same groups, which torch counts
        # in each process.
        those = (generation, tuple(member.global_ranks))
        count = _made.get(those, 0)
        _made[those] = count + 1
        # A newcomer has come to the store on another way, so no prefixes.
        member = member._replace(life=f"{generation}/{count}", without_mpi=True, prefixes="")
    return make(backend_options.store, member, options)


_made: dict[
    tuple[Any, ...], int
] = {}  # how often a group of these ranks was, in this generation of the world


def _generation_of_world() -> str:
    """A name of the ranks that the default group has now, where they change; empty where they do not."""
    from torch.distributed import distributed_c10d as c10d

    if not hasattr(extension(), "ReconfigurableBackend"):
        return ""
    world = c10d._get_default_group()
    for device in world._device_types:
        now = getattr(world._get_backend(device), "now", None)
        if now is not None:
            return hashlib.sha256(now.membership.key.encode()).hexdigest()[:16]
    return ""


def merged(store: Store, membership: Any, options: Any) -> tuple[Any, str]:
    """What Backend.merge() makes, or None and why not."""
    member = Member(
        name=membership.name,
        rank=membership.rank,
        global_ranks=membership.global_ranks,
        timeout=timedelta(seconds=membership.timeout_seconds),
        is_job=False,
    )
    try:
        return make(store, member._replace(life=_life(store, member)), options), ""
    except Exception as error:
        return None, str(error)


def made_for_framework(
    store: Store, rank: int, name: str, global_ranks: list[int], timeout: timedelta, options: Any
) -> Any:
    """What altorch.make_backend() makes."""
    _prepare()
    member = Member(
        name=name, rank=rank, global_ranks=global_ranks, timeout=timeout, is_job=False, without_mpi=True
    )
    return make(store, member._replace(life=_life(store, member)), _checked(options))


def _life(store: Store, member: Member) -> str:
    """A name for what meets in this store, whose prefix the group's own keys leave out; rank 0 draws it."""
    from torch.distributed import DistBackendError

    key = "altorch/merge"
    if member.rank == 0:
        store.set(key, os.urandom(8).hex())
    try:
        store.wait([key], member.timeout)
    except Exception as error:
        raise DistBackendError(
            f"altorch: group '{member.name}': rank 0 has not come within {member.timeout.total_seconds():g} s "
            f"({error}); find the rank that is late or took another path"
        ) from None
    return str(store.get(key).decode())


def carrying(backend: Any) -> Any:
    """The one that does the work: where a group's ranks change, another one stands in front of it."""
    kind: Any = getattr(extension(), "ReconfigurableBackend", None)
    if kind is None or not isinstance(backend, kind):
        return backend
    if backend.now is None:
        from torch.distributed import DistBackendError

        raise DistBackendError("altorch: the group has no ranks yet; all of them call reconfigure() first")
    return backend.now


class Member(NamedTuple):
    """This rank and its group, which is to be made."""

    name: str
    rank: int
    global_ranks: list[int]
    timeout: timedelta
    is_job: bool  # of all ranks: the job's first group, or what is left of it
    # What is left of it: `global_ranks` as they were numbered until now.
    before: Sequence[int] = ()
    # Where others may have the same name and the same numbers: what these meet under instead of
    # their name.
    life: str = ""
    without_mpi: bool = False  # all of them
    # Of the caller's store: several worlds may share one store under different prefixes, and have
    # the same names.
    prefixes: str = ""
    # Node and process id of every rank, where they are known before they meet.
    processes: Sequence[tuple[str, int]] = ()


def make(store: Store, member: Member, options: Any) -> Any:
    """The backend of a new group; all its ranks are in it at the same time."""
    own_process()
    group = Group(store, member, options)
    try:
        return group.create()
    except BaseException as error:  # KeyboardInterrupt, too
        group.met.fail(str(error) or type(error).__name__)  # the other ranks raise, too, instead of waiting
        raise


def abandon(made: Any) -> None:
    """Of a backend that the other ranks do not go on with; None: it was not made."""
    if made is not None:
        made.abort()


def _leave_mpi_of_parent() -> None:
    """In a forked child: MPI runs in its parent, if at all, and cannot start here again."""
    if _own.job:
        leave_mpi("it was forked from a process that had started MPI")


os.register_at_fork(after_in_child=_leave_mpi_of_parent)


def leave_mpi(why: str = "it is left of a job that lost a rank, and MPI does not do without one") -> None:
    """From now on nothing of this process goes over MPI, which cannot do without a rank that it was started with."""
    global _own, _without_mpi
    _own, _without_mpi = _Place(), why


def _choose_recorder(name: str, own: bool) -> None:
    """Before torch asks: whether its hook, which costs 2 or 3 us a call, leaves groups of the backend `name` alone."""
    from torch.distributed import distributed_c10d

    by_themselves: set[str] = getattr(distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    if own:
        by_themselves.add(name)
    else:
        by_themselves.discard(name)


def _chosen_by_user() -> bool:
    return os.environ.get("ALTORCH_MPI", "").lower() not in ("", "none")


class Group:
    def __init__(self, store: Store, member: Member, options: Any) -> None:
        self.rank, self.size, self.global_ranks = member.rank, len(member.global_ranks), member.global_ranks
        self.is_job, self.options, self.without_mpi = member.is_job, options, member.without_mpi
        self.name = member.name
        # Disjoint groups may have one name, and the names come again after destroy_process_group.
        ranks = zlib.crc32(json.dumps([self.global_ranks, member.prefixes]).encode())
        self.met = extension().gather(
            store,
            extension().Membership(
                name=member.name,
                rank=self.rank,
                global_ranks=self.global_ranks,
                timeout_seconds=member.timeout.total_seconds(),
                is_job=self.is_job,
                before=member.before,
            ),
            f"{member.life or member.name}/{self.size}.{ranks:08x}",
            options,
            [f"altorch's version={__version__}", f"ALTORCH_TUNED={_tuned.digest()}"],
            self._place().fields(),
            member.processes,
        )

    def create(self) -> Any:
        backend, why = self._create()
        if self.rank == 0:
            extension().log_info(
                f"group '{self.name}' of {self.size} rank{'' if self.size == 1 else 's'}: "
                f"{extension().transport(backend)} carries CPU tensors, because {why}"
            )
        return backend

    def _create(self) -> tuple[Any, str]:
        """The backend, and why this transport carries it: the first kLinks row of the score table that is usable."""
        places = [_Place.of(fields) for fields in self.met.words]
        if not self._needs_only_memory(places):
            self.met.settle()  # MPI and Gloo block in the caller's store
        makers = {"shm": self._make_in_memory, "mpi": self._make_over_mpi, "gloo": self._make_over_gloo}
        unsupported = ""
        for carrier, reason in extension().links_rows():
            backend, detail = makers[carrier](places)
            if backend is not None:
                if self.is_job:
                    self.met.leave()
                return backend, reason + (f" ({detail})" if detail else unsupported)
            if detail:
                unsupported = f"; {carrier} is unsupported: {detail}"
        raise AssertionError("gloo carries every group")

    def _make_in_memory(self, places: list[_Place]) -> tuple[Any, str]:
        """With Gloo behind the shared memory: it carries the group if the segment cannot be made."""
        return (self._over_gloo() if self._needs_only_memory(places) else None), ""

    def _make_over_mpi(self, places: list[_Place]) -> tuple[Any, str]:
        if self.without_mpi:
            return None, "the group was made without MPI"
        standings = [
            _Standing(**json.loads(word))
            for word in self.met.exchange("mpi", json.dumps(self._standing(places)._asdict()))
        ]
        unsupported_reason = self._unsupported_reason(places, standings)
        if unsupported_reason is None:
            own = standings[self.rank]
            backend, unsupported_reason = self._over_mpi(places, own)
            if backend is not None:
                return backend, own.library or "started before"
        self._report(standings, unsupported_reason)
        return None, unsupported_reason or ""

    def _make_over_gloo(self, places: list[_Place]) -> tuple[Any, str]:
        return self._over_gloo(), ""

    def _place(self) -> _Place:
        if _own.job and not self.without_mpi:
            return _own
        wants_mpi = not (_without_mpi or self.without_mpi) and (
            _chosen_by_user()
            or _launcher.detect().starts_mpi
            or any(asks in os.environ.get("ALTORCH_ROUTE", "") for asks in ("native", "window=mpi"))
        )
        shares = not extension().shared_memory_unsupported_reason(self.size)
        return _Place(node=extension().shared_memory_node() if shares else "", wants_mpi=wants_mpi)

    def _standing(self, places: list[_Place]) -> _Standing:
        standing = _Standing(
            chosen_by_user=_chosen_by_user() and not _without_mpi,
            refused_by_user=os.environ.get("ALTORCH_MPI", "").lower() == "none",
        )
        if _without_mpi:
            return standing._replace(reason=_without_mpi)
        if _own.job:
            return standing
        try:
            from altorch import _mpi

            found = _mpi.find()
        except Exception as error:
            return standing._replace(reason=f"looking for an MPI library failed: {error}")
        launcher = _launcher.detect()
        if found.path and launcher.starts_mpi and launcher.size != self.size:
            reason = (
                f"{launcher.name} started {launcher.size} ranks, and MPI starts on all of them together, but this "
                f"first group has {self.size}"
            )
            return standing._replace(reason=reason)
        if found.path and found.family == _mpi.MPICH and not launcher.starts_mpi and self._is_first(places):
            from altorch.cli import _fabric_probe

            if failure := _fabric_probe.selected_network_fails(found.path, os.environ):
                return standing._replace(reason=failure)
        setting = {_mpi.MPICH: "MPIR_CVAR_CH4_NETMOD", _mpi.OPEN_MPI: "OMPI_MCA_pml"}.get(found.family, "")
        network = f"{setting}={os.environ.get(setting, '')}"
        return standing._replace(library=str(found.path or ""), reason=found.reason, network=network)

    def _is_first(self, places: list[_Place]) -> bool:
        """Of the ranks of its node, where there are several nodes."""
        nodes = [place.node for place in places]
        return len({*nodes}) > 1 and nodes.index(nodes[self.rank]) == self.rank

    def _needs_only_memory(self, places: list[_Place]) -> bool:
        """The same on every rank. Where memory turns out not to be had, Gloo carries the group."""
        nodes = {place.node for place in places}
        return len(nodes) == 1 and nodes != {""} and not any(place.job or place.wants_mpi for place in places)

    def _unsupported_reason(self, places: list[_Place], standings: list[_Standing]) -> str | None:
        """Why MPI cannot carry this group; the same on every rank."""
        without = [i for i in range(self.size) if not places[i].job and not standings[i].library]
        if without:
            return f"rank {self.global_ranks[without[0]]} has no MPI ({standings[without[0]].reason})"
        jobs = {place.job for place in places}
        if len(jobs) > 1:
            other = next(i for i, place in enumerate(places) if place.job != places[0].job)
            return (
                f"ranks {self.global_ranks[0]} and {self.global_ranks[other]} started MPI in different groups, and MPI "
                "starts once in a process; make the group of all ranks first"
            )
        return self._different_networks(standings)

    def _different_networks(self, standings: list[_Standing]) -> str | None:
        """Such ranks of one MPI would abort in MPI_Init, or wait there. Different MPIs are told of later."""
        setting, _, first = standings[0].network.partition("=")
        for rank, standing in zip(self.global_ranks, standings, strict=True):
            other_setting, _, other = standing.network.partition("=")
            if setting == other_setting and first != other:
                return (
                    f"ranks {self.global_ranks[0]} and {rank} select different networks of MPI ({setting}={first} and "
                    f"{setting}={other}); set the same on every rank"
                )
        return None

    def _over_mpi(self, places: list[_Place], own: _Standing) -> tuple[Any, str | None]:
        """The backend, or why MPI did not start; the same on every rank."""
        global _own
        started = bool(places[0].job)
        job = places[0].job or self.met.prefix
        mpi_ranks = [place.mpi_rank for place in places] if started else list(range(self.size))
        backend, failure = None, ""
        try:
            start = extension().MpiStart(
                library=own.library,
                shim_directory=shim_directory(),
                job=job,
                master_address=os.environ.get("MASTER_ADDR", ""),
            )
            mpi = extension().mpi_transport(self.met, mpi_ranks, None if started else start)
            backend = extension().create_backend(self.met, mpi, self.options)
        except RuntimeError as error:
            if started:
                raise
            failure = str(error)
        if not started:
            failures = self.met.exchange("started", failure, starts_mpi=True)
            failed = [i for i, failure in enumerate(failures) if failure]
            failed.sort(key=lambda i: "another rank" in failures[i])  # the cause first
            if failed:
                return (
                    None,
                    f"MPI did not start on rank {self.global_ranks[failed[0]]}: {failures[failed[0]]}",
                )
            _own = _Place(job=job, mpi_rank=self.rank)
        return backend, None

    def _over_gloo(self) -> Any:
        from altorch import _gloo

        gloo = extension().gloo_transport(_gloo.make, _gloo.local_address)
        return extension().create_backend(self.met, gloo, self.options)

    def _report(self, standings: list[_Standing], unsupported_reason: str | None) -> None:
        """Gloo takes over. That is an error where the user named an MPI, silence where they wanted none."""
        global _warned
        why = (unsupported_reason or "").rstrip(".")
        if any(standing.chosen_by_user for standing in standings):
            from torch.distributed import DistBackendError

            self.met.leave()  # all ranks are about to fail alike
            chosen = os.environ.get("ALTORCH_MPI", "on another rank")
            raise DistBackendError(
                f"ALTORCH_MPI ({chosen}) asks for MPI, and it cannot be used: {why}. "
                "See `altorch info`; without ALTORCH_MPI altorch looks for an MPI itself, and takes Gloo "
                "when there is none."
            )
        if any(standing.refused_by_user for standing in standings) or self.rank != 0 or _warned:
            return
        _warned = True
        warnings.warn(
            f"altorch: torch's Gloo carries the traffic, not MPI: {why}. See `altorch info`.",
            RuntimeWarning,
            stacklevel=2,
        )
