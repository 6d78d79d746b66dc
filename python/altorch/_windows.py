"""torch's half of a coalescing window in which a call failed."""

from __future__ import annotations


def forget(group_name: str) -> None:
    """Ends it: torch would put the group's next calls into the window's list, where they wait for ever unmade."""
    import torch.distributed.distributed_c10d as c10d

    state = c10d._world.pg_coalesce_state
    for group in [group for group in state if c10d._world.pg_names.get(group) == group_name]:
        del state[group]
