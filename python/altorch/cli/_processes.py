# SPDX-License-Identifier: BSD-3-Clause
"""Finds the processes of this machine that can be asked what they are at, and asks them (csrc/trace/)."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from altorch.cli._waits import Process

PATIENCE = 3.0  # seconds, for one process
LONGEST = 64 << 20  # bytes of an answer


def sockets() -> list[str]:
    """Names of the listening sockets, of all users, in this network namespace."""
    table = Path("/proc/net/unix").read_text(errors="replace")
    return sorted(set(re.findall(r" @(altorch-trace-\d+-[0-9a-f]+)$", table, re.MULTILINE)))


def state_of(pid: int) -> str:
    """The letter that /proc has for it; empty where there is no such process."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0]
    return ""


def thread_text(pid: int, thread: int) -> str:
    """`4711 (python, sleeping)`: the thread that made a call."""
    words = {"R": "running", "S": "sleeping", "D": "in the system", "T": "stopped", "t": "held by a debugger"}
    with suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/task/{thread}/stat").read_text(errors="replace")
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text.rsplit(")", 1)[1].split()
        return f"{thread} ({name}, {words.get(rest[0], rest[0])})"
    return str(thread)


def ask(name: str, question: str) -> tuple[int, int, dict[str, Any] | None] | None:
    """Process, its user and its answer (None: none in time); None if no process listens any more."""
    end = time.monotonic() + PATIENCE
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE)
        try:
            client.connect("\0" + name)
            pid, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        except BlockingIOError:  # the process accepts no connections from its queue
            return int(name.split("-")[2]), os.geteuid(), None
        except OSError:
            return None
        if user != os.geteuid() and os.geteuid() != 0:
            return pid, user, None
        answer = b""
        try:
            client.sendall(question.encode() + b"\n")
            while (left := end - time.monotonic()) > 0 and len(answer) < LONGEST:
                client.settimeout(left)
                if not (piece := client.recv(1 << 16)):
                    found = _plain(json.loads(answer.decode(errors="replace")))
                    return (
                        pid,
                        user,
                        found if isinstance(found, dict) and {"groups", "dump"} & {*found} else None,
                    )
                answer += piece
        except (OSError, ValueError):
            pass
        return pid, user, None


def _plain(found: Any) -> Any:
    """Removes control characters, which a terminal would obey: root asks the processes of all users."""
    if isinstance(found, dict):
        return {_plain(name): _plain(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_plain(value) for value in found]
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", found) if isinstance(found, str) else found


def ask_all(question: str) -> tuple[list[Process], list[int]]:
    """Those of this user (all, for root) and their answers; and the processes of others."""
    names = sockets()
    with ThreadPoolExecutor(max_workers=32) as pool:
        answers = [found for found in pool.map(lambda name: ask(name, question), names) if found]
    own, others = [], []
    for pid, user, answer in answers:
        if user == os.geteuid() or os.geteuid() == 0:
            own.append(Process(pid, answer, state_of(pid)))
        else:
            others.append(pid)
    return own, others
