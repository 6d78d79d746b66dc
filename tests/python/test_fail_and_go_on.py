# SPDX-License-Identifier: BSD-3-Clause
"""Programs that catch an error and go on: later calls are right, or raise; they never hang, and never read old data.

Random stress: groups are made, used, hurt in a random way (refusals, disagreements, timeouts, exceptions in a batch,
stopped and killed ranks) and used again, in several threads. Every rank draws the same numbers from one seed, which is
printed with a failure; results are integers, so that they are compared exactly. ALTORCH_TEST_STRESS_SECONDS says how
long (default 60, for each kind of tensors).
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import threading
import time
from contextlib import nullcontext, suppress
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster

SECONDS = float(os.environ.get("ALTORCH_TEST_STRESS_SECONDS", "20"))
TIMEOUT = 4 * PATIENCE  # of the groups that are hurt
SIZES = (1, 5, 63, 1024, 30_011, 300_007)
TYPES = (torch.float32, torch.int64, torch.float64, torch.int32)


class Wrong(AssertionError):
    """A result that was read and is not right."""


class StressedGroup:
    """One rank of a group: makes random calls and checks what they give."""

    def __init__(self, group, ranks, device, random_, where):
        self.group, self.ranks, self.device, self.random, self.where = group, ranks, device, random_, where
        self.me, self.size = ranks.index(dist.get_rank()), len(ranks)
        self.right = self.raised = 0

    def data(self, step, count, dtype, member):
        base = torch.arange(count, dtype=torch.int64) % 11 + 1
        return ((step % 97 + 1) * base + member).to(dtype)

    def check(self, what, step, got, want):
        got = got.cpu()
        if torch.equal(got, want):
            return
        # NaN, or a type's extreme: the mark of a call that was aborted on the device. The next call
        # raises.
        bad = got[got != want]
        marked = self.device.type == "cuda" and bool(
            (torch.isnan(bad) if bad.is_floating_point() else bad == torch.iinfo(bad.dtype).min).all()
        )
        if not marked:
            raise Wrong(f"{self.where}: {what} {step}: {got[:4].tolist()}.. instead of {want[:4].tolist()}..")

    def call(self, step):
        """One random call, the same on all members; checked."""
        draw = self.random
        kind = draw.choice(
            ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "ring", "reduce")
        )
        count, dtype, asynchronous = draw.choice(SIZES), draw.choice(TYPES), draw.random() < 0.4
        root = draw.randrange(self.size)
        members = range(self.size)
        mine = self.data(step, count, dtype, self.me).to(self.device)
        total = sum(self.data(step, count, dtype, m) for m in members)
        work = None
        if kind == "all_reduce":
            out, want = mine, total
            work = dist.all_reduce(out, group=self.group, async_op=asynchronous)
        elif kind == "reduce":
            out = mine
            want = total if self.me == root else None
            work = dist.reduce(out, group=self.group, group_dst=root, async_op=asynchronous)
        elif kind == "broadcast":
            out, want = mine, self.data(step, count, dtype, root)
            work = dist.broadcast(out, group=self.group, group_src=root, async_op=asynchronous)
        elif kind == "all_gather":
            out = torch.empty(count * self.size, dtype=dtype, device=self.device)
            want = torch.cat([self.data(step, count, dtype, m) for m in members])
            work = dist.all_gather_into_tensor(out, mine, group=self.group, async_op=asynchronous)
        elif kind == "reduce_scatter":
            parts = torch.cat([mine + part for part in members])
            out, want = torch.empty_like(mine), total + self.size * self.me
            work = dist.reduce_scatter_tensor(out, parts, group=self.group, async_op=asynchronous)
        elif kind == "all_to_all":
            parts = torch.cat([mine + to for to in members])
            out = torch.empty_like(parts)
            want = torch.cat([self.data(step, count, dtype, m) + self.me for m in members])
            work = dist.all_to_all_single(out, parts, group=self.group, async_op=asynchronous)
        else:
            right, left = (self.me + 1) % self.size, (self.me - 1) % self.size
            out, want = torch.empty_like(mine), self.data(step, count, dtype, left)
            if self.size == 1:
                return
            messages = [
                dist.P2POp(dist.isend, mine, group=self.group, group_peer=right, tag=0),
                dist.P2POp(dist.irecv, out, group=self.group, group_peer=left, tag=0),
            ]
            for each in dist.batch_isend_irecv(messages):
                each.wait()
        if work is not None:
            work.wait()
        if want is not None:
            self.check(kind, step, out, want)

    def make_calls(self, calls, step):
        """Calls; each one is right, or raises."""
        for index in range(calls):
            try:
                self.call(step + index)
                self.right += 1
            except Wrong:
                raise
            except Exception:
                self.raised += 1

    # Ways to hurt a group: what one member does alone; the others make a usual call.

    def refuse_everywhere(self, _):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            dist.all_reduce(torch.ones(3, device=self.device), dist.ReduceOp.BAND, group=self.group)

    def refuse_alone(self, odd):
        op = dist.ReduceOp.BAND if odd else dist.ReduceOp.SUM
        dist.all_reduce(torch.ones(3, device=self.device), op, group=self.group)

    def other_size(self, odd):
        dist.all_reduce(torch.ones(1000 + odd, device=self.device), group=self.group)

    def other_type(self, odd):
        dtype = torch.int32 if odd else torch.float32
        dist.all_reduce(torch.ones(1000, device=self.device, dtype=dtype), group=self.group)

    def other_root(self, odd):
        dist.broadcast(torch.ones(8, device=self.device), group=self.group, group_src=int(odd))

    def other_operation(self, odd):
        tensor = torch.ones(8, device=self.device)
        if odd:
            dist.barrier(self.group) if self.device.type == "cpu" else dist.broadcast(
                tensor, group=self.group, group_src=0
            )
        else:
            dist.all_reduce(tensor, group=self.group)

    def come_late(self, odd):
        if odd:
            time.sleep(TIMEOUT + 1)
        self.call(10**6)

    def stay_away(self, odd):
        """Of a size that no other call has: what is alike in everything but its numbers cannot be told apart."""
        if not odd:
            dist.all_reduce(torch.ones(777, device=self.device), group=self.group)

    def break_a_batch(self, odd):
        tensor = torch.ones(8, device=self.device)
        peer = (self.me + 1) % self.size
        bad = torch.ones(8, device=self.device).to_sparse() if odd else torch.ones(8, device=self.device)
        messages = [
            dist.P2POp(dist.isend, tensor, group=self.group, group_peer=peer),
            dist.P2POp(dist.irecv, bad, group=self.group, group_peer=(self.me - 1) % self.size),
        ]
        for each in dist.batch_isend_irecv(messages):
            each.wait()

    def other_message_size(self, odd):
        tensor = torch.ones(64 + 8 * odd, device=self.device)
        if self.me == 0:
            dist.send(tensor, group=self.group, group_dst=1)
        elif self.me == 1:
            dist.recv(tensor, group=self.group, group_src=0)

    def sleep_stopped(self, odd):
        """A member that is stopped for a while is no dead one."""
        if odd:
            pid = os.getpid()
            child = os.fork()
            if child == 0:
                time.sleep(0.7)
                os.kill(pid, signal.SIGCONT)
                os._exit(0)
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(child, 0)
        self.call(10**6)


FAULTS = (
    *("refuse_everywhere", "refuse_alone", "other_size", "other_type", "other_root", "other_operation"),
    *("come_late", "stay_away", "break_a_batch", "other_message_size", "sleep_stopped"),
)
HARMLESS = ("refuse_everywhere", "sleep_stopped")


def new_stressed_groups(world, draw, device, number, count):
    """`count` groups over random members (all ranks draw alike); those that this rank belongs to."""
    found = []
    for index in range(count):
        members = sorted(draw.sample(range(world.size), draw.randint(2, world.size)))
        seed = draw.random()
        group = dist.new_group(members, timeout=timedelta(seconds=TIMEOUT))
        fault, odd = draw.choice(FAULTS), draw.randrange(len(members))
        if world.rank in members:
            where = f"life {number}.{index}, {fault} by member {odd} of {members}"
            found.append((StressedGroup(group, members, device, random.Random(seed), where), fault, odd))
    return found


def stream_of_its_own(device):
    """Groups whose calls share a stream wait for each other: that is what streams are."""
    if device.type == "cpu":
        return nullcontext()
    torch.cuda.set_device(device)
    return torch.cuda.stream(torch.cuda.Stream(device))


def live(stressed, fault, odd, failures):
    with stream_of_its_own(stressed.device):
        live_on_this_stream(stressed, fault, odd, failures)


def live_on_this_stream(stressed, fault, odd, failures):
    try:
        stressed.make_calls(stressed.random.randint(0, 6), 0)
        if stressed.raised:
            raise Wrong(f"{stressed.where}: a call raised before anything was wrong")
        with suppress(RuntimeError, ValueError, TypeError, NotImplementedError):
            getattr(stressed, fault)(stressed.me == odd)
        stressed.make_calls(stressed.random.randint(1, 12), 100)
        if fault in HARMLESS and stressed.raised:
            raise Wrong(f"{stressed.where}: calls raise although nothing is wrong")
    except BaseException as error:
        failures.append(f"{stressed.where}: {type(error).__name__}: {error}")


def stress_run(world, seed, seconds, cuda, threads):
    draw = random.Random(seed)
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", world.rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    began, lives, right, raised = time.monotonic(), 0, 0, 0
    seen = torch.zeros(3)
    while True:
        lives += 1
        world.case = f"seed {seed}, life {lives}"
        failures: list[str] = []
        stressed_groups = new_stressed_groups(
            world, draw, device, lives, draw.choice((1, 1, 2)) if threads else 1
        )
        workers = [
            threading.Thread(target=live, args=(*each, failures), daemon=True) for each in stressed_groups
        ]
        for worker in workers:
            worker.start()
        limit = time.monotonic() + 12 * TIMEOUT + 40
        for worker, (stressed, *_) in zip(workers, stressed_groups, strict=True):
            worker.join(max(0.1, limit - time.monotonic()))
            if worker.is_alive():
                failures.append(f"{stressed.where}: hangs")
                faulthandler.dump_traceback()
        assert not failures, failures
        # The world is not concerned, whatever became of the groups. Members may be done at
        # different times.
        for stressed, *_ in stressed_groups:
            right, raised = right + stressed.right, raised + stressed.raised
        # On a busy machine one life may take all the seconds: a run ends once it also saw both
        # outcomes.
        seen.copy_(torch.tensor([time.monotonic() - began > seconds, right, raised]))
        dist.all_reduce(seen, dist.ReduceOp.MAX)
        for stressed, *_ in stressed_groups:
            dist.destroy_process_group(stressed.group)
        if seen.all():
            return lives, right, raised


def travel_together(size, seconds, cuda, threads=True):
    seed = int.from_bytes(os.urandom(4), "little")
    seed = int(os.environ.get("ALTORCH_TEST_SEED", seed))
    print(f"seed of the stress run: {seed}")
    with Cluster(size, launcher="plain") as cluster:
        values = cluster.check(
            stress_run,
            deadline=seconds + 200 * PATIENCE,
            seed=seed,
            seconds=seconds,
            cuda=cuda,
            threads=threads,
        )
    lives, right, raised = (sum(each) for each in zip(*values, strict=True))
    print(f"{lives} lives, {right} calls right, {raised} raised")
    assert right > 0 and raised > 0


@pytest.mark.parametrize("size", [2, 4])
def test_cpu_tensors(size):
    travel_together(size, SECONDS / 2, cuda=False)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="no GPU is visible")
def test_cuda_tensors():
    """One group at a time: CUDA holds up every thread while one copies pageable memory behind a call that hangs."""
    travel_together(2, SECONDS, cuda=True, threads=False)


def connect(world):
    dist.barrier()


def until_error(world, seed, seconds):
    """Calls in the world until one fails; the results of all that did not are right."""
    stressed = StressedGroup(
        dist.group.WORLD, list(range(world.size)), torch.device("cpu"), random.Random(seed), ""
    )
    began, step = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        try:
            stressed.call(step)
        except Wrong:
            raise
        except Exception as error:
            later = StressedGroup(
                stressed.group, stressed.ranks, stressed.device, random.Random(1), "afterwards"
            )
            later.make_calls(50, 0)
            return step, str(error), later.right
        step += 1
    return step, None, 0


@pytest.mark.parametrize("carrier", ["mpi", "gloo"])
def test_a_rank_killed_at_a_random_moment(carrier):
    seed = int.from_bytes(os.urandom(4), "little")
    env = {"ALTORCH_MPI": "none"} if carrier == "gloo" else {}
    draw = random.Random(seed)
    with Cluster(3, launcher="plain", env=env) as cluster:
        cluster.check(connect)

        def kill():
            time.sleep(2 * draw.random())
            cluster.kill(2)

        outcomes = cluster.run(until_error, deadline=60, seed=seed, seconds=40, before_wait=kill)
    assert [outcome.status for outcome in outcomes] == ["ok", "ok", "died"], [o.report() for o in outcomes]
    for outcome in outcomes[:2]:
        step, error, right = outcome.value
        assert error is not None and right == 0, (seed, step, error, right)


def many_calls(world, calls):
    """Groups that failed in some way, and calls afterwards by the ten thousand: more than 32,768 where they succeed.

    The others raise, which takes thirty times as long, so they make a tenth of the calls.
    """
    counts = {}
    for kind in ("refused by all", "refused by one", "timeout", "roots", "sizes"):
        group = dist.new_group(timeout=timedelta(seconds=TIMEOUT))
        x = torch.full((4,), 1.0)
        dist.all_reduce(x, group=group)
        odd = world.rank == 1
        with suppress(RuntimeError, ValueError, TypeError):
            if kind == "refused by all" or (kind == "refused by one" and odd):
                dist.all_reduce(torch.ones(4), dist.ReduceOp.BAND, group=group)
            elif kind == "refused by one":
                dist.all_reduce(torch.full((4,), -1000.0), group=group)
            elif kind == "timeout":
                if odd:
                    time.sleep(TIMEOUT + 1)
                dist.all_reduce(torch.full((4,), -1000.0), group=group)
            elif kind == "roots":
                dist.broadcast(torch.full((4,), -1000.0 - world.rank), group=group, group_src=world.rank)
            else:
                dist.all_reduce(torch.full((4 + odd,), -1000.0), group=group)
        right = wrong = raised = 0
        for i in range(calls if kind == "refused by all" else calls // 10):
            x.fill_(float(i % 4096))
            try:
                dist.all_reduce(x, group=group)
            except RuntimeError:
                raised += 1
                continue
            if x[0].item() == world.size * (i % 4096):
                right += 1
            else:
                wrong += 1
        counts[kind] = (right, wrong, raised)
        dist.barrier()
        dist.destroy_process_group(group)
    return counts


def test_many_calls_after_failures():
    calls = int(os.environ.get("ALTORCH_TEST_CALLS", "40000"))  # of the group that goes on
    with Cluster(2, launcher="plain") as cluster:
        for counts in cluster.check(many_calls, deadline=60 + calls / 1000, calls=calls):
            for kind, (right, wrong, raised) in counts.items():
                assert wrong == 0, (kind, counts)
                assert (right == calls) if kind == "refused by all" else (raised >= calls // 10 - 1), (
                    kind,
                    counts,
                )
