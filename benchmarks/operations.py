"""altorch.bench's cases under the names of torch's functions, which the rows of CPU tensors bear."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist

from altorch.bench import cases
from altorch.bench.cases import CASES, Buffers

CASE_OF = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


def case_of(operation: str) -> cases.Case:
    return CASES[CASE_OF.get(operation, operation)]


def synchronous(operation: str, buffers: Buffers, group: dist.ProcessGroup) -> Callable[[int], None]:
    call = case_of(operation).make(buffers, group)
    return lambda turn: call(turn, False)
