# SPDX-License-Identifier: BSD-3-Clause
"""A server process that has imported torch and forks on request, in milliseconds instead of two seconds of a core.

    caller                          server: exec'ed, one thread           child
    ForkServer(env, preload)  ----> imports torch and `preload`
    start("module:function")  ----> checks its threads, forks  --------> function(*arguments)
      receives the pid        <---- pid                                  ends as any program does
    poll(), wait()            <---- exit code, once the child is reaped

Children share what the server has imported. The server makes no process group, loads neither altorch's extension nor
an MPI nor CUDA, and has one thread, because a lock that another thread holds stays locked in a child. Each child has
its own session, environment and address layout. It dies with the server, and the server dies with the thread that
started it. Several threads may call start() at the same time.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import mmap
import os
import pickle
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

# A child may differ from the server in these variables only: torch and the interpreter read the
# others at their start.
_READ_LATE = re.compile(
    r"(ALTORCH|PYTEST)_\w+|MASTER_(ADDR|PORT)|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|TMPDIR|TORCH_FR_DUMP_ON_TIMEOUT"
)
_MAX_SHIFT = 1 << 16  # pages
_MAX_REQUEST = 1 << 20  # bytes

Request = tuple[str, dict[str, str], str | None, tuple[Any, ...]]  # program, environment, log, arguments


def die_with_parent() -> None:
    """The kernel kills this process when the thread that started it ends."""
    with suppress(OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class ForkedProcess:
    """A child of the fork server, with the interface of subprocess.Popen."""

    def __init__(self, pid: int, status: Connection) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        if self.returncode is None and self._status.poll():
            self._receive_status()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._status.poll(timeout):
                assert timeout is not None
                raise subprocess.TimeoutExpired(f"forked process {self.pid}", timeout)
            self._receive_status()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _receive_status(self) -> None:
        try:
            self.returncode = self._status.recv()
        except EOFError:  # the server has died, and the kernel has killed its children
            self.returncode = -signal.SIGKILL
        self._status.close()


class ForkServer:
    """`env`: what the server imports torch with. `preload`: names of further modules that it imports."""

    def __init__(self, env: Mapping[str, str], preload: Iterable[str] = ()) -> None:
        self.env = dict(env)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A request is one message. The kernel doubles this size, and refuses a message that does
        # not fit.
        self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_REQUEST // 2)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=self.env,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.pid = self._process.pid
        # Modules have the same names in the server as here.
        self._requests.send(pickle.dumps((sys.path, list(preload))))

    def can_start(self, env: Mapping[str, str]) -> bool:
        """Whether the server runs and a child with `env` behaves as a fresh interpreter would."""
        differ = (name for name in self.env.keys() | env.keys() if self.env.get(name) != env.get(name))
        return self._process.poll() is None and all(map(_READ_LATE.fullmatch, differ))

    def start(
        self, program: str, env: Mapping[str, str] | None = None, log: Path | None = None, *arguments: Any
    ) -> ForkedProcess:
        """Run `program` ("module:function") in a child, whose exit code is what the function returns.

        `env`: the child's environment, by default the server's. Output goes to the end of `log`, by default to the
        server's. Raises OSError when the server has died or the request is too large for its socket.
        """
        own_env, own_log = dict(self.env if env is None else env), None if log is None else str(log)
        request: Request = (program, own_env, own_log, arguments)
        status, theirs = Pipe(duplex=False)
        try:
            with theirs:
                socket.send_fds(self._requests, [pickle.dumps(request)], [theirs.fileno()])
            return ForkedProcess(status.recv(), status)
        except EOFError:
            status.close()
            raise ConnectionResetError("the fork server has died") from None
        except OSError:
            status.close()
            raise

    def close(self) -> None:
        """Kill the server and its children."""
        self._process.kill()
        self._process.wait()
        self._requests.close()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(requests: socket.socket) -> Request | None:
    """In the server: fork and reap until the caller closes its end, then return None. In a child: its request."""
    running: dict[int, tuple[int, Connection]] = {}  # pidfd -> pid, where its exit code goes
    while True:
        for ready in wait([requests, *running]):
            if ready is requests:
                message, descriptors, _, _ = socket.recv_fds(
                    requests, _MAX_REQUEST, 1, socket.MSG_CMSG_CLOEXEC
                )
                if not message:
                    return None
                status = Connection(descriptors[0], readable=False)
                if (threads := len(list(Path("/proc/self/task").iterdir()))) != 1:
                    raise RuntimeError(f"the fork server has {threads} threads: what started them?")
                if (pid := os.fork()) == 0:
                    requests.close()
                    status.close()
                    for pidfd, (_, other) in running.items():
                        os.close(pidfd)
                        other.close()
                    return pickle.loads(message)  # type: ignore[no-any-return]
                running[os.pidfd_open(pid)] = (pid, status)
                _send(status, pid)
            else:
                pid, status = running.pop(ready)  # type: ignore[arg-type]
                os.close(ready)  # type: ignore[arg-type]
                _send(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                status.close()


def _send(status: Connection, value: int) -> None:
    with suppress(BrokenPipeError):  # the caller has dropped the process
        status.send(value)


def _run(
    server: int, program: str, env: dict[str, str], log: str | None, arguments: tuple[Any, ...]
) -> int | None:
    die_with_parent()
    if os.getppid() != server:  # it died before the line above
        return 1
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    if log is not None:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for standard in (1, 2):
            os.dup2(output, standard)
        os.close(output)
    # Mappings from here on lie at other addresses than in other children.
    shift = mmap.mmap(-1, mmap.PAGESIZE * random.SystemRandom().randint(1, _MAX_SHIFT), prot=mmap.PROT_READ)
    module, _, function = program.partition(":")
    sys.argv = [module]
    code: int | None = getattr(importlib.import_module(module), function)(*arguments)
    shift.close()
    return code


def main(descriptor: int) -> int | None:
    die_with_parent()
    requests = socket.socket(fileno=descriptor)
    sys.path[:], preload = pickle.loads(requests.recv(_MAX_REQUEST))
    for module in ("torch.distributed.distributed_c10d", *preload):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or the end of each child's interpreter copies every page of what the server has made
    server = os.getpid()
    request = _serve(requests)
    return 0 if request is None else _run(server, *request)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
