# SPDX-License-Identifier: BSD-3-Clause
"""Process groups of several backends and routes, alive in the same processes, so that they can take turns.

al                 altorch as it chooses
al:host_staged     altorch over that route of CUDA tensors (nccl, peer, host_staged, hierarchical,
                   host_relay)
al:peer/ll128      altorch over that protocol of a route, where it can carry the call
al:ring            altorch by that algorithm, for CPU tensors, where an operation has it (`altorch algorithms`)
al:shm/two_steps   the same by a protocol of the memory that ranks share (`altorch explain` names them)
al:untuned         altorch without the file of ALTORCH_TUNED
al:messages        altorch without shared memory, for CPU tensors: messages between all ranks
al:max_ctas=4      altorch with that option (of nccl, too)
gloo, nccl         torch's own
symm:two_shot      torch's kernels over symmetric memory (one_shot, two_shot): all_reduce on GPUs, in a graph and on the
                   device
fake               torch's backend that does nothing: what torch itself takes
recorded           fake with the flight recorder that torch attaches to backends that do not record for themselves
                   (al does, unless ALTORCH_FLIGHT_RECORDER=torch)
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from altorch.bench import process_group, symmetric
from altorch.bench.cases import Buffers, Call, Case

MOVE_NOTHING = ("fake", "recorded")
MESSAGES, UNTUNED = "messages", "untuned"
SYMMETRIC = "symm"
BACKENDS = ("al", "gloo", "nccl", SYMMETRIC, *MOVE_NOTHING)
# What torch's gloo has for CUDA tensors.
GLOO_ON_GPUS = ("all_reduce", "all_gather", "broadcast", "barrier")
_FAKE = "torch.testing._internal.distributed.fake_pg"
_PROVIDERS = {"al": "altorch", "fake": _FAKE, "recorded": _FAKE}
_Recorder = getattr(torch._C._distributed_c10d, "FlightRecorderHook", None)
_recorders: list[Any] = []  # a recorder lives as long as what attaching it gave


def provide(backend: str) -> None:
    """Imports what makes torch know the backend's name."""
    if backend in _PROVIDERS:
        importlib.import_module(_PROVIDERS[backend])


def unsupported_reason(name: str, device: torch.device) -> str | None:
    """Why the contender cannot take part here, or nothing. The same on every rank."""
    if name == "recorded" and _Recorder is None:
        return f"torch {torch.__version__} attaches no flight recorder to backends that are not its own"
    backend = name.partition(":")[0]
    if backend not in ("nccl", SYMMETRIC):
        return None
    if backend == SYMMETRIC and (why := symmetric.unsupported_reason(device)):
        return why
    if device.type != "cuda":
        return "torch's nccl carries CUDA tensors only"
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, process_group.gpu_identity(device))
    if len(set(everyone)) < len(everyone):
        return "ranks share a GPU here, which NCCL refuses"
    return None


def settings(
    name: str, device: torch.device, operations: Sequence[str]
) -> tuple[dict[str, str], dict[str, int]]:
    """The variables and the options that the name asks for. Raises ValueError for a name that says nothing."""
    backend, _, choice = name.partition(":")
    if backend not in BACKENDS:
        raise ValueError(f"'{backend}' is none of {', '.join(BACKENDS)}")
    if backend == SYMMETRIC:
        if choice not in symmetric.CHOICES:
            raise ValueError(
                f"'{name}' is none of {', '.join(f'{SYMMETRIC}:{each}' for each in symmetric.CHOICES)}"
            )
        return {}, {}
    option, equals, value = choice.partition("=")
    if equals:
        if backend not in ("al", "nccl") or not value.isdigit():
            raise ValueError(f"'{name}' is no option of al or nccl with a number, such as al:max_ctas=4")
        return {}, {option: int(value)}
    if not choice:
        return {}, {}
    if backend != "al":
        raise ValueError(f"'{name}': only al has routes")
    if choice == UNTUNED:
        return {"ALTORCH_TUNED": ""}, {}
    if device.type == "cuda":
        return {"ALTORCH_ROUTE": f"cuda={choice}"}, {}
    if choice == MESSAGES:
        return {"ALTORCH_SHM_BYTES": "0"}, {}
    chosen = [operation for operation in operations if has_algorithm(operation, choice)]
    if not chosen:
        what = ", ".join(operations)
        raise ValueError(f"{name}: none of {what} has that algorithm; `altorch algorithms` lists them")
    return {"ALTORCH_ROUTE": ",".join(f"{operation}={choice}" for operation in chosen)}, {}


def make(name: str, device: torch.device, operations: Sequence[str]) -> dist.ProcessGroup:
    """A group of all ranks. Collective. The route is settled before this returns."""
    backend = name.partition(":")[0]
    provide(backend)
    variables, options = settings(name, device, operations)
    with _set(variables):
        known = "fake" if backend in MOVE_NOTHING else "nccl" if backend == SYMMETRIC else backend
        group = dist.new_group(backend=known, pg_options=_options(backend, options) if options else None)
        dist.all_reduce(torch.zeros(1, device=device), group=group)
        if device.type == "cuda":
            torch.cuda.synchronize()
    if backend == "recorded":
        assert _Recorder is not None, "see unsupported_reason"
        _recorders.append(_Recorder.attach(group, dist.get_process_group_ranks(group)))
    return group


def has_algorithm(operation: str, name: str) -> bool:
    from altorch._extension import extension

    native, _, protocol = name.partition("/")
    if native in ("native", "shm"):
        if operation == "send_recv":
            return False
        return not protocol or (native == "shm" and protocol in extension().shm_protocols(operation))
    return any((row["op"], row["name"]) == (operation, name) for row in extension().algorithms())


def takes_part(name: str, device: torch.device, operation: str) -> bool:
    """Whether the contender has this operation, and is another one than "al" for it."""
    backend, _, choice = name.partition(":")
    if backend == "gloo" and device.type == "cuda":
        return operation in GLOO_ON_GPUS
    if backend == SYMMETRIC:
        return operation == "all_reduce"
    if device.type == "cuda" or choice in ("", MESSAGES, UNTUNED) or "=" in choice:
        return True
    return has_algorithm(operation, choice)


def call_of(name: str, case: Case, buffers: Buffers, group: dist.ProcessGroup) -> Call:
    """How the contender carries out the case on these buffers. Collective."""
    backend, _, choice = name.partition(":")
    if backend == SYMMETRIC:
        return symmetric.call(choice, buffers, group)
    return case.make(buffers, group)


@contextlib.contextmanager
def _set(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _options(backend: str, wanted: dict[str, Any]) -> Any:
    if backend == "al":
        import altorch

        return altorch.Options(**wanted)
    options = dist.ProcessGroupNCCL.Options()
    for name, value in wanted.items():
        setattr(options if hasattr(options, name) else options.config, name, value)
    return options
