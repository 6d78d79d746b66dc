# SPDX-License-Identifier: BSD-3-Clause
"""Two nodes on one machine: network, process, IPC and mount namespaces of their own, joined by a virtual cable.

Each also has a bridge-like interface with the same address on both, as docker0 is on real clusters: an MPI that tries
it talks to itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHARED_MEMORY = "64m"


@dataclass(frozen=True)
class Node:
    address: str
    prefix: tuple[str, ...]  # put before a command, it runs on this node
    name: str
    cable: str

    def cut_off(self) -> None:
        """From now on neither node hears anything of the other, and no rank says goodbye."""
        _ip("-n", self.name, "link", "set", self.cable, "down")

    def mend(self) -> None:
        _ip("-n", self.name, "link", "set", self.cable, "up")


def unsupported_reason() -> str:
    """Why there can be no virtual nodes here, or ""."""
    for tool in ("ip", "unshare"):
        if not shutil.which(tool):
            return f"virtual nodes need the command {tool} (packages iproute2, util-linux)"
    if os.geteuid() != 0:
        return "virtual nodes need root"
    with contextlib.suppress(subprocess.CalledProcessError), virtual_nodes():
        return ""
    return "this system does not allow network namespaces"


@contextlib.contextmanager
def virtual_nodes() -> Iterator[tuple[Node, Node]]:
    """Two connected nodes, 10.77.0.1 and 10.77.0.2. Raises CalledProcessError where namespaces are not allowed."""
    names = [f"al{os.getpid()}{end}" for end in "ab"]
    cables = [f"v{os.getpid()}{end}" for end in "ab"]
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip(
            "link",
            "add",
            cables[0],
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            cables[1],
            "netns",
            names[1],
        )
        for index, (name, cable) in enumerate(zip(names, cables, strict=True), start=1):
            _ip("-n", name, "addr", "add", f"10.77.0.{index}/24", "dev", cable)
            _ip("-n", name, "link", "set", cable, "up")
            _ip("-n", name, "link", "add", "bridge0", "type", "veth", "peer", "name", "bridge1")
            _ip("-n", name, "addr", "add", "172.17.0.1/16", "dev", "bridge0")
            _ip("-n", name, "link", "set", "bridge1", "up")
            _ip("-n", name, "link", "set", "bridge0", "up")
        _wait_for_carrier(names, cables)
        yield tuple(  # type: ignore[misc]
            Node(f"10.77.0.{index}", _prefix(name, index), name, cable)
            for index, (name, cable) in enumerate(zip(names, cables, strict=True), start=1)
        )
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _prefix(name: str, index: int) -> tuple[str, ...]:
    script = f'mount -t tmpfs -o size={SHARED_MEMORY} tmpfs /dev/shm && hostname node{index} && exec "$@"'
    namespaces = ("--pid", "--ipc", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc")
    return ("ip", "netns", "exec", name, "unshare", *namespaces, "sh", "-c", script, "sh")


def _wait_for_carrier(names: list[str], cables: list[str]) -> None:
    """No process can use an interface for about a second after it was made."""
    deadline = time.monotonic() + 10
    for name, cable in zip(names, cables, strict=True):
        while time.monotonic() < deadline:
            state = subprocess.run(
                ["ip", "-n", name, "-o", "link", "show", cable], capture_output=True, text=True, check=True
            ).stdout
            if "state UP" in state:
                break
            time.sleep(0.05)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True)


def launcher_script(directory: Path, commands: list[list[str]]) -> list[str]:
    """One command that runs several at once on a node and fails when one of them does."""
    script = directory / f"node-{len(list(directory.glob('node-*')))}.sh"
    lines = [" ".join(f"'{word}'" for word in command) + ' & ids="$ids $!"' for command in commands]
    lines.append('code=0; for id in $ids; do wait "$id" || code=$?; done; exit $code')
    script.write_text("\n".join(lines))
    return ["sh", str(script)]
