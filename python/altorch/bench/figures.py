# SPDX-License-Identifier: BSD-3-Clause
"""Figures of many batches on many ranks: what the machine can do, what it did; of the rank where it took longest."""

from __future__ import annotations

import statistics

import torch
import torch.distributed as dist

from altorch.bench.rows import Row


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(seconds: list[float], messages: int = 1) -> Row:
    scale = 1e6 / messages
    return {
        "p10_us": round(percentile(seconds, 0.1) * scale, 3),
        "median_us": round(percentile(seconds, 0.5) * scale, 3),
        "max_us": round(max(seconds) * scale, 3),
    }


def slowest_of_each(seconds: list[float]) -> list[float]:
    """Of each figure, that of the rank where it is largest."""
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return [float(value) for value in slowest]


def slowest(figure: float) -> float:
    return slowest_of_each([figure])[0]


def slowest_median(seconds: list[float]) -> float:
    """The median, of the rank where it is largest."""
    return slowest(statistics.median(seconds))
