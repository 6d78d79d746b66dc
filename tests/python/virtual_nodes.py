# SPDX-License-Identifier: BSD-3-Clause
"""Nodes on one machine: network, process, IPC and mount namespaces of their own, joined by a virtual switch.

    node 1: namespace alPIDa          switch: namespace alPIDs           node 2: namespace alPIDb
    vPIDa, 10.77.0.1/24      <------> pPIDa   bridge br0   pPIDb <------> vPIDb, 10.77.0.2/24

Each node also has a bridge-like interface with the same address on all, as docker0 is on real clusters: an MPI that
tries it talks to itself.
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
    switch: str  # the switch's namespace
    port: str  # the switch's end of the cable

    def cut_off(self) -> None:
        """From now on neither this node nor another hears anything of the other, and no rank says goodbye."""
        _ip("-n", self.switch, "link", "set", self.port, "down")

    def mend(self) -> None:
        _ip("-n", self.switch, "link", "set", self.port, "up")

    def limit(self, rate: str) -> None:
        """What this node sends and receives, to a rate as tc writes it: "100mbit"."""
        for namespace, interface in ((self.name, self.cable), (self.switch, self.port)):
            limit = ("root", "tbf", "rate", rate, "burst", "128k", "latency", "50ms")
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", interface, *limit)


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
def virtual_nodes(count: int = 2, relay: tuple[str, ...] = ()) -> Iterator[tuple[Node, ...]]:
    """Connected nodes, 10.77.0.1, 10.77.0.2 and so on. Raises CalledProcessError where namespaces are not allowed.

    `relay`: a command that carries the frames in the bridge's place. The names of its interfaces are added to it.
    """
    ends = "abcdefgh"[:count]
    switch = f"al{os.getpid()}s"
    nodes = [
        Node(
            f"10.77.0.{index}",
            _prefix(f"al{os.getpid()}{end}", index),
            f"al{os.getpid()}{end}",
            f"v{os.getpid()}{end}",
            switch,
            f"p{os.getpid()}{end}",
        )
        for index, end in enumerate(ends, start=1)
    ]
    process = None
    try:
        _ip("netns", "add", switch)
        if not relay:
            _ip("-n", switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", switch, "link", "set", "br0", "up")
        for node in nodes:
            _connect(node, to_bridge=not relay)
        _wait_for_carrier(nodes)
        if relay:
            ports = [node.port for node in nodes]
            process = subprocess.Popen(["ip", "netns", "exec", switch, *relay, *ports])
        yield tuple(nodes)
    finally:
        if process is not None:
            process.kill()
            process.wait()
        for name in (*(node.name for node in nodes), switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _connect(node: Node, *, to_bridge: bool) -> None:
    _ip("netns", "add", node.name)
    _ip("-n", node.name, "link", "set", "lo", "up")
    other_end = ("peer", "name", node.port, "netns", node.switch)
    _ip("link", "add", node.cable, "netns", node.name, "type", "veth", *other_end)
    if to_bridge:
        _ip("-n", node.switch, "link", "set", node.port, "master", "br0")
    _ip("-n", node.switch, "link", "set", node.port, "up")
    _ip("-n", node.name, "addr", "add", f"{node.address}/24", "dev", node.cable)
    _ip("-n", node.name, "link", "set", node.cable, "up")
    _ip("-n", node.name, "link", "add", "bridge0", "type", "veth", "peer", "name", "bridge1")
    _ip("-n", node.name, "addr", "add", "172.17.0.1/16", "dev", "bridge0")
    _ip("-n", node.name, "link", "set", "bridge1", "up")
    _ip("-n", node.name, "link", "set", "bridge0", "up")


def _prefix(name: str, index: int) -> tuple[str, ...]:
    script = f'mount -t tmpfs -o size={SHARED_MEMORY} tmpfs /dev/shm && hostname node{index} && exec "$@"'
    namespaces = ("--pid", "--ipc", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc")
    return ("ip", "netns", "exec", name, "unshare", *namespaces, "sh", "-c", script, "sh")


def _wait_for_carrier(nodes: list[Node]) -> None:
    """No process can use an interface for about a second after it was made."""
    deadline = time.monotonic() + 10
    for node in nodes:
        for namespace, interface in ((node.name, node.cable), (node.switch, node.port)):
            while time.monotonic() < deadline:
                if "state UP" in _ip("-n", namespace, "-o", "link", "show", interface):
                    break
                time.sleep(0.05)


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def launcher_script(directory: Path, commands: list[list[str]]) -> list[str]:
    """One command that runs several at once on a node and fails when one of them does."""
    script = directory / f"node-{len(list(directory.glob('node-*')))}.sh"
    lines = [" ".join(f"'{word}'" for word in command) + ' & ids="$ids $!"' for command in commands]
    lines.append('code=0; for id in $ids; do wait "$id" || code=$?; done; exit $code')
    script.write_text("\n".join(lines))
    return ["sh", str(script)]
