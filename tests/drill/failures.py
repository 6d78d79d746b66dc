# SPDX-License-Identifier: BSD-3-Clause
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

from tests.drill.reconfiguring import reconfigure

if TYPE_CHECKING:
    from tests.drill.scene import Scene

LARGE = (256 << 20) // 4  # elements of float32


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
    dies: bool = False  # the victim's process ends
    excused: bool = (
        False  # where the others shall get an error, the victim may see anything but a wrong result
    )
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


def _kill_with_store(scene: Scene) -> None:
    scene.signal_store(signal.SIGKILL)
    _kill(scene)


def _fork(scene: Scene, end: Callable[[], None]) -> None:
    """The child ends as it is told to; if that is as a program does, it runs what a rank runs at its end."""
    if (child := os.fork()) == 0:
        end()
    os.waitpid(child, 0)


def _abort(scene: Scene) -> None:
    scene.backend.abort()
    scene.backend.abort()


def _destroy(scene: Scene) -> None:
    dist.destroy_process_group()
    scene.await_ends_of_others()
    sys.exit(0)


def _all_reduce(scene: Scene) -> None:
    scene.all_reduce()


def _large(scene: Scene) -> None:
    scene.all_reduce(LARGE // 16)


def _in_two_groups(scene: Scene, order: list[int]) -> None:
    groups = [scene.new_group(), scene.new_group()]
    scene.all_at("made")
    tensors = [scene.ones(1000) for _ in groups]
    works = [dist.all_reduce(tensors[at], group=groups[at], async_op=scene.is_async) for at in order]
    for work in works:
        if work is not None:
            work.wait()
    for tensor in tensors:
        scene.check(tensor, scene.size)


def _send_and_wait(scene: Scene, count: int, dtype: torch.dtype = torch.float32) -> None:
    """A small message is gone before its receiver looks at it: the sender learns of it from the call behind it."""
    dist.send(scene.ones(count, dtype), 0)
    scene.call(dist.barrier)


def _reconfigure_in_another_order(scene: Scene) -> None:
    reconfigure(scene, scene.handles[-1][::-1])


def _reconfigure_as_before(scene: Scene) -> None:
    reconfigure(scene, scene.handles[-2])


DEATHS = (
    Failure("killed", _kill, exit_code=-signal.SIGKILL, dies=True),
    Failure("segfault", _segfault, exit_code=-signal.SIGSEGV, dies=True),
    Failure("os._exit", lambda _: os._exit(7), exit_code=7, dies=True),
    Failure("exits", lambda _: sys.exit(0), dies=True),
    Failure("raises", _raise, exit_code=1, dies=True),
    Failure("Ctrl-C", _interrupt, exit_code=-signal.SIGINT, dies=True),
)

DELAYS = (
    Failure("stopped", _stop, excused=True),
    Failure("stopped for 2 s", _stop, excused=True, resumes_after=2),
    Failure("late", lambda scene: time.sleep(scene.timeout + 2), excused=True),
    Failure("late within the deadline", lambda _: time.sleep(2), excused=True),
)

MISMATCHES = (
    Failure("other operation", usual=_all_reduce, odd=lambda scene: scene.barrier()),
    Failure("other type", usual=_all_reduce, odd=lambda scene: scene.all_reduce(dtype=torch.int32)),
    Failure("other count", usual=_all_reduce, odd=lambda scene: scene.all_reduce(1001)),
    Failure("other large count", usual=_large, odd=lambda scene: scene.all_reduce(LARGE // 16 + 1)),
    Failure("other operator", usual=_all_reduce, odd=lambda scene: scene.all_reduce(op=dist.ReduceOp.MAX)),
    Failure("bad argument", usual=_all_reduce, odd=lambda scene: scene.all_reduce(op=dist.ReduceOp.BAND)),
    Failure(
        "other root",
        usual=lambda scene: scene.broadcast(0),
        odd=lambda scene: scene.broadcast(scene.size - 1),
    ),
)

DISAGREEMENTS = (  # in reconfigure()
    Failure("does not come", usual=reconfigure, odd=lambda scene: scene.await_ends_of_others(), excused=True),
    Failure("other order of handles", usual=reconfigure, odd=_reconfigure_in_another_order),
    Failure("handles of before", usual=reconfigure, odd=_reconfigure_as_before),
)

OTHERS = (
    Failure("nothing"),
    Failure("aborts twice", _abort),
    Failure("destroys its group", _destroy, excused=True),
    Failure("store killed", lambda scene: scene.signal_store(signal.SIGKILL)),
    Failure("store stopped", lambda scene: scene.signal_store(signal.SIGSTOP)),
    Failure("killed with the store", _kill_with_store, exit_code=-signal.SIGKILL, dies=True),
    Failure("forked child exits", lambda scene: _fork(scene, lambda: sys.exit(0))),
    Failure("forked child is killed", lambda scene: _fork(scene, lambda: _kill(scene))),
    Failure(
        "other order of two groups",
        usual=lambda scene: _in_two_groups(scene, [0, 1]),
        odd=lambda scene: _in_two_groups(scene, [1, 0]),
    ),
    Failure(
        "other type of a message",
        usual=lambda scene: dist.recv(scene.ones(1000), scene.size - 1),
        odd=lambda scene: _send_and_wait(scene, 1000, torch.int32),
    ),
    Failure(
        "other count of a message",
        usual=lambda scene: dist.recv(scene.ones(1000), scene.size - 1),
        odd=lambda scene: _send_and_wait(scene, 1001),
    ),
)

FAILURES = {failure.name: failure for failure in (*DEATHS, *DELAYS, *MISMATCHES, *DISAGREEMENTS, *OTHERS)}
