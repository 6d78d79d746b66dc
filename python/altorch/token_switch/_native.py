# SPDX-License-Identifier: BSD-3-Clause
"""The local steps for CUDA tensors: kernels of the engine. TokenRouting's calls include the collective.

Neither the routing of a capture nor any other call waits for the GPU. Rows behind a rank's last token are neither read
nor written.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from torch import Tensor

from altorch._extension import extension
from altorch.token_switch._routing import HEADER, Handle, SwitchConfig

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from altorch._C import TokenRouting


@functools.cache
def unsupported_reason(device: int) -> str | None:
    """Why that GPU cannot run the kernels."""
    try:
        compiled = extension()
    except ImportError as error:
        return str(error)
    reason: str | None = compiled.token_kernels_unsupported_reason(device)
    return reason


def pack(indices: Tensor, header: list[int], sent: int, config: SwitchConfig, columns: int) -> Tensor:
    packed: Tensor = extension().pack_indices(
        indices, header, sent * columns, HEADER + config.max_tokens * columns
    )
    return packed


def map_rows(gathered: Tensor, config: SwitchConfig, columns: int, flat: bool) -> tuple[TokenRouting, Tensor]:
    routing: TokenRouting = extension().TokenRouting(
        gathered,
        config.ranks,
        config.max_tokens,
        columns,
        config.first,
        config.local,
        config.experts,
        config.capacity,
        flat,
    )
    return routing, routing.summary


def dispatch(
    handle: Handle,
    group: ProcessGroup,
    tokens: Tensor,
    weights: Tensor | None,
    scales: Tensor | None,
    out: tuple[Tensor | None, ...],
) -> None:
    received = -1 if handle.received is None else handle.received
    out_scales = None if scales is None else out[3]
    handle.row_map.dispatch(group, handle.rows, received, tokens, weights, scales, *out[:3], out_scales)


def combine(handle: Handle, group: ProcessGroup, expert_tokens: Tensor, out: Tensor | None) -> Tensor:
    total: Tensor = handle.row_map.combine(group, handle.rows, handle.count, expert_tokens, out)
    return total
