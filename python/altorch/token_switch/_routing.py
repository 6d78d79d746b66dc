# SPDX-License-Identifier: BSD-3-Clause
"""Where the tokens of all ranks go on this rank."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

# csrc/device/kernels/token_jobs.cuh has the same numbers.
# int32 words before a rank's indices: problem, tokens, columns, and the arguments of its
# constructor: max_tokens, experts, capacity, max_received. The last word is unused.
HEADER = 8
PROBLEM, TOKENS, COLUMNS, MAX_TOKENS, EXPERTS, CAPACITY, MAX_RECEIVED = range(7)
# Words of a summary: the first entry that is out of range; the rows for this rank, before a
# capacity drops some; the rows of each local expert; the headers of all ranks.
FIRST_BAD, RECEIVED, COUNTS = 0, 1, 2
NONE_BAD = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """The arguments of a TokenSwitch and the rank: shared by a switch and its routings."""

    ranks: int
    rank: int
    experts: int
    max_tokens: int  # of a rank
    capacity: int  # rows of an expert, 0: any number
    max_received: int | None  # rows of dispatch's results, None: as many as come

    @property
    def local(self) -> int:
        return self.experts // self.ranks

    @property
    def first(self) -> int:
        return self.rank * self.local


@dataclass(frozen=True, slots=True)
class Handle:
    """What the local steps need of a routing.

    gathered  [ranks, HEADER + max_tokens * columns]: the header and the indices of each rank, -1 after its last token
    row_map   [ranks, max_tokens, columns]: the output row of each entry, or -1; undefined after a rank's last token.
              In the flat layout a token has one entry. _host and _native have objects instead
    summary   FIRST_BAD, RECEIVED, COUNTS, and the headers of all ranks
    steps     the module whose functions carry out the local steps
    """

    config: SwitchConfig
    gathered: Tensor
    row_map: Any
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
        entries = self.gathered[:, HEADER:].unflatten(1, (self.config.max_tokens, self.columns))
        return entries[:, : self.rows]


@dataclass(frozen=True, slots=True)
class Routing:
    """What create_routing returns, with the fields of torch's class."""

    handle: Handle
    topk_idx: Tensor
    layout: str
