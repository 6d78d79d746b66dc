# SPDX-License-Identifier: BSD-3-Clause
"""refuse_affinity.py PROGRAM ARGUMENT...: runs a program whose sched_getaffinity is refused, as in some sandboxes."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

CALLS = {"x86_64": 204, "aarch64": 123}  # sched_getaffinity
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
REFUSED, ALLOWED = 0x0005_0000 | 1, 0x7FFF_0000  # EPERM


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("rules", ctypes.c_void_p))


def refuse(call: int) -> None:
    """Installs a seccomp filter (load, jump if equal, return, return) that fails `call` with EPERM."""
    rules = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, REFUSED), (0x06, 0, 0, ALLOWED)]
    memory = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = Program(len(rules), ctypes.addressof(memory))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0),
    ):
        if prctl(*arguments) != 0:
            sys.exit(f"a filter of system calls is refused: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    refuse(CALLS[platform.machine()])
    os.execvp(sys.argv[1], sys.argv[1:])
