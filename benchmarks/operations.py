"""altorch.bench's cases under the names of torch's functions, which the rows of CPU tensors bear."""

from __future__ import annotations

from altorch.bench import cases
from altorch.bench.cases import CASES

CASE_OF = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


def case_of(operation: str) -> cases.Case:
    return CASES[CASE_OF.get(operation, operation)]
