# SPDX-License-Identifier: BSD-3-Clause
"""What a token switch gives a rank, computed from the inputs of all ranks with loops and float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass
class Received:
    """rows: (source rank, token) of each row of the output, or None for a row of zeros."""

    rows: list[tuple[int, int] | None]
    weights: np.ndarray
    indices: np.ndarray | None
    counts: list[int]


def received(indices: Sequence[np.ndarray], weights: Sequence[np.ndarray], rank: int, experts: int,
             layout: str, capacity: int = 0) -> Received:  # fmt: skip
    """`indices`, `weights`: of all ranks."""
    local = experts // len(indices)
    mine = range(rank * local, (rank + 1) * local)
    entries = [
        (expert, source, token, k)
        for expert in mine
        for source, table in enumerate(indices)
        for token, row in enumerate(table)
        for k, index in enumerate(row)
        if index == expert
    ]
    counts = [sum(entry[0] == expert for entry in entries) for expert in mine]
    if layout == "flat":
        rows: list[tuple[int, int] | None] = sorted({entry[1:3] for entry in entries})
        here = [[index in mine for index in indices[source][token]] for source, token in rows]
        kept = [np.where(w, weights[s][t], 0) for w, (s, t) in zip(here, rows, strict=True)]
        named = [np.where(w, indices[s][t], -1) for w, (s, t) in zip(here, rows, strict=True)]
        columns = indices[0].shape[1]
        shape = (len(rows), columns)
        return Received(rows, np.reshape(kept, shape), np.reshape(named, shape).astype(np.int64), counts)
    if capacity:
        rows, kept = [], []
        for expert in mine:
            own = [entry for entry in entries if entry[0] == expert][:capacity]
            rows += [entry[1:3] for entry in own] + [None] * (capacity - len(own))
            kept += [weights[s][t][k] for _, s, t, k in own] + [0.0] * (capacity - len(own))
        return Received(rows, np.array(kept), None, [min(count, capacity) for count in counts])
    kept = [weights[source][token][k] for _, source, token, k in entries]
    return Received([entry[1:3] for entry in entries], np.array(kept), None, counts)


def combined(
    of_ranks: Sequence[Received], outputs: Sequence[np.ndarray], rank: int, tokens: int
) -> np.ndarray:
    """The sums for the tokens of `rank`; `outputs`: what the experts of all ranks have made of their rows."""
    total = np.zeros((tokens, outputs[0].shape[1]))
    for made, output in zip(of_ranks, outputs, strict=True):
        for row, source in enumerate(made.rows):
            if source is not None and source[0] == rank:
                total[source[1]] += output[row].astype(np.float64)
    return total
