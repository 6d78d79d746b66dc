# SPDX-License-Identifier: BSD-3-Clause
"""Two ranks that exchange by a window, or by messages: what the benchmarks of windows time."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist

import altorch


class Way(Protocol):
    def send(self, data: torch.Tensor) -> None: ...
    def receive(self, data: torch.Tensor) -> None: ...
    def stream(self, data: torch.Tensor, times: int) -> None: ...


class OverWindow:
    def __init__(self, window: altorch.Window) -> None:
        self.window = window
        self.peer = 1 - dist.get_rank()

    def send(self, data: torch.Tensor) -> None:
        self.window.put_signal(data, self.peer)

    def receive(self, _: torch.Tensor) -> None:
        self.window.wait_signal(self.peer)

    def stream(self, data: torch.Tensor, times: int) -> None:
        if dist.get_rank() == 0:
            for _ in range(times - 1):
                self.window.put(data, self.peer)
            self.send(data)
            self.window.wait_signal(self.peer, slot=1)
        else:
            self.window.wait_signal(self.peer)
            self.window.signal(self.peer, slot=1)


class OverMessages:
    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.peer = 1 - dist.get_rank()

    def send(self, data: torch.Tensor) -> None:
        dist.send(data, self.peer, self.group)

    def receive(self, data: torch.Tensor) -> None:
        dist.recv(data, self.peer, self.group)

    def stream(self, data: torch.Tensor, times: int) -> None:
        sends = dist.get_rank() == 0
        for _ in range(times):
            self.send(data) if sends else self.receive(data)
        self.receive(data[:1]) if sends else self.send(data[:1])


def ping_pong(way: Way, data: torch.Tensor, times: int) -> None:
    for _ in range(times):
        if dist.get_rank() == 0:
            way.send(data)
            way.receive(data)
        else:
            way.receive(data)
            way.send(data)
