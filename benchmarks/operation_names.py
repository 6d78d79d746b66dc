"""The operations by name, for programs that must not wait for torch to be imported."""

OPERATION_NAMES = (
    "all_reduce",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "broadcast",
    "send_recv",
    "barrier",
)
