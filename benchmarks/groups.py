"""Process groups of several backends, alive in the same processes, so that they can be measured in turns."""

from __future__ import annotations

import importlib
import os

import torch
import torch.distributed as dist

# What must be imported before torch knows the backend's name.
FAKE = "torch.testing._internal.distributed.fake_pg"
PROVIDERS = {"al": "altorch", "fake": FAKE, "recorded": FAKE}


def provide(backend: str) -> None:
    if backend in PROVIDERS:
        importlib.import_module(PROVIDERS[backend])


def recorded(group: dist.ProcessGroup) -> object:
    """Attaches torch's flight recorder, as torch does to every backend but its own; it lives as long as the result."""
    hook = getattr(torch._C._distributed_c10d, "FlightRecorderHook", None)
    if hook is None:
        raise ImportError(
            f"torch {torch.__version__} attaches no flight recorder to backends that are not its own"
        )
    return hook.attach(group, dist.get_process_group_ranks(group))


class Groups:
    """The control group is Gloo's and carries everything that is not measured."""

    def __init__(self, backends: list[str]) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.measured: dict[str, dist.ProcessGroup] = {}
        self.skipped: dict[str, str] = {}
        for backend in backends:
            try:
                provide(backend)
                group = dist.new_group(backend="fake" if backend == "recorded" else backend)
                if backend == "recorded":
                    self.recorder = recorded(group)
            except ImportError as error:
                self.skipped[backend] = str(error)
                continue
            self.measured[backend] = group

    def close(self) -> None:
        dist.barrier()
        dist.destroy_process_group()


def rank_from_environment() -> int:
    return int(os.environ["RANK"])
