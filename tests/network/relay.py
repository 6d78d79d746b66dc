# SPDX-License-Identifier: BSD-3-Clause
"""A switch that delays and drops, where the kernel has no netem: `relay.py --delay MS --drop SHARE INTERFACE...`.

Frames pass with the header of virtio, so that those that the senders left whole (GSO, up to 64 KiB) pass whole.
"""

from __future__ import annotations

import argparse
import heapq
import random
import select
import socket
import time
from contextlib import suppress

ETH_P_ALL, SOL_PACKET = 3, 263
PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 15, 23
HEADER = 10  # struct virtio_net_hdr
BROADCAST = 1  # of the first byte of an address


def port(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
    opened.bind((interface, 0))
    opened.setblocking(False)
    return opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0, help="of each frame [ms]")
    parser.add_argument("--drop", type=float, default=0, help="share of the frames that are dropped")
    parser.add_argument("interfaces", nargs="+")
    options = parser.parse_args()
    ports = [port(interface) for interface in options.interfaces]
    learned: dict[bytes, socket.socket] = {}
    waiting: list[tuple[float, int, socket.socket, bytes]] = []
    number = 0
    while True:
        due = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select(ports, [], [], due)[0]:
            frame = source.recv(1 << 17)
            target, sender = frame[HEADER : HEADER + 6], frame[HEADER + 6 : HEADER + 12]
            learned[sender] = source
            if random.random() < options.drop:
                continue
            known = None if target[0] & BROADCAST else learned.get(target)
            for end in [known] if known else ports:
                if end is not source:
                    number += 1
                    heapq.heappush(waiting, (time.monotonic() + options.delay / 1e3, number, end, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(waiting)
            with suppress(OSError):  # its queue is full or its link is down: dropped, as a switch does
                end.send(frame)


if __name__ == "__main__":
    main()
