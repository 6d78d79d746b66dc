# SPDX-License-Identifier: BSD-3-Clause
"""A long healthy program: operations of all kinds, types and sizes, in groups that overlap, some in flight together.

Every rank draws the same numbers from one seed, which is printed with a failure; values are small integers, so that
results are compared exactly in every type. ALTORCH_TEST_OPERATIONS says how many (default 6,000; a million takes some
ten minutes on two cores).
"""

from __future__ import annotations

import os
import random
import time

import torch
import torch.distributed as dist
from harness import Cluster

OPERATIONS = int(os.environ.get("ALTORCH_TEST_OPERATIONS", "6000"))
# At most 35 operations may be drawn a second where everything else runs beside.
DEADLINE = 120 + OPERATIONS / 35
MEMBERS = ((0, 1, 2, 3), (0, 1), (1, 2, 3), (0, 2), (1, 3), (0, 1, 2, 3))
SIZES = (0, 1, 2, 3, 5, 8, 13, 31, 64, 100, 257, 1024, 1500)
LARGE = (8_191, 40_000, 150_001)
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8)
MOST_IN_FLIGHT = 4
LONGEST = 160_000
KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "ring",
)


class Program:
    """One rank of it."""

    def __init__(self, seed):
        self.draw, self.seed = random.Random(seed), seed
        self.groups = [(dist.new_group(list(members)), members) for members in MEMBERS]
        values = torch.arange(LONGEST * 5) * 7 % 5
        self.values = {dtype: values.to(dtype) for dtype in TYPES}
        self.in_flight = []  # (work, what, output, expected)
        self.checked = 0

    def data(self, dtype, count, shift, rank):
        start = (shift + 13 * rank) % 1000
        return self.values[dtype][start : start + count]

    def finish(self, work, what, got, want):
        if work is not None:
            work.wait()
        if want is not None and not torch.equal(got, want):
            raise AssertionError(f"seed {self.seed}, {what}: {got[:4].tolist()}.. for {want[:4].tolist()}..")
        self.checked += want is not None

    def step(self, number):
        draw = self.draw
        kind, dtype = draw.choice(KINDS), draw.choice(TYPES)
        count = draw.choice(LARGE) if draw.random() < 0.01 else draw.choice(SIZES)
        shift, asynchronous = draw.randrange(1000), draw.random() < 0.3
        group, members = draw.choice(self.groups)
        root = draw.choice(members)
        if dist.get_rank() not in members:
            return
        what = (
            f"operation {number}: {kind} of {count} x {dtype} from {root} in {members}, async {asynchronous}"
        )
        call = Call(self, dtype, count, shift, members, root, group, asynchronous)
        work, got, want = getattr(call, kind)()
        if work is None:
            return self.finish(None, what, got, want)
        self.in_flight.append((work, what, got, want))
        if len(self.in_flight) > MOST_IN_FLIGHT:
            self.finish(*self.in_flight.pop(0))

    def run(self, operations):
        for number in range(operations):
            self.step(number)
        for left in self.in_flight:
            self.finish(*left)
        return self.checked


class Call:
    """One operation: each method makes it and returns its Work, its output and what that shall be."""

    def __init__(self, program, dtype, count, shift, members, root, group, asynchronous):
        self.of = lambda rank, length=count: program.data(dtype, length, shift, rank)
        self.dtype, self.count, self.members, self.root = dtype, count, members, root
        self.me, self.place, self.size = dist.get_rank(), members.index(dist.get_rank()), len(members)
        self.how = {"group": group, "async_op": asynchronous}

    def empty(self, length):
        return torch.empty(length, dtype=self.dtype)

    def blocks(self, rank):
        return self.of(rank, self.count * self.size)

    def sum(self, length):
        # A sum of four values below 5 is exact in every type.
        return (
            torch.stack([self.of(rank, length) for rank in self.members])
            .to(torch.int64)
            .sum(0)
            .to(self.dtype)
        )

    def all_reduce(self):
        out = self.of(self.me).clone()
        return dist.all_reduce(out, **self.how), out, self.sum(self.count)

    def reduce(self):
        out = self.of(self.me).clone()
        work = dist.reduce(out, self.root, **self.how)
        return work, out, self.sum(self.count) if self.me == self.root else None

    def broadcast(self):
        out = self.of(self.me).clone()
        return dist.broadcast(out, self.root, **self.how), out, self.of(self.root)

    def all_gather(self):
        out = self.empty(self.count * self.size)
        work = dist.all_gather_into_tensor(out, self.of(self.me).clone(), **self.how)
        return work, out, torch.cat([self.of(rank) for rank in self.members])

    def reduce_scatter(self):
        out, total = self.empty(self.count), self.sum(self.count * self.size)
        work = dist.reduce_scatter_tensor(out, self.blocks(self.me).clone(), **self.how)
        return work, out, total[self.place * self.count : (self.place + 1) * self.count]

    def all_to_all(self):
        out = self.empty(self.count * self.size)
        work = dist.all_to_all_single(out, self.blocks(self.me).clone(), **self.how)
        own = slice(self.place * self.count, (self.place + 1) * self.count)
        return work, out, torch.cat([self.blocks(rank)[own] for rank in self.members])

    def gather(self):
        outs = [self.empty(self.count) for _ in self.members] if self.me == self.root else None
        work = dist.gather(self.of(self.me).clone(), outs, self.root, **self.how)
        if self.me != self.root:
            return work, torch.empty(0), None
        if work is not None:
            work.wait()
        return None, torch.cat(outs), torch.cat([self.of(rank) for rank in self.members])

    def scatter(self):
        out = self.empty(self.count)
        parts = [part.clone() for part in self.blocks(self.root).split(self.count)] if self.count else None
        if parts is None:
            parts = [self.empty(0) for _ in self.members]
        work = dist.scatter(out, parts if self.me == self.root else None, self.root, **self.how)
        return work, out, self.blocks(self.root)[self.place * self.count : (self.place + 1) * self.count]

    def ring(self):
        """To the right, from the left."""
        right, left = (self.members[(self.place + by) % self.size] for by in (1, -1))
        out, group = self.empty(self.count), self.how["group"]
        works = [dist.isend(self.of(self.me).clone(), right, group), dist.irecv(out, left, group)]
        for work in works:
            work.wait()
        return None, out, self.of(left)


def run_program(world, seed, operations):
    torch.set_num_threads(1)
    began = time.monotonic()
    checked = Program(seed).run(operations)
    return checked, time.monotonic() - began


def test_a_long_program_of_mixed_operations_ends_right():
    seed = int(os.environ["ALTORCH_TEST_SEED"])
    with Cluster(4) as cluster:
        results = cluster.check(run_program, seed=seed, operations=OPERATIONS, deadline=DEADLINE)
    checked = sum(count for count, _ in results)
    print(
        f"{OPERATIONS} operations, {checked} results compared, {max(seconds for _, seconds in results):.0f} s"
    )
    assert checked > OPERATIONS  # of each at least one rank's
