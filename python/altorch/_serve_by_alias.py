# SPDX-License-Identifier: BSD-3-Clause
"""How altorch serves "gloo" and "nccl" under torch 2.11 to 2.13, which compare a backend's name with those of their own
backends before they look into the table of creators.

While such a torch makes a group, the name of a served backend reads "altorch:gloo": torch finds no backend of its own
and asks the table. Everything that stays of the group (get_backend(), records) has the name that the program gave.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

_making = threading.local()
_creators: dict[str, Any] = {}


def replace_creator(name: str, creator: Any) -> None:
    """From now on `creator` makes the groups of backend `name`. Thread rules: one thread."""
    from torch.distributed import distributed_c10d as c10d

    if not _creators:
        _wrap(c10d)
    _creators[name] = creator
    c10d.Backend._plugins[_alias(name).upper()] = c10d.Backend._BackendPlugin(creator, True)


def _alias(name: str) -> str:
    return f"altorch:{name}"


def _wrap(c10d: Any) -> None:
    backends = c10d.BackendConfig.get_device_backend_map
    make_group = c10d._new_process_group_helper

    @functools.wraps(backends)
    def get_device_backend_map(self: Any) -> dict[str, str]:
        found: dict[str, str] = backends(self)
        if not getattr(_making, "now", False):
            return found
        return {device: _alias(name) if name in _creators else name for device, name in found.items()}

    @functools.wraps(make_group)
    def new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        _making.now = True
        try:
            made = make_group(*args, **kwargs)
        finally:
            _making.now = False
        config = c10d._world.pg_backend_config.get(made[0], "")  # cpu:gloo,cuda:gloo
        if any(pair.rpartition(":")[2] in _creators for pair in config.split(",")):
            # torch took NCCL or Gloo for the group's default by their names.
            made[0]._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
        return made

    c10d.BackendConfig.get_device_backend_map = get_device_backend_map
    c10d._new_process_group_helper = new_process_group_helper
