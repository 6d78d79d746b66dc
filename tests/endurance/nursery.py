"""Forks processes out of one that has imported torch and has no other thread: a rank is there in milliseconds."""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
from collections.abc import Callable

from tests.drill.scene import die_with_parent

ENDED, STARTED = "ended", "started"


class Nursery:
    """Of a process that is about to start threads: make it first. `run(number)`: what a forked process does."""

    def __init__(self, run: Callable[[int], int]) -> None:
        self._own, theirs = socket.socketpair()
        gc.collect()
        gc.freeze()  # or a process's end copies every page of what torch has made
        if os.fork() == 0:
            self._own.close()
            die_with_parent()
            os._exit(_serve(theirs, run))
        theirs.close()
        self._unread = b""
        self.pids: dict[int, int] = {}
        self.statuses: dict[int, int] = {}  # of those that have ended

    def start(self, number: int) -> None:
        self._own.sendall(f"{number}\n".encode())
        while number not in self.pids:
            self._read()

    def look(self) -> None:
        """For those that have ended meanwhile."""
        while select.select([self._own], [], [], 0)[0]:
            self._read()

    def _read(self) -> None:
        self._unread += (news := self._own.recv(4096))
        if not news:
            raise RuntimeError("the process that forks the others has ended")
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            kind, number, value = line.decode().split()
            (self.pids if kind == STARTED else self.statuses)[int(number)] = int(value)

    def close(self) -> None:
        self._own.shutdown(socket.SHUT_WR)


def _serve(connection: socket.socket, run: Callable[[int], int]) -> int:
    file, numbers = connection.makefile("rw"), {}

    def tell(kind: str, number: int, value: int) -> None:
        file.write(f"{kind} {number} {value}\n")
        file.flush()

    while True:
        if select.select([connection], [], [], 0.01)[0]:
            line = file.readline()
            if not line:
                return 0
            if (pid := os.fork()) == 0:
                connection.close()
                die_with_parent()
                code = run(int(line))
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            numbers[pid] = int(line)
            tell(STARTED, int(line), pid)
        while numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            tell(ENDED, numbers.pop(pid), status)
