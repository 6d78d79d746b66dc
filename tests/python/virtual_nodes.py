"""Two nodes on one machine: network namespaces joined by a wire, each with its own /dev/shm and host name."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest


def _obstacle() -> str:
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare", "mount"):
        if not shutil.which(tool):
            return f"the command {tool} is not on this machine"
    probe = ["unshare", "--net", "--mount", "--uts", "--ipc", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "this container may not make namespaces"
    name = f"alp{os.getpid()}"
    try:
        done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
        return f"ip netns: {done.stderr.strip()}" if done.returncode else ""
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


_reason = _obstacle()
needs_virtual_nodes = pytest.mark.skipif(bool(_reason), reason=_reason or "possible here")

# A node of its own to everything that asks: another host name, /dev/shm and System V IPC.
_ENTER = 'hostname "$1" && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"'


@contextlib.contextmanager
def two_nodes() -> Iterator[tuple[str, list[list[str]]]]:
    """The address of node 0 and, for each node, the command prefix that starts a process there."""
    tag = secrets.token_hex(3)
    names = [f"al{tag}a", f"al{tag}b"]
    subnet = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", names[0], "link", "add", "veth", "type", "veth", "peer", "name", "veth", "netns", names[1])
        for index, name in enumerate(names):
            ip("-n", name, "addr", "add", f"{subnet}.{index + 1}/24", "dev", "veth")
            ip("-n", name, "link", "set", "veth", "up")
        prefixes = []
        for name in names:
            unshare = ["unshare", "--mount", "--uts", "--ipc", "sh", "-c", _ENTER, "sh", name]
            prefixes.append(["ip", "netns", "exec", name, *unshare])
        yield f"{subnet}.1", prefixes
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
