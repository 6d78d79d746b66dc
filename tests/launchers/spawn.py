# SPDX-License-Identifier: BSD-3-Clause
"""`torch.multiprocessing.spawn` of two ranks, with a store in a file: no variable says anything."""

from __future__ import annotations

import sys

import torch.distributed as dist
import torch.multiprocessing as mp

from tests.launchers import checks


def rank_main(rank: int, ranks: int, store: str) -> None:
    dist.init_process_group("al", init_method=f"file://{store}", rank=rank, world_size=ranks)
    checks.report(checks.check())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank_main, args=(2, sys.argv[1]), nprocs=2)
