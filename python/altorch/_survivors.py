# SPDX-License-Identifier: BSD-3-Clause
"""The ranks that are left of a group go on: torch's shrink_group(), and altorch.survivors() on top of it."""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from altorch import _backend, _successor_store
from altorch._extension import extension

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup, Store

_SEPARATOR = ":shrunk"


def shrink(
    backend: Any,
    excluded: list[int],
    flags: int,
    options: Any,
    store: Store | None = None,
    patience: timedelta | None = None,
) -> Any:
    """What Backend.shrink() does: a backend of the ranks that are not excluded. Collective over them.

    `store`: None for the one that the group was made over. `patience`: None for the group's timeout.
    """
    from torch.distributed.distributed_c10d import SHRINK_ABORT

    old = backend.membership
    size = len(old.global_ranks)
    gone = set(excluded)
    if wrong := sorted(rank for rank in gone if not 0 <= rank < size):
        raise ValueError(
            f"shrink: rank {wrong[0]} is not in group '{old.name}', which has ranks 0 to {size - 1}"
        )
    if old.rank in gone:
        raise ValueError(
            f"shrink: rank {old.rank} is to be left out of group '{old.name}', and must not call this"
        )
    if flags & SHRINK_ABORT:
        backend.abort()
    store = store or backend.callers_store
    if gone:
        _backend.leave_mpi()
    kept = [rank for rank in range(size) if rank not in gone]
    before = [old.global_ranks[rank] for rank in kept]
    member = _backend.Member(
        name=f"{old.name.split(_SEPARATOR)[0]}{_SEPARATOR}{len(kept)}",
        rank=kept.index(old.rank),
        # torch numbers what is left of the world from 0 on
        global_ranks=list(range(len(kept))) if old.is_job else before,
        timeout=min(backend.options._timeout, patience or backend.options._timeout),
        is_job=old.is_job,
        before=before if old.is_job else [],
    )
    made = _backend.make(store, member, options or backend.options)
    made.change_timeout(backend.options._timeout.total_seconds())
    return made


def survivors(group: ProcessGroup | None, patience: timedelta) -> ProcessGroup:
    """See altorch.survivors()."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    old = group if group is not None else c10d._get_default_group()
    backend, devices = _only_backend(old), old._device_types
    if old not in c10d._world.pg_map:
        raise NotImplementedError(
            f"altorch.survivors: torch keeps no store of group '{old.group_name}', which a method of a ProcessGroup "
            "made (split_group(), merge_remote_group()); make it with dist.new_group() or dist.split_group(), or take "
            "the survivors of the group that it was made from"
        )
    backend.abort()
    seconds = patience.total_seconds()
    deadline = time.monotonic() + 3 * seconds
    while True:
        store = _next_store(backend, old, patience)
        made, failure = None, None
        try:
            left = backend.find_survivors(seconds, store)
            if old.rank() not in left[1]:
                break
            excluded = [rank for rank in range(old.size()) if rank not in left[1]]
            try:
                made = shrink(backend, excluded, c10d.SHRINK_DEFAULT, None, store, patience)
            except Exception as error:  # the others have to know
                failure = error
            # All ranks must decide the same, or some would use the new world and others the old
            # one.
            if backend.all_succeeded(seconds, left, made is not None, store):
                break
        except (dist.DistBackendError, dist.DistNetworkError):
            _backend.abandon(made)
            if time.monotonic() > deadline or not _successor_store.goes(store or _store_of(old)):
                raise
            continue
        _backend.abandon(made)
        if failure is not None and (
            time.monotonic() > deadline
            or not isinstance(failure, (dist.DistBackendError, dist.DistNetworkError))
        ):
            raise failure
    if made is None:
        raise dist.DistBackendError(
            f"altorch.survivors: group '{backend.membership.name}': the other ranks have gone on without this one, "
            f"which came more than {seconds:g} s after them; end this process"
        )
    if store is not None:
        c10d._world.pg_map[old] = (c10d._world.pg_map[old][0], store)
    try:
        new = _finalized(old, excluded, made, patience)
        for device in devices:
            if device not in new._device_types:  # torch registers one
                new._register_backend(device, dist.ProcessGroup.BackendType.CUSTOM, made)
    except BaseException:
        _backend.abandon(made)
        raise
    # torch connects to the store once more, so the rank that hosts it must not end before all have.
    # Ranks come here up to two waits apart.
    options = c10d.BarrierOptions()
    options.timeout = 3 * patience
    with suppress(dist.DistBackendError):  # a rank was lost since: the next call says so
        made.barrier(options).wait()
    return new


def _finalized(old: ProcessGroup, excluded: list[int], made: Any, patience: timedelta) -> ProcessGroup:
    """torch's own half of shrink_group(), which itself refuses an empty list of ranks, and calls the backend."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    is_default = old == c10d._get_default_group()
    store = _store_of(old)
    usual = store.timeout
    # torch makes the new name of the ranks and of a count that begins anew with every world: names
    # would come again.
    count, c10d._world.group_count = c10d._world.group_count, zlib.crc32(made.membership.key.encode())
    store.set_timeout(patience)
    try:
        new: ProcessGroup = c10d._finalize_shrunk_group(
            {
                "process_group": old,
                "is_default_group": is_default,
                "group_size": old.size(),
                "current_rank": old.rank(),
                "group_name": c10d._get_process_group_name(old),
                "pg_options_override": None,
            },
            set(excluded),
            made,
        )
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        raise dist.DistBackendError(
            f"altorch.survivors: group '{made.membership.name}': the job's store has gone while the group was made: "
            f"{str(error).splitlines()[0]}; start the job again"
        ) from error
    finally:
        c10d._world.group_count = 0 if is_default else count
        store.set_timeout(usual)
    new.get_group_store().set_timeout(usual)
    return new


def _only_backend(group: ProcessGroup) -> Any:
    import torch.distributed as dist

    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        raise NotImplementedError(
            "altorch.survivors: torch's wrapper hides altorch with TORCH_DISTRIBUTED_DEBUG=DETAIL; set it to INFO, or "
            "unset it"
        )
    backends = [_backend.carrying(group._get_backend(device)) for device in group._device_types]
    for each in backends:
        if not isinstance(each, extension().Backend):
            raise NotImplementedError(
                f"altorch.survivors: backend '{each.name()}' carries a part of group '{group.group_name}'; make the "
                "group with backend='al' alone"
            )
    return backends[0]


def _store_of(group: ProcessGroup) -> Store:
    from torch.distributed import distributed_c10d as c10d

    return c10d._get_process_group_store(group)


def _next_store(backend: Any, group: ProcessGroup, patience: timedelta) -> Store | None:
    """None: the one there is."""
    from torch.distributed import DistBackendError

    if not _successor_store.is_gone(_store_of(group)):
        return None
    old = backend.membership
    if not (old.is_job and old.has_one_node):
        raise DistBackendError(
            f"altorch.survivors: group '{old.name}': the store has gone with the process that hosted it, and the "
            "ranks that are left have no other place to meet: they can find one where all of them are on one machine, "
            "for the group of all ranks. Host the store outside of the ranks (torchrun does), or start the job again"
        )
    try:
        return _successor_store.found(
            f"{old.watch_name}/{len(old.global_ranks)}",
            old.rank,
            len(old.global_ranks),
            backend.is_lost,
            patience,
        )
    except TimeoutError as error:
        raise DistBackendError(f"altorch.survivors: group '{old.name}': {error}") from None
