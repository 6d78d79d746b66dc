# SPDX-License-Identifier: BSD-3-Clause
"""Trains on while ranks are killed and come back: the others go on without them, and take them in again.

    python examples/elastic.py --ranks 4 --kill 1@40 3@80 0@80

Starts its ranks, hosts their store, and restarts each rank that dies, as a cluster's agent does. That takes seconds, in
which the others train on. It tells them as a plan who is in the group; they follow with torch's reconfigure(), for
which the group is made with enable_reconfigure=True (torch 2.15). Every step is one of gradient descent over all
images, divided among the ranks that there are, so it ends with exit code 1 when the loss is not that of one undisturbed
process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from survive import TOLERANCE, Training, undisturbed

SAVE_EVERY = 20  # steps
LOOK_EVERY = 5  # steps, for a new plan


class Worker:
    """One rank in one of its lives."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.worker, life = int(os.environ["ELASTIC_WORKER"]), int(os.environ["ELASTIC_LIFE"])
        self.store = dist.TCPStore(
            "127.0.0.1", int(os.environ["STORE"]), is_master=False, wait_for_workers=False
        )
        dist.init_process_group(
            "al",
            store=dist.PrefixStore("job", self.store),
            rank=self.worker,
            world_size=arguments.ranks,
            timeout=timedelta(seconds=30),
            enable_reconfigure=True,
        )
        self.training = Training(arguments.checkpoint)
        self.ranks, self.steps, self.pause = arguments.ranks, arguments.steps, arguments.seconds_per_step
        dies = [each.split("@") for each in arguments.kill]
        self.dies_in = (
            {int(step) for worker, step in dies if int(worker) == self.worker} if life == 0 else set()
        )
        self.plan = 0
        self.store.add("ready", 1)
        self.store.set(f"ready/{self.worker}", str(life))

    def newest_plan(self) -> int:
        return int(self.store.get("plan"))

    def next_members(self) -> list[int]:
        """Those of the next plan; an empty list once the training has ended."""
        while self.newest_plan() <= self.plan:
            if self.store.check(["done"]):
                return []
            time.sleep(0.01)
        self.plan = self.newest_plan()
        members: list[int] = json.loads(self.store.get(f"plan/{self.plan}"))
        return members

    def join(self, members: list[int]) -> bool:
        """Whether all of them have come; else there is another plan, or will be one with this rank."""
        if self.worker not in members:
            return False
        place = f"handles/{self.plan}"
        self.store.set(f"{place}/{self.worker}", dist._get_reconfigure_handle())
        keys = [f"{place}/{worker}" for worker in members]
        while not self.store.check(keys):
            if self.newest_plan() > self.plan or self.store.check(["done"]):
                return False
            time.sleep(0.01)
        dist._reconfigure(self.plan, [self.store.get(key).decode() for key in keys]).wait()
        return True

    def train(self) -> None:
        """Until the end, or another plan. From the last checkpoint: ranks may have failed at different places."""
        self.training.load()
        training, loss = self.training, torch.zeros(())
        if dist.get_rank() == 0:
            print(f"step {training.step:4d}   {dist.get_world_size()} ranks", flush=True)
        while training.step < self.steps:
            if training.step % LOOK_EVERY == 0 and self.is_changed():
                return
            if training.step in self.dies_in:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(self.pause)  # as a larger network takes
            gradient, loss = training.gradients(dist.get_rank(), dist.get_world_size())
            dist.all_reduce(gradient)
            dist.all_reduce(loss)
            training.descend(gradient)
            if training.step % SAVE_EVERY == 0:
                self.save()
        if dist.get_rank() == 0:
            training.checkpoint.with_suffix(".loss").write_text(str(loss.item()))
        dist.barrier()
        self.store.set("done", "1")

    def is_changed(self) -> bool:
        """Whether there is another plan: rank 0 looks, so that all leave after the same step."""
        if dist.get_rank() == 0 and self.training.step >= self.steps - LOOK_EVERY:
            self.await_all_ranks()
        newest = torch.tensor([self.newest_plan() if dist.get_rank() == 0 else 0])
        dist.broadcast(newest, group_src=0)
        if newest.item() > self.plan:
            self.save()
        return newest.item() > self.plan

    def await_all_ranks(self) -> None:
        """The last steps are of all ranks, so that this shows the same on any machine."""
        while dist.get_world_size() < self.ranks and self.newest_plan() == self.plan:
            time.sleep(0.01)

    def save(self) -> None:
        if dist.get_rank() == 0:
            self.training.save()
        dist.barrier()

    def run(self) -> None:
        while not self.store.check(["done"]):
            try:
                if self.join(self.next_members()):
                    self.train()
            except dist.DistBackendError as error:  # a rank was lost: there will be another plan
                print(f"worker {self.worker}, plan {self.plan}: {error}", file=sys.stderr, flush=True)
        dist.destroy_process_group()


class Supervisor:
    """Starts ranks, starts them again when they die, and plans with those that are there."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.store.set("plan", "0")
        self.arguments, self.plan = arguments, 0
        self.lives = dict.fromkeys(range(arguments.ranks), 0)
        self.processes = {worker: self.start(worker) for worker in self.lives}
        self.members: list[int] = []

    def start(self, worker: int) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "STORE": str(self.store.port),
            "ELASTIC_WORKER": str(worker),
            "ELASTIC_LIFE": str(self.lives[worker]),
            "TORCH_CPP_LOG_LEVEL": "ERROR",  # torch logs a page for every connection that breaks
            "TORCH_FR_DUMP_ON_TIMEOUT": "0",
            "PYTHONFAULTHANDLER": "1",
        }
        words = [*sys.argv[1:], "--checkpoint", str(self.arguments.checkpoint)]
        return subprocess.Popen([sys.executable, __file__, *words], env=environment)

    def is_ready(self, worker: int) -> bool:
        key = f"ready/{worker}"
        return bool(self.store.check([key])) and int(self.store.get(key)) == self.lives[worker]

    def run(self) -> int:
        """The number of deaths. Ends when the training has, and all ranks with it."""
        deaths = 0
        while not self.store.check(["done"]):
            for worker, process in self.processes.items():
                if (code := process.poll()) is None:
                    continue
                if code != -signal.SIGKILL:
                    raise SystemExit(f"worker {worker} ended with exit code {code}")
                deaths += 1
                self.lives[worker] += 1
                self.processes[worker] = self.start(worker)
            ready = [worker for worker in self.processes if self.is_ready(worker)]
            if ready and ready != self.members and (self.members or len(ready) == len(self.processes)):
                self.members = ready
                self.plan += 1
                self.store.set(f"plan/{self.plan}", json.dumps(ready))
                self.store.set("plan", str(self.plan))
            time.sleep(0.01)
        for worker in self.members:
            self.await_end(worker)
        return deaths

    def await_end(self, worker: int) -> None:
        process = self.processes[worker]
        try:
            code = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # Python then writes where its threads are
            process.wait()
            raise SystemExit(f"worker {worker} has not ended 60 s after the training") from None
        if code != 0:
            raise SystemExit(f"worker {worker} ended with exit code {code}")

    def close(self) -> None:
        for process in self.processes.values():  # one may just have been started again
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds-per-step", type=float, default=0.04)
    parser.add_argument(
        "--kill",
        nargs="*",
        default=["1@40", "3@80", "0@80"],
        metavar="RANK@STEP",
        help="who is killed in which step; it is started again at once",
    )
    parser.add_argument("--checkpoint", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not hasattr(dist, "_reconfigure"):
        parser.exit(
            2, f"this needs reconfigure(), which torch {torch.__version__} does not have (2.15 does)\n"
        )
    if "ELASTIC_WORKER" in os.environ and arguments.checkpoint:
        Worker(arguments).run()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        arguments.checkpoint = Path(folder) / "checkpoint"
        Training(arguments.checkpoint).save()
        supervisor = Supervisor(arguments)
        try:
            deaths = supervisor.run()
        finally:
            supervisor.close()
        loss = float(arguments.checkpoint.with_suffix(".loss").read_text())
        wanted = undisturbed(arguments.steps, arguments.checkpoint)
    print(f"loss {loss:.6f} with {deaths} deaths of {arguments.ranks} ranks, {wanted:.6f} undisturbed")
    return 0 if abs(loss - wanted) <= TOLERANCE * wanted else 1


if __name__ == "__main__":
    sys.exit(main())
