# SPDX-License-Identifier: BSD-3-Clause
"""One process of a run with churn: is told who is in it, and trains until that changes or something fails."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tests.endurance.training import Training

NUMBERS = 1 << 16  # more processes than there will ever be
LOOK_EVERY = 5  # steps, for a change without a failure
PAUSE = 0.003  # seconds between two looks into the store


class Overtaken(Exception):
    """There is a newer plan."""


class Worker:
    """`number`: of this process, and no other's in the run."""

    def __init__(self, number: int, port: int, folder: Path) -> None:
        self.number = number
        self.store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        self.training = Training(folder / "checkpoint")
        self.epoch = 0
        dist.init_process_group(
            "al",
            store=dist.PrefixStore("job", self.store),
            rank=number,
            world_size=NUMBERS,
            timeout=timedelta(seconds=30),
            enable_reconfigure=True,
        )

    def newest(self) -> int:
        return int(self.store.get("epoch"))

    def next_plan(self) -> list[int] | None:
        """Who is in it from now on; None: it is over."""
        while self.newest() <= self.epoch:
            time.sleep(PAUSE)
        self.epoch = self.newest()
        plan: list[int] | None = json.loads(self.store.get(f"plan/{self.epoch}"))
        return plan

    def join(self, members: list[int]) -> None:
        place = f"handle/{self.epoch}"
        self.store.set(f"{place}/{self.number}", dist._get_reconfigure_handle())
        keys = [f"{place}/{member}" for member in members]
        while not self.store.check(keys):
            if self.newest() > self.epoch:
                raise Overtaken
            time.sleep(PAUSE)
        handles = [self.store.get(key).decode() for key in keys]
        dist._reconfigure(self.epoch, handles).wait()

    def train(self) -> None:
        """Until rank 0 has seen a newer plan, and told the others in the same step."""
        self.training.agree()
        self.store.add(f"running/{self.epoch}", 1)
        while True:
            self.training.train()
            if self.training.step % LOOK_EVERY == 0:
                seen = torch.tensor([self.newest() if dist.get_rank() == 0 else self.epoch])
                dist.broadcast(seen, group_src=0)
                if seen.item() > self.epoch:
                    return

    def run(self) -> None:
        while (members := self.next_plan()) is not None:
            if self.number not in members:
                continue
            try:
                self.join(members)
                self.train()
            except Overtaken:
                pass
            except dist.DistBackendError as error:
                print(f"{time.time():.3f} worker {self.number}, plan {self.epoch}: {error}", flush=True)
        if dist.get_rank() == 0:
            self.training.save()
        dist.destroy_process_group()


def run(number: int, port: int, folder: Path) -> None:
    """The program of a forked process."""
    torch.set_num_threads(1)
    Worker(number, port, folder).run()
