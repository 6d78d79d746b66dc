# SPDX-License-Identifier: BSD-3-Clause
"""A token switch for mixtures of experts: dispatches tokens to experts of other ranks, and combines the results.

    switch = altorch.TokenSwitch(num_experts=64, max_dispatch_tokens_per_rank=4096)
    routing = switch.create_routing(topk_idx, layout="expert_major")
    rows, weights, _ = switch.dispatch(routing, tokens, topk_weights)
    result = switch.combine(routing, experts(rows) * weights[:, None])

With 8 of 64 experts a token, nearly every token goes to nearly every rank. So a dispatch is an all_gather and a local
scatter, and a combine is a local sum and a reduce_scatter: no rank tells its peers how much it sends.

_switch      TokenSwitch: what callers see, and its collectives
_autograd    the gradients of dispatch and combine
_arguments   the checks of arguments, and their errors
_exchange    the all_gather of all indices, and its header
_routing     Routing and its handle
_native      dispatch, combine and their local steps for CUDA tensors, by kernels of the engine
_rows        dispatch and combine for other tensors
_host        the local steps for CPU tensors
_reference   the same in torch's operators, for tests and for CUDA tensors where no kernel can run
"""

from altorch.token_switch._routing import Routing
from altorch.token_switch._switch import TokenSwitch

__all__ = ["Routing", "TokenSwitch"]
