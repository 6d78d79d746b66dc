# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks of the default group: latency, bandwidth and message rate of CPU tensors.

One rank drives and holds the clock; the other is in serve(). The driver tells what follows in a header, so that it
alone chooses sizes and counts:

    driver   header(kind, size, count)   messages ...                acknowledgement ->
    server   header                      messages or their echoes    <- acknowledgement

Calls are those of torch.distributed from Python, whose cost is part of the figures.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from altorch.bench.figures import percentile
from altorch.bench.rows import Row

SMALL, LARGEST, FIRST = 8, 4 << 20, 64 << 10  # bytes: of a small message, of the largest, where sizes begin
IN_FLIGHT, SMALL_IN_FLIGHT = 4, 64
FEWEST_PINGS, MOST_PINGS = 20, 1000
MOST_MESSAGES = 100_000
_STOP, _ECHO, _STREAM = range(3)


def serve(peer: int) -> None:
    """Answers what `peer` drives, until it stops."""
    header = torch.empty(3, dtype=torch.int64)
    small = torch.empty(SMALL, dtype=torch.uint8)
    while True:
        dist.recv(header, peer)
        kind, size, count = header.tolist()
        if kind == _STOP:
            return
        if kind == _STREAM:
            _stream(functools.partial(dist.irecv, src=peer), size, count)
            dist.send(small, peer)
            continue
        for _ in range(count):
            dist.recv(small, peer)
            dist.send(small, peer)


def stop(peer: int) -> None:
    _tell(peer, _STOP)


def latency(peer: int, seconds: float) -> Row:
    """Half a round trip of a small message, over about `seconds` of them. The first pings connect the ranks."""
    _pings(peer, 5)
    one = sum(_pings(peer, 5)) / 5
    count = max(FEWEST_PINGS, min(MOST_PINGS, int(seconds / 2 / max(one, 1e-9))))
    halves = [half * 1e6 for half in _pings(peer, count)]
    return {
        "p10_latency_us": percentile(halves, 0.1),
        "latency_us": percentile(halves, 0.5),
        "worst_latency_us": max(halves),
    }


def message_rate(peer: int, seconds: float) -> float:
    """Small messages a second, many of them in flight."""
    first = 4 * SMALL_IN_FLIGHT
    took = _timed_stream(peer, SMALL, first)
    count = max(first, min(MOST_MESSAGES, int(first * seconds / took)))
    return count / _timed_stream(peer, SMALL, count)


def bandwidth(peer: int, seconds: float, align: Callable[[], None]) -> float:
    """Bytes a second of about `seconds` of large messages. `align` comes before the clock: it waits for other pairs."""
    size, took = FIRST, _best_of_two(peer, FIRST)
    while size < LARGEST and took < seconds / 8:
        size *= 4
        took = _best_of_two(peer, size)
    count = max(1, int(seconds / took))
    align()
    while (took := _timed_stream(peer, size, count)) < seconds / 2 and count < MOST_MESSAGES:
        count = min(
            MOST_MESSAGES, count * max(2, min(8, int(seconds / took)))
        )  # switches let a burst pass faster
    return size * count / took


def _best_of_two(peer: int, size: int) -> float:
    return min(_timed_stream(peer, size, 1) for _ in range(2))


def _tell(peer: int, kind: int, size: int = 0, count: int = 0) -> None:
    dist.send(torch.tensor([kind, size, count]), peer)


def _pings(peer: int, count: int) -> list[float]:
    """Seconds of half a round trip, of each."""
    small = torch.empty(SMALL, dtype=torch.uint8)
    _tell(peer, _ECHO, SMALL, count)
    halves = []
    for _ in range(count):
        began = time.perf_counter()
        dist.send(small, peer)
        dist.recv(small, peer)
        halves.append((time.perf_counter() - began) / 2)
    return halves


def _timed_stream(peer: int, size: int, count: int) -> float:
    small = torch.empty(SMALL, dtype=torch.uint8)
    _tell(peer, _STREAM, size, count)
    began = time.perf_counter()
    _stream(functools.partial(dist.isend, dst=peer), size, count)
    dist.recv(small, peer)
    return time.perf_counter() - began


def _stream(issue: Callable[[torch.Tensor], Any], size: int, count: int) -> None:
    buffers = _buffers(size, SMALL_IN_FLIGHT if size == SMALL else IN_FLIGHT)
    works: deque[Any] = deque()
    for turn in range(count):
        if len(works) == len(buffers):
            works.popleft().wait()
        works.append(issue(buffers[turn % len(buffers)]))
    for work in works:
        work.wait()


@functools.lru_cache(maxsize=8)
def _buffers(size: int, number: int) -> list[torch.Tensor]:
    return [torch.ones(size, dtype=torch.uint8) for _ in range(number)]
