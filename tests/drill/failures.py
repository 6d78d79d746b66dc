"""What befalls the victim."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from tests.drill.scene import Scene


@dataclass(frozen=True)
class Failure:
    """`strike` is carried out by the victim, the last rank, where its moment says so.

    Or the victim makes another call than the others do: `odd` instead of `usual`.
    """

    name: str
    strike: Callable[[Scene], None] | None = None
    usual: Callable[[Scene], None] | None = None
    odd: Callable[[Scene], None] | None = None
    exit_code: int = 0  # of the victim
    victim_ends: bool = False  # it is no rank any more: what it sees does not count
    resumes_after: float | None = (
        None  # seconds after which a stopped process goes on; None: when the others ended
    )


def _kill(_: Scene) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _segfault(_: Scene) -> None:
    ctypes.string_at(0)


def _raise(_: Scene) -> None:
    raise ValueError("a bug of the user's")


def _stop(_: Scene) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _interrupt(_: Scene) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _signal_store(scene: Scene, number: int) -> None:
    scene.signal_store(number)


def _fork(scene: Scene, end: Callable[[], None]) -> None:
    if (child := os.fork()) == 0:
        end()
    os.waitpid(child, 0)
    scene.note("forked")


def _destroy_and_ignore(scene: Scene) -> None:
    dist.destroy_process_group()
    scene.await_end_of_others()


DEATHS = (
    Failure("killed", _kill, exit_code=-signal.SIGKILL, victim_ends=True),
    Failure("segfault", _segfault, exit_code=-signal.SIGSEGV, victim_ends=True),
    Failure("os._exit", lambda _: os._exit(7), exit_code=7, victim_ends=True),
    Failure("exits", lambda _: sys.exit(0), victim_ends=True),
    Failure("raises", _raise, exit_code=1, victim_ends=True),
    Failure("Ctrl-C", _interrupt, exit_code=-signal.SIGINT, victim_ends=True),
)

DELAYS = (
    Failure("stopped", _stop),
    Failure("stopped for 2 s", _stop, resumes_after=2),
    Failure("late", lambda scene: time.sleep(scene.timeout + 2)),
    Failure("late within the deadline", lambda _: time.sleep(2)),
)

MISMATCHES = (
    Failure(
        "other operation", usual=lambda scene: scene.all_reduce(), odd=lambda scene: scene.call(dist.barrier)
    ),
    Failure(
        "other type",
        usual=lambda scene: scene.all_reduce(),
        odd=lambda scene: scene.all_reduce(dtype=torch.int32),
    ),
    Failure(
        "other count", usual=lambda scene: scene.all_reduce(1000), odd=lambda scene: scene.all_reduce(1001)
    ),
    Failure(
        "other operator",
        usual=lambda scene: scene.all_reduce(),
        odd=lambda scene: scene.all_reduce(op=dist.ReduceOp.MAX),
    ),
    Failure(
        "other root",
        usual=lambda scene: scene.broadcast(0),
        odd=lambda scene: scene.broadcast(scene.size - 1),
    ),
    Failure(
        "bad argument",
        usual=lambda scene: scene.all_reduce(),
        odd=lambda scene: scene.all_reduce(op=dist.ReduceOp.BAND),
    ),
)

OTHERS = (
    Failure("nothing"),
    Failure("store killed", lambda scene: _signal_store(scene, signal.SIGKILL)),
    Failure("store stopped", lambda scene: _signal_store(scene, signal.SIGSTOP)),
    Failure("forked child exits", lambda scene: _fork(scene, lambda: sys.exit(0))),
    Failure("forked child is killed", lambda scene: _fork(scene, lambda: os.kill(os.getpid(), 9))),
    Failure("destroys its group", _destroy_and_ignore),
)

FAILURES = {failure.name: failure for failure in (*DEATHS, *DELAYS, *MISMATCHES, *OTHERS)}
