# SPDX-License-Identifier: BSD-3-Clause
"""Half an hour of mixed operations: results are right; memory, descriptors and threads stay what they are."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import altorch
from altorch.cli._output import Progress
from tests.ranks.fork_server import ForkServer
from tests.ranks.launch import clean_environment, rank_environment

SIZES = (0, 1, 3, 1000, 70_001, 1_000_003)  # elements
SAMPLES = 120  # in a run
# Growth from the second quarter to the last: MiB that malloc has given out, MiB that are resident
# (which depends on how those lie), numbers.
# A thread more: al-relief comes when callbacks pile up, and goes; there is never a second one.
ALLOWED = {"allocated": 1.0, "resident": 48.0, "descriptors": 0.0, "threads": 1.0}


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def allocated() -> float:
    """MiB of this process's, by glibc's own account."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _Mallinfo2
    told = ask()
    return float(told.uordblks + told.hblkhd) / 2**20


@dataclass
class Report:
    minutes: float
    ranks: int
    calls: dict[str, int] = field(default_factory=dict)
    samples: dict[int, list[dict[str, float]]] = field(default_factory=dict)  # by rank
    keys: int = 0  # that are left in the store
    objections: list[str] = field(default_factory=list)


class Rank:
    """All ranks draw the same operations from the same seed."""

    def __init__(self, rank: int, size: int, seed: int) -> None:
        self.rank, self.size = rank, size
        self.random = random.Random(seed)
        self.calls: Counter[str] = Counter()
        self.samples: list[dict[str, float]] = []
        numbers = [name for name in dir(self) if name.startswith("do_")]
        self.operations: list[tuple[str, Callable[[int], None]]] = [
            (name[3:], getattr(self, name)) for name in numbers
        ]

    def check(self, seen: torch.Tensor, expected: torch.Tensor) -> None:
        assert torch.equal(seen, expected), "a wrong result"

    def do_all_reduce(self, count: int) -> None:
        x = torch.full((count,), float(self.rank))
        dist.all_reduce(x)
        self.check(x, torch.full_like(x, self.size * (self.size - 1) / 2))

    def do_several_at_a_time(self, count: int) -> None:
        tensors = [torch.full((count // (each + 1),), each + 1.0) for each in range(4)]
        works = [dist.all_reduce(x, async_op=True) for x in tensors]
        for work in works:
            work.wait()
        for each, x in enumerate(tensors):
            self.check(x, torch.full_like(x, (each + 1.0) * self.size))

    def do_all_gather(self, count: int) -> None:
        parts = torch.empty(self.size * count)
        dist.all_gather_into_tensor(parts, torch.full((count,), float(self.rank)))
        self.check(parts, torch.arange(self.size).repeat_interleave(count).float())

    def do_reduce_scatter(self, count: int) -> None:
        part = torch.empty(count)
        dist.reduce_scatter_tensor(part, torch.ones(self.size * count))
        self.check(part, torch.full_like(part, self.size))

    def do_all_to_all(self, count: int) -> None:
        got = torch.empty(self.size * count)
        dist.all_to_all_single(got, torch.full((self.size * count,), float(self.rank)))
        self.check(got, torch.arange(self.size).repeat_interleave(count).float())

    def do_broadcast(self, count: int) -> None:
        root = self.random.randrange(self.size)
        x = torch.full((count,), float(self.rank))
        dist.broadcast(x, root)
        self.check(x, torch.full_like(x, root))

    def do_messages(self, count: int) -> None:
        got = torch.empty(count)
        work = dist.isend(torch.full((count,), float(self.rank)), (self.rank + 1) % self.size)
        dist.recv(got, (self.rank - 1) % self.size)
        work.wait()
        self.check(got, torch.full_like(got, (self.rank - 1) % self.size))

    def do_objects(self, count: int) -> None:
        gathered: list[object] = [None] * self.size
        dist.all_gather_object(gathered, {"rank": self.rank, "text": "x" * (count % 1000)})
        assert [each["rank"] for each in gathered] == list(range(self.size))  # type: ignore[index]

    def do_coalesced(self, count: int) -> None:
        tensors = [torch.ones(count % 5000 + each) for each in range(3)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for x in tensors:
                dist.all_reduce(x)
        manager.wait()
        for x in tensors:
            self.check(x, torch.full_like(x, self.size))

    def do_refused(self, _count: int) -> None:
        try:
            dist.all_gather_into_tensor(torch.empty(3), torch.empty(5))
        except (ValueError, RuntimeError):
            return
        raise AssertionError("a call that cannot be was not refused")

    def do_group(self, count: int) -> None:
        if self.random.random() > 0.1:  # a few milliseconds each
            return
        members = self.random.sample(range(self.size), self.random.randint(1, self.size))
        group = dist.new_group(members)
        if self.rank in members:
            x = torch.ones(count)
            dist.all_reduce(x, group=group)
            self.check(x, torch.full_like(x, len(members)))
            dist.destroy_process_group(group)

    def do_window(self, count: int) -> None:
        if self.random.random() > 0.1:
            return
        tensor = (
            altorch.empty(count % 5000 + self.size) if count % 2 else torch.zeros(count % 5000 + self.size)
        )
        window = altorch.new_window(tensor)
        window.put_signal(torch.full((1,), float(self.rank)), (self.rank + 1) % self.size, self.rank)
        before = (self.rank - 1) % self.size
        window.wait_signal(before)
        assert tensor[before] == before, "a wrong put"
        window.fence()
        window.tensor_deregister()

    def sample(self) -> None:
        gc.collect()
        own = Path("/proc/self")
        resident = int((own / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        self.samples.append(
            {
                "allocated": round(allocated(), 2),
                "resident": round(resident, 2),
                "descriptors": float(len(list((own / "fd").iterdir()))),
                "threads": float(len(list((own / "task").iterdir()))),
            }
        )

    def run(self, seconds: float, progress: Path) -> None:
        end, every = time.monotonic() + seconds, seconds / SAMPLES
        next_sample = time.monotonic() + every
        goes_on = torch.ones(1)
        while goes_on.item():
            for _ in range(50):
                name, operation = self.random.choice(self.operations)
                operation(self.random.choice(SIZES))
                self.calls[name] += 1
            if time.monotonic() >= next_sample:
                next_sample += every
                self.sample()
                if self.rank == 0:
                    progress.write_text(str(len(self.samples)))
            goes_on[0] = float(time.monotonic() < end)
            dist.broadcast(goes_on, 0)


def run_rank(rank: int, size: int, seed: int, seconds: float, folder: Path) -> None:
    """The program of a forked process."""
    torch.set_num_threads(1)
    own = Rank(rank, size, seed)
    try:
        dist.init_process_group("al", timeout=timedelta(seconds=60))
        own.run(seconds, folder / "progress")
        dist.destroy_process_group()
    finally:
        (folder / f"rank{rank}.json").write_text(json.dumps({"calls": own.calls, "samples": own.samples}))


def growth(samples: list[dict[str, float]], kind: str) -> float:
    """From the second quarter, when all is warm, to the last: of memory the medians, of what is counted the most."""
    values = [sample[kind] for sample in samples]
    quarter = max(1, len(values) // 4)
    of = statistics.median if kind in ("allocated", "resident") else max
    return of(values[-quarter:]) - of(values[quarter : 2 * quarter] or values[:1])


def run(minutes: float, ranks: int, seed: int) -> Report:
    report, folder = Report(minutes, ranks), Path(tempfile.mkdtemp(prefix="altorch-endurance-"))
    # The store is outside of the ranks, because each group leaves some keys there.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    server = ForkServer(clean_environment(), preload=["tests.endurance.soak"])
    processes = []
    for rank in range(ranks):
        place = rank_environment(rank, ranks, "127.0.0.1", store.port)
        env = server.env | place | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
        arguments = (rank, ranks, seed, minutes * 60, folder)
        log = folder / f"rank{rank}.log"
        processes.append(server.start("tests.endurance.soak:run_rank", env, log, *arguments))
    end, seen = time.monotonic() + minutes * 60 + 120, 0
    with Progress(SAMPLES) as progress:
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            time.sleep(0.2)
            now = int((folder / "progress").read_text() or seen) if (folder / "progress").exists() else 0
            while seen < now:
                seen += 1
                progress.at(f"sample {seen} of {SAMPLES}")
    for rank, process in enumerate(processes):
        if (code := process.poll()) != 0:
            log = (folder / f"rank{rank}.log").read_text()[-2000:]
            ended = "hangs" if code is None else f"ended with {code}"
            report.objections.append(f"rank {rank} {ended}: {log}")
            continue
        told = json.loads((folder / f"rank{rank}.json").read_text())
        report.calls, report.samples[rank] = told["calls"], told["samples"]
        for kind, most in ALLOWED.items():
            if (grown := growth(told["samples"], kind)) > most:
                report.objections.append(f"rank {rank}: {kind} grew by {grown:g}")
    report.keys = store.num_keys()
    server.close()
    shutil.rmtree(folder)
    return report


def summary(report: Report) -> str:
    made = report.calls.get("group", 0) + report.calls.get("window", 0)
    lines = [
        f"{sum(report.calls.values())} operations on {report.ranks} ranks in {report.minutes:g} minutes; "
        f"{report.keys} keys in the store, after some {made // 10} groups and windows"
    ]
    for rank, samples in report.samples.items():
        kinds = [f"{kind} {samples[-1][kind]:g} ({growth(samples, kind):+g})" for kind in ALLOWED]
        lines.append(f"rank {rank}: {', '.join(kinds)}")
    lines += [f"NOT AS EXPECTED: {each}" for each in report.objections] or [
        "every result right, nothing grew"
    ]
    return "\n".join(lines)
