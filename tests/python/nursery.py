"""Forks ranks out of a process that has imported torch: a rank is there in milliseconds, not in two seconds of a core.

What it has imported is all that the ranks share: the process makes no group, loads neither altorch's extension nor an
MPI nor CUDA, and has one thread, which is checked. A rank gets an environment, a session and an arrangement of its
memory of its own, and its interpreter ends as that of any program does.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

# What differs between the environments of ranks and is read after torch has been imported: else they start afresh.
_READ_LATE = re.compile(
    r"(ALTORCH|PYTEST)_\w+|MASTER_(ADDR|PORT)|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|TMPDIR|TORCH_FR_DUMP_ON_TIMEOUT"
)
_SHIFT = 1 << 16  # pages


class Forked:
    """As subprocess.Popen shows a process, so far as is needed here."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self._nursery.look()
            self.returncode = self._nursery.codes.get(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if (left := end - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired("a forked rank", timeout)
            self._nursery.look(min(left, 0.1))
        return code

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """Of this process; it ends with it. `env`: what torch is imported with."""

    def __init__(self, env: dict[str, str]) -> None:
        self._env = env
        ours, theirs = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(ours[0]), str(theirs[1])],
            env=env,
            stdin=subprocess.DEVNULL,
            pass_fds=(ours[0], theirs[1]),
            start_new_session=True,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._orders = Connection(ours[1], readable=False)
        self._news = Connection(theirs[0], writable=False)
        self.codes: dict[int, int] = {}  # of those that have ended

    def can_start(self, env: dict[str, str]) -> bool:
        names = self._env.keys() | env.keys()
        return self._process.poll() is None and all(
            _READ_LATE.fullmatch(name) for name in names if self._env.get(name) != env.get(name)
        )

    def start(self, program: str, env: dict[str, str], log: Path) -> Forked:
        """A Python module with a main(), as a process whose output goes to the end of `log`."""
        self._orders.send((program, env, str(log)))
        while (told := self._news.recv())[1] is not None:
            self.codes[told[0]] = told[1]
        self.codes.pop(told[0], None)  # of another process of this number
        return Forked(self, told[0])

    def look(self, seconds: float = 0.0) -> None:
        """For those that have ended, until there is one."""
        while self._news.poll(seconds):
            pid, code = self._news.recv()
            self.codes[pid] = code
            seconds = 0.0


def _serve(orders: Connection, news: Connection) -> tuple[str, dict[str, str], str] | None:
    """In the process that forks: until it is told no more. In one that was forked: what it has to do."""
    running: dict[int, int] = {}  # a descriptor that tells when it has ended -> pid
    while True:
        for ready in wait([orders, *running]):
            if ready is orders:
                try:
                    order = orders.recv()
                except EOFError:
                    return None
                assert len(list(Path("/proc/self/task").iterdir())) == 1, (
                    "a thread's locks would be held for ever in what is forked"
                )
                if (pid := os.fork()) == 0:
                    for end in (orders, news):
                        end.close()
                    for descriptor in running:
                        os.close(descriptor)
                    return order
                running[os.pidfd_open(pid)] = pid
                news.send((pid, None))
            else:
                os.close(ready)
                pid = running.pop(ready)
                news.send((pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))


def main(orders: int, news: int) -> int:
    import pytest  # noqa: F401 - the modules of tests do
    import torch.distributed.distributed_c10d  # noqa: F401

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    gc.collect()
    gc.freeze()  # or a rank's end copies every page of what torch has made
    order = _serve(Connection(orders, writable=False), Connection(news, readable=False))
    if order is None:
        return 0
    program, env, log = order
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    # What is mapped from now on lies elsewhere than in the other ranks.
    shift = mmap.mmap(-1, mmap.PAGESIZE * random.SystemRandom().randint(1, _SHIFT), prot=mmap.PROT_READ)
    sys.argv = [program]
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    code = __import__(program).main()
    shift.close()
    return code


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
