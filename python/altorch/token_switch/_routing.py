# SPDX-License-Identifier: BSD-3-Clause
"""Where the tokens of all ranks go on this rank."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

# csrc/device/kernels/token_jobs.cuh has the same numbers.
# int32 words before a rank's indices: problem, tokens, columns, and what all ranks gave the
# constructor: most tokens, experts, capacity, most rows received. The last word is unused.
HEADER = 8
PROBLEM, TOKENS, COLUMNS, MOST, EXPERTS, CAPACITY, MOST_RECEIVED = range(7)
# Words of a summary: the first entry that is out of range; the rows for this rank, before a
# capacity drops some; the rows of each local expert; the headers of all ranks.
FIRST_BAD, RECEIVED, COUNTS = 0, 1, 2
NONE_BAD = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Which experts are local, and how many of each a rank may keep. A switch has one, and so have its routings."""

    ranks: int
    rank: int
    experts: int
    most: int  # tokens of a rank
    capacity: int  # rows of an expert, 0: any number
    most_received: int | None  # rows of dispatch's results, None: as many as come

    @property
    def local(self) -> int:
        return self.experts // self.ranks

    @property
    def first(self) -> int:
        return self.rank * self.local


@dataclass(frozen=True, slots=True)
class Handle:
    """What the local steps need of a routing.

    gathered  [ranks, HEADER + most * columns]: of each rank its header and its indices, -1 behind the last token
    slots     [ranks, most, columns or 1]: the row of the output that an entry becomes, or -1. In the flat layout a
              token has one. Undefined behind a rank's last token. _host and _native have objects instead
    summary   see above
    steps     the module whose functions carry out the local steps
    """

    place: Place
    gathered: Tensor
    slots: Any
    summary: Tensor
    columns: int
    rows: int  # that each rank contributes to a collective
    received: int | None  # rows on this rank; None in a capture, where the host cannot know
    flat: bool
    count: int  # tokens of this rank
    device: torch.device
    steps: ModuleType

    @property
    def indices(self) -> Tensor:
        """[ranks, rows, columns]"""
        entries = self.gathered[:, HEADER:].unflatten(1, (self.place.most, self.columns))
        return entries[:, : self.rows]


@dataclass(frozen=True, slots=True)
class Routing:
    """What create_routing returns, with the fields of torch's class."""

    handle: Handle
    topk_idx: Tensor
    layout: str
