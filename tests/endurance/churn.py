# SPDX-License-Identifier: BSD-3-Clause
"""A training run with churn: a thousand times processes are killed, left out, taken in, or all started again."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from altorch.cli._output import Progress
from tests.drill.leftovers import SharedMemory, descendants
from tests.endurance.training import undisturbed
from tests.ranks.fork_server import ForkedProcess, ForkServer
from tests.ranks.launch import clean_environment

HUNG = 40.0  # seconds after which a plan that has not begun to work counts as hung; a reconfigure() gives up after 30


@dataclass
class Outcome:
    rounds: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # from a plan to work again, of each round
    objections: list[str] = field(default_factory=list)  # hangs, wrong results, what was left behind
    steps: int = 0


class Run:
    """The processes, and the plan of who is in it."""

    def __init__(self, ranks: int, seed: int, folder: Path) -> None:
        self.ranks, self.folder, self.random = ranks, folder, random.Random(seed)
        self.server = ForkServer(clean_environment(), preload=["tests.endurance.worker"])
        self.processes: list[ForkedProcess] = []  # of all workers, by their numbers
        self.store = dist.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
        )
        self.store.set("epoch", "0")
        self.epoch = 0
        self.members: list[int] = []
        self.idle: list[int] = []  # alive, and left out
        self.killed: set[int] = set()

    def born(self, count: int) -> list[int]:
        numbers = list(range(len(self.processes), len(self.processes) + count))
        for number in numbers:
            log = self.folder / f"worker{number}.log"
            arguments = (number, self.store.port, self.folder)
            self.processes.append(self.server.start("tests.endurance.worker:run", None, log, *arguments))
        return numbers

    def kill(self, numbers: list[int]) -> None:
        for number in numbers:
            self.processes[number].kill()
        self.killed.update(numbers)
        self.members = [each for each in self.members if each not in numbers]

    def publish(self) -> None:
        self.epoch += 1
        self.store.set(f"plan/{self.epoch}", json.dumps(self.members))
        self.store.set("epoch", str(self.epoch))

    def some(self, most: int) -> list[int]:
        return self.random.sample(self.members, self.random.randint(1, max(1, most)))

    # What may happen. Each ends with a plan.

    def lose(self) -> None:
        """Some are killed, the others go on."""
        if len(self.members) == 1:
            return self.replace()
        self.kill(self.some(len(self.members) - 1))
        self.publish()

    def replace(self) -> None:
        """Some are killed, and new ones take their places."""
        self.kill(self.some(len(self.members)))
        self.members += self.born(self.ranks - len(self.members) - len(self.idle)) + self.idle
        self.idle = []
        self.random.shuffle(self.members)
        self.publish()

    def leave(self) -> None:
        """Some are left out, alive."""
        if len(self.members) == 1:
            return self.replace()
        self.idle += (gone := self.some(len(self.members) - 1))
        self.members = [each for each in self.members if each not in gone]
        self.publish()

    def come(self) -> None:
        """Those that were left out come back, and new ones with them."""
        self.members += self.idle
        self.idle = []
        self.members += self.born(max(0, self.ranks - len(self.members)))
        self.publish()

    def restart(self) -> None:
        """All are killed and started again, from the last checkpoint."""
        self.kill(self.members + self.idle)
        self.idle = []
        self.members = self.born(self.ranks)
        self.publish()

    def lose_in_it(self) -> None:
        """Some are killed while they come together."""
        self.come()
        time.sleep(self.random.uniform(0, 0.06))
        if len(self.members) > 1:
            self.kill(self.some(len(self.members) - 1))
            time.sleep(self.random.choice([0, 0.02]))
        self.publish()

    # What has to come of it.

    def works(self) -> str:
        """Waits until all members train; what is wrong, or nothing."""
        end = time.monotonic() + HUNG
        while int(self.store.add(f"running/{self.epoch}", 0)) < len(self.members):
            if wrong := self.ended_by_themselves():
                return wrong
            if time.monotonic() > end:
                trace = subprocess.run(
                    [sys.executable, "-m", "altorch", "trace"], capture_output=True, text=True
                )
                return (
                    f"plan {self.epoch} of {self.members} is not at work after {HUNG:.0f} s\n{trace.stdout}"
                )
            time.sleep(0.002)
        return ""

    def ended_by_themselves(self) -> str:
        codes = {number: process.poll() for number, process in enumerate(self.processes)}
        odd = {number: code for number, code in codes.items() if code and number not in self.killed}
        return "".join(
            f"worker {number} ended with {code}: {self.tail(number)}" for number, code in odd.items()
        )

    def running(self) -> set[int]:
        return {number for number, process in enumerate(self.processes) if process.poll() is None}

    def tail(self, number: int) -> str:
        return (self.folder / f"worker{number}.log").read_text()[-2000:]

    def finish(self) -> str:
        last = set(self.members)
        self.epoch += 1
        self.store.set(f"plan/{self.epoch}", "null")
        self.store.set("epoch", str(self.epoch))
        end = time.monotonic() + HUNG
        while self.running() and time.monotonic() < end:
            time.sleep(0.01)
        if left := last & self.running():
            return f"{sorted(left)} do not end"
        return self.ended_by_themselves()


KINDS: dict[str, Callable[[Run], None]] = {
    "killed, the others go on": Run.lose,
    "killed and replaced": Run.replace,
    "left out": Run.leave,
    "taken in": Run.come,
    "killed while they meet": Run.lose_in_it,
    "all killed, started again": Run.restart,
}


def run(rounds: int, ranks: int, seed: int) -> Outcome:
    outcome, folder, before = Outcome(), Path(tempfile.mkdtemp(prefix="altorch-endurance-")), SharedMemory()
    play = Run(ranks, seed, folder)
    play.members = play.born(ranks)
    play.publish()
    names = list(KINDS)
    with Progress(rounds + 1) as progress:
        for count in range(rounds + 1):
            kind = play.random.choice(names) if count else ""  # the first one begins the run
            progress.at(kind)
            if kind:
                KINDS[kind](play)
                outcome.rounds[kind] = outcome.rounds.get(kind, 0) + 1
            began = time.monotonic()
            if wrong := play.works():
                outcome.objections.append(f"round {count}: {wrong}")
                break
            outcome.seconds.append(time.monotonic() - began)
            time.sleep(play.random.uniform(0, 0.1))  # of work, so that failures come in the middle of it
    if not outcome.objections:
        if wrong := play.finish():
            outcome.objections.append(wrong)
        else:
            state = torch.load(folder / "checkpoint")
            outcome.steps = state["step"]
            if not torch.equal(state["weights"], undisturbed(state["step"], folder)):
                outcome.objections.append("the weights are not those of an undisturbed run")
    play.server.close()
    time.sleep(0.5)
    for pid in descendants(os.getpid()):
        outcome.objections.append(f"process {pid} is left")
        os.kill(pid, signal.SIGKILL)
    outcome.objections += [f"/dev/shm/{name} is left" for name in before.new_and_unused()]
    if outcome.objections:
        print(f"logs: {folder}")
    else:
        shutil.rmtree(folder)
    return outcome


def summary(outcome: Outcome, ranks: int) -> str:
    took = sorted(outcome.seconds) or [0.0]
    lines = [f"{sum(outcome.rounds.values())} rounds, up to {ranks} ranks, {outcome.steps} steps of training"]
    lines += [f"  {count:5d}  {kind}" for kind, count in sorted(outcome.rounds.items())]
    most = took[int(0.99 * (len(took) - 1))]
    lines.append(
        f"at work again after {statistics.median(took):.2f} s (median), {most:.2f} s (99 %), {took[-1]:.2f} s (longest)"
    )
    lines += [f"NOT AS EXPECTED: {each}" for each in outcome.objections] or [
        "nothing hung, was wrong, or was left behind"
    ]
    return "\n".join(lines)
