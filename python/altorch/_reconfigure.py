# SPDX-License-Identifier: BSD-3-Clause
"""Groups whose ranks change in place: what torch calls reconfigure(), with enable_reconfigure=True.

MPI does not do without a rank that it was started with, and takes none in later: such groups go over shared memory,
Gloo and the GPUs' own routes.
"""

from __future__ import annotations

import copy
import hashlib
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from altorch import _backend
from altorch._extension import extension

if TYPE_CHECKING:
    from torch.distributed import Store


def create(store: Store, member: _backend.Member, options: Any) -> Any:
    """A backend that waits for its first reconfigure(). Does not wait for other ranks."""
    options = copy.copy(options)
    options._timeout = member.timeout

    def make(
        uuid: int, handles: list[str], processes: list[tuple[str, int]], rank: int, seconds: float
    ) -> tuple[Any, str]:
        generation = _backend.Member(
            name=member.name,
            rank=rank,
            global_ranks=list(range(len(handles))),
            timeout=timedelta(seconds=seconds),
            is_job=True,
            processes=processes,
            without_mpi=True,
        )
        try:
            return _generation(store, uuid, handles, generation, options), ""
        except Exception as error:
            return None, str(error)

    return extension().ReconfigurableBackend(
        member.rank, len(member.global_ranks), member.name, options, make
    )


def _generation(store: Store, uuid: int, handles: list[str], member: _backend.Member, options: Any) -> Any:
    """The backend of these ranks, all of which are in it at the same time, or the same error on all of them."""
    from torch.distributed import DistBackendError, PrefixStore

    seconds = member.timeout.total_seconds()
    deadline = time.monotonic() + seconds
    claim = hashlib.sha256("\n".join(handles).encode()).hexdigest()
    if extension().claim(PrefixStore(f"reconfigure/{uuid}", store), "claimed", claim, seconds) != claim:
        raise DistBackendError(
            f"uuid {uuid} was already used, for other ranks or another attempt; pass one that was not, the same with "
            "the same handles on all of them"
        )
    group = _backend.Group(store, member._replace(life=claim), options)
    made, failure = None, ""
    try:
        made = group.create()
    except Exception as error:  # the others have to know
        failure = str(error)
    except BaseException as error:  # KeyboardInterrupt
        group.met.fail(type(error).__name__)
        raise
    try:
        # All ranks must decide the same, or some would use the new group and others the old one.
        decision = group.met.commit(failure, max(1.0, deadline - time.monotonic()))
    except BaseException:
        _backend.abandon(made)
        raise
    if decision:
        _backend.abandon(made)
        raise DistBackendError(f"the ranks have not made it together: {decision}")
    return made
