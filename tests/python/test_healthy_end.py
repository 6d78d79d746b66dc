# SPDX-License-Identifier: BSD-3-Clause
"""A program that ends well ends silently, whichever rank ends first, and says what carried it where it is asked."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, PROGRAM_DEADLINE, Cluster

from tests.ranks.launch import clean_environment, free_port

# Rank 0, which hosts the store, ends a moment before the others, which still have a group.
ENDS_WELL = """
import os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
os.environ["ALTORCH_NODE"] = f"node{rank // 2}"
dist.init_process_group("al")
for work in [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]:
    work.wait()
group = dist.new_group(list(range(4)))
dist.all_reduce(torch.ones(10), group=group)
if rank != 0:
    time.sleep(0.3 * rank)
dist.destroy_process_group()
"""


# torch's store looks up the name of every client, and says so where the machine's resolver is slow.
NO_NAME = "The hostname of the client socket cannot be retrieved"


def run_ranks(program, size, **environment):
    """Exit codes and what all ranks said, but for torch's lines about names of hosts."""
    env = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | environment
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=clean_environment(env | {"RANK": str(rank)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [rank.communicate(timeout=PROGRAM_DEADLINE)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    said = ["".join(line for line in each.splitlines(True) if NO_NAME not in line) for each in said]
    return [rank.returncode for rank in ranks], said


@pytest.mark.parametrize("mpi", ["", "none"])
def test_a_rank_that_ends_first_leaves_the_others_silent(mpi):
    codes, said = run_ranks(ENDS_WELL, 4, ALTORCH_MPI=mpi)
    assert codes == [0] * 4, said
    assert said == [""] * 4


TWO_GROUPS = """
import torch, torch.distributed as dist
dist.init_process_group("al")
dist.all_reduce(torch.ones(3), group=dist.new_group([0, 1]))
dist.destroy_process_group()
"""


def test_each_group_says_once_what_carries_it():
    codes, said = run_ranks(TWO_GROUPS, 2, ALTORCH_LOG_LEVEL="info")
    assert codes == [0, 0], said
    lines = [line for line in said[0].splitlines() if "altorch info: group" in line]
    assert len(lines) == 2, said[0]
    assert all("of 2 ranks: shm carries CPU tensors, because" in line for line in lines), lines
    assert "altorch info: group" not in said[1]


def for_ever(world):
    """Timeouts that no clock of nanoseconds can hold."""
    group = dist.new_group([0, 1], timeout=timedelta.max)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group, async_op=True).wait(timedelta(days=365 * 300))
    assert tensor.tolist() == [2, 2, 2]
    group.set_timeout(timedelta.max)
    dist.all_reduce(tensor, group=group)
    try:
        dist.monitored_barrier(group, timeout=timedelta.max)
    except ValueError as error:  # of an older torch
        assert "only implemented for GLOO" in str(error)
    assert tensor.tolist() == [4, 4, 4]


def test_timeouts_may_be_longer_than_a_clock():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(for_ever)


def stream_of_none(world):
    """torch's kernel that blocks a stream needs one; the host does not wait instead."""
    tensor = torch.ones(3)
    if world.rank == 1:
        dist.recv(tensor, 0)
        dist.send(tensor, 0)
        return
    work = dist.irecv(tensor, 1)
    with pytest.raises(RuntimeError):
        work.block_current_stream()
    dist.send(tensor, 1)
    work.wait()


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU torch has a stream to block")
@pytest.mark.skipif(
    not hasattr(dist.Work, "block_current_stream"), reason="torch has no block_current_stream"
)
def test_a_cpu_work_blocks_no_stream_where_there_is_none():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(stream_of_none)


# Rank 1 does its part and ends, a second before rank 2 comes to the call.
DONE_EARLY = """
import os, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("al")
pids = [torch.empty(1, dtype=torch.int64) for _ in range(3)]
dist.all_gather(pids, torch.tensor([os.getpid()]))
def has_ended(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().split()[2] == "Z"
if rank == 2:
    while not has_ended(pids[1].item()):
        time.sleep(0.01)
    time.sleep(1)
x = torch.full((10,), float(rank))
match os.environ["TEST_CALL"]:
    case "reduce":
        dist.reduce(x, 0)
        assert rank != 0 or (x == 3).all(), x
    case "any source" if rank > 0:
        dist.send(x, 0)
    case "any source":
        assert [dist.recv(x) for _ in range(2)] == [1, 2]
if rank == 0:
    time.sleep(1)  # it hosts the store
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("call", "mpi"), [("reduce", ""), ("reduce", "none"), ("any source", "none")])
def test_a_rank_that_has_done_its_part_is_not_lost(call, mpi):
    codes, said = run_ranks(DONE_EARLY, 3, ALTORCH_MPI=mpi, TEST_CALL=call)
    assert codes == [0] * 3, said
    assert said == [""] * 3


# No rank is left to send what rank 0 waits for.
ALL_HAVE_LEFT = """
import os, sys, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("al")
dist.barrier()
if rank > 0:
    dist.destroy_process_group()
    sys.exit()
began = time.monotonic()
try:
    dist.recv(torch.empty(10))
except dist.DistBackendError as error:
    print(error, flush=True)
print("waited", time.monotonic() - began)
"""


def test_a_receive_from_any_rank_ends_when_all_have_left():
    codes, said = run_ranks(ALL_HAVE_LEFT, 3)
    assert codes[1:] == [0, 0], said
    assert "recv from any rank, tag 0: global rank 1 is lost" in said[0], said[0]
    assert float(said[0].split("waited ")[1].split()[0]) < 5 * PATIENCE
