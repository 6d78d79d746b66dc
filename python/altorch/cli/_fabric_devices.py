# SPDX-License-Identifier: BSD-3-Clause
"""The network ports of this machine, as sysfs shows them. `root` is the file system to read."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

INFINIBAND, ROCE, EFA, SLINGSHOT, ETHERNET = "InfiniBand", "RoCE", "EFA", "Slingshot", "Ethernet"
AMAZON = "0x1d0f"  # PCI vendor of EFA devices
_ETHERNET_TYPE = "1"  # ARPHRD_ETHER; IP over InfiniBand has another
_SIOCGIFADDR = 0x8915
_PCI_FUNCTION = re.compile(r"([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-9a-f]")


@dataclass(frozen=True)
class Gid:
    index: int
    kind: str  # "RoCE v2", "IB/RoCE v1"; empty where the kernel does not say
    address: str

    @property
    def routable(self) -> bool:
        return self.kind == "RoCE v2" and not ipaddress.IPv6Address(self.address).is_link_local

    @property
    def is_ipv4(self) -> bool:
        return ipaddress.IPv6Address(self.address).ipv4_mapped is not None


class Port(NamedTuple):
    device: str
    number: int  # 0 where a device has no numbered ports
    fabric: str
    state: str  # "active", or what sysfs says instead; empty where it does not say
    gbps: float  # 0 where it is not known
    card: str  # PCI address without the function: the ports of a dual-port card share it
    numa: int = -1
    gids: tuple[Gid, ...] = ()
    interfaces: tuple[str, ...] = ()  # of the kernel, over the same port

    @property
    def name(self) -> str:
        """As UCX_NET_DEVICES takes it."""
        return f"{self.device}:{self.number}" if self.number else self.device

    @property
    def active(self) -> bool:
        return self.state == "active"

    @property
    def rate(self) -> str:
        return f"{self.gbps:g} Gb/s" if self.gbps else ""

    @property
    def described(self) -> str:
        return f"{self.name} ({', '.join(word for word in (self.fabric, self.rate) if word)})"


def ports(root: Path = Path("/")) -> list[Port]:
    """Of all fabrics, the fast ones first; Ethernet interfaces that another port has are not repeated."""
    fast = [*_rdma_ports(root), *_slingshot_ports(root)]
    shared = {name for port in fast for name in port.interfaces}
    return fast + [port for port in _ethernet_ports(root) if port.device not in shared]


def interface_towards(host: str) -> str:
    """The interface of the route to a host; empty where that is unknown or the loopback."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((host, 9))  # sends nothing
            own = socket.inet_aton(asked.getsockname()[0])
            for _, name in socket.if_nameindex():
                with suppress(OSError):  # an interface without an address
                    request = struct.pack("256s", name.encode())
                    if fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24] == own:
                        return "" if name == "lo" else name
    except (OSError, UnicodeError):
        pass
    return ""


def default_interface(root: Path = Path("/")) -> str:
    """The interface of the default route; empty where there is none."""
    for line in _text(root / "proc/net/route").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000":
            return fields[0]
    return ""


def _rdma_ports(root: Path) -> Iterator[Port]:
    for device in _entries(root / "sys/class/infiniband"):
        amazon = _text(device / "device/vendor").lower() == AMAZON
        for folder in sorted(_entries(device / "ports"), key=lambda path: path.name.zfill(3)):
            if not folder.name.isdecimal():
                continue
            layer = _text(folder / "link_layer")
            fabric = EFA if amazon else ROCE if layer == ETHERNET else INFINIBAND
            yield Port(
                device.name,
                int(folder.name),
                fabric,
                _text(folder / "state").partition(":")[2].strip().lower(),
                _number(_text(folder / "rate").partition(" ")[0]),
                _card(device),
                int(_number(_text(device / "device/numa_node") or "-1")),
                tuple(_gids(folder)) if fabric == ROCE else (),
                tuple(sorted({_text(path) for path in _entries(folder / "gid_attrs/ndevs")} - {""})),
            )


def _gids(port: Path) -> Iterator[Gid]:
    for path in sorted(_entries(port / "gids"), key=lambda path: path.name.zfill(4)):
        address = _text(path)
        if path.name.isdecimal() and address.strip("0:"):
            try:
                known = ipaddress.IPv6Address(address)
            except ValueError:
                continue
            yield Gid(int(path.name), _text(port / "gid_attrs/types" / path.name), str(known))


def _slingshot_ports(root: Path) -> Iterator[Port]:
    for device in _entries(root / "sys/class/cxi"):
        interfaces = _entries(device / "device/net")
        states = {_text(path / "operstate") for path in interfaces}
        state = "active" if "up" in states else states.pop() if states else ""
        rate = max((_number(_text(path / "speed")) / 1000 for path in interfaces), default=0.0)
        numa = int(_number(_text(device / "device/numa_node") or "-1"))
        names = tuple(path.name for path in interfaces)
        yield Port(device.name, 0, SLINGSHOT, state, max(rate, 0.0), _card(device), numa, (), names)


def _ethernet_ports(root: Path) -> Iterator[Port]:
    for device in _entries(root / "sys/class/net"):
        is_hardware = (device / "device").exists()
        if is_hardware and _text(device / "type") in (_ETHERNET_TYPE, ""):
            state = _text(device / "operstate")
            rate = max(_number(_text(device / "speed")) / 1000, 0.0)
            yield Port(device.name, 0, ETHERNET, "active" if state == "up" else state, rate, _card(device))


def _card(device: Path) -> str:
    try:
        match = _PCI_FUNCTION.fullmatch((device / "device").resolve(strict=True).name)
    except OSError:
        match = None
    return match[1] if match else device.name


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    """What a file says; empty where it is not there or, as many of sysfs, cannot be read in this state."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
