# SPDX-License-Identifier: BSD-3-Clause
"""What torch's flight recorder says of altorch's calls: in a healthy job, in a hung one, and who records them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, PROGRAM_DEADLINE, Cluster, on_ranks

import altorch
from tests.ranks.launch import clean_environment, free_port

recorder = torch._C._distributed_c10d
HAS_RECORDER = hasattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS")
NO_RECORDER = "this torch does not record what al carries"
RECORDS = {"TORCH_FR_BUFFER_SIZE": "200"}


def skip_without_recorder(world):
    if not world.is_al or not HAS_RECORDER:
        pytest.skip(NO_RECORDER)


def entries():
    altorch.publish_flight_record()
    return json.loads(recorder._dump_fr_trace_json(includeCollectives=True, backend="al")).get("entries", [])


def reset():
    altorch.publish_flight_record()  # or calls from before come behind it
    recorder._reset_fr_trace("al")


def call_everything(world):
    tensor, peer = torch.ones(4), 1 - world.rank
    for asynchronous in (False, True):
        for call in (
            lambda: dist.all_reduce(tensor, async_op=asynchronous),  # noqa: B023
            lambda: dist.broadcast(tensor, 0, async_op=asynchronous),  # noqa: B023
            lambda: dist.all_gather_into_tensor(torch.ones(8), tensor, async_op=asynchronous),  # noqa: B023
            lambda: dist.barrier(async_op=asynchronous),  # noqa: B023
        ):
            work = call()
            if work is not None:
                work.wait()
    dist.all_reduce_coalesced([tensor, tensor])
    for work in (dist.isend(tensor, peer), dist.irecv(torch.ones(4), peer)):
        work.wait()


def check_healthy(world):
    reset()
    call_everything(world)
    found = entries()
    hung = [entry for entry in found if entry["state"] != "completed" and not entry["retired"]]
    assert not hung, hung
    return found


@on_ranks(2, env=RECORDS)
def test_a_healthy_job_does_not_look_hung(world):
    skip_without_recorder(world)
    assert len(check_healthy(world)) >= 11


@on_ranks(2, env=RECORDS | {"ALTORCH_FLIGHT_RECORDER": "torch"})
def test_a_healthy_job_does_not_look_hung_to_torchs_own_hook(world):
    skip_without_recorder(world)
    assert len(check_healthy(world)) >= 11
    assert dist.group.WORLD in dist.distributed_c10d._world.pg_flight_recorder_hooks


needs_completion_hooks = pytest.mark.skipif(
    not hasattr(dist.ProcessGroup, "supports_completion_hooks"),
    reason=f"torch {torch.__version__} has no completion hooks",
)


@needs_completion_hooks
@on_ranks(2, env=RECORDS | {"ALTORCH_FLIGHT_RECORDER": "torch"})
def test_torchs_own_hook_is_told_what_has_ended_and_how_long_it_took(world):
    skip_without_recorder(world)
    assert dist.group.WORLD.supports_completion_hooks
    found = check_healthy(world)
    assert {entry["state"] for entry in found} == {"completed"}
    assert all(entry["retired"] and entry["duration_ms"] >= 0 for entry in found)
    reset()
    dist.barrier()
    if world.rank == 1:
        time.sleep(0.5)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    if world.rank == 0:
        assert [entry["retired"] for entry in entries()] == [True, False]
    work.wait()
    assert [entry["state"] for entry in entries()] == ["completed"] * 2
    dist.barrier()


def hooked_until_it_fails(world):
    skip_without_recorder(world)
    dist.all_reduce(torch.ones(4))
    reset()
    dist.group.WORLD.set_timeout(timedelta(seconds=0.5))
    if world.rank == 0:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(4), async_op=True).wait()
        return [(entry["state"], entry["retired"]) for entry in entries()]
    time.sleep(1.5 * PATIENCE)
    return []


@needs_completion_hooks
def test_torchs_own_hook_is_not_told_of_what_failed():
    with Cluster(2, launcher="plain", env=RECORDS | {"ALTORCH_FLIGHT_RECORDER": "torch"}) as cluster:
        assert cluster.check(hooked_until_it_fails)[0] == [("scheduled", False)]


@pytest.mark.skipif(
    not hasattr(recorder.Work, "timeout"), reason=f"torch {torch.__version__} asks no Work for its timeout"
)
@on_ranks(2)
def test_a_work_says_how_much_time_it_has(world):
    if not world.is_al:
        pytest.skip("this group is not altorch's")
    tensor, group = torch.ones(100_003), dist.group.WORLD
    group.set_timeout(timedelta(seconds=77))
    works = [dist.all_reduce(tensor, async_op=True), dist.all_reduce(torch.ones(2), async_op=True)]
    if world.rank == 0:
        works.append(dist.isend(tensor, 1))
    else:
        works.append(dist.irecv(tensor, 0))
    for work in works:
        work.wait()
    assert [work.timeout for work in works] == [timedelta(seconds=77)] * 3
    group.set_timeout(timedelta(seconds=60 * PATIENCE))


@pytest.mark.parametrize(
    ("name", "size"), [("TORCH_FR_BUFFER_SIZE", "many"), ("TORCH_NCCL_TRACE_BUFFER_SIZE", "3000000000")]
)
def test_a_size_that_is_no_number_is_refused_on_all_ranks(name, size):
    code = "import torch.distributed as dist; dist.init_process_group('al')"
    port = str(free_port())
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=clean_environment(where | {"RANK": str(rank)} | ({name: size} if rank == 1 else {})),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=PROGRAM_DEADLINE)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for text in said:
        assert f"{name}='{size}' is no whole number" in text, text


@on_ranks(2, env=RECORDS)
def test_entries_say_what_was_called(world):
    skip_without_recorder(world)
    reset()
    pair = dist.new_group([0, 1], group_desc="a pair")
    dist.all_reduce(torch.ones(3, 5, dtype=torch.bfloat16))
    dist.reduce_scatter_tensor(torch.ones(4), torch.ones(8), group=pair)
    if world.rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        dist.recv(torch.ones(2), 0)
    found = entries()
    assert dist.group.WORLD not in dist.distributed_c10d._world.pg_flight_recorder_hooks
    names = [entry["profiling_name"] for entry in found]
    message = "al:send 0->1" if world.rank == 0 else "al:recv 1<-0"
    assert names == ["al:all_reduce", "al:reduce_scatter", message]
    total, scattered, _ = found
    assert total["input_sizes"] == total["output_sizes"] == [[15]]
    assert total["input_dtypes"] == ["BFloat16"]
    assert total["duration_ms"] > 0
    assert (scattered["input_sizes"], scattered["output_sizes"]) == ([[8]], [[4]])
    assert scattered["process_group"][1] == "a pair"
    assert scattered["collective_seq_id"] == 1
    assert all(entry["state"] == "completed" and entry["retired"] for entry in found)
    assert abs(total["time_created_ns"] / 1e9 - time.time()) < 60


# torch hands such a group's hook the calls that al carries, too.
@on_ranks(2, env=RECORDS)
def test_a_group_that_torchs_hook_watches_is_recorded_once(world):
    skip_without_recorder(world)
    group = dist.new_group([0, 1])
    hook = recorder.FlightRecorderHook.attach(group, [0, 1])
    reset()
    dist.all_reduce(torch.ones(4), group=group)
    dist.barrier(group=group)
    found = entries()
    assert len(found) == 2
    assert all(entry["state"] == "completed" or entry["retired"] for entry in found)
    hook.remove()


@on_ranks(2, env=RECORDS)
def test_torch_sees_the_calls_of_the_last_second_by_itself(world):
    skip_without_recorder(world)
    reset()
    for _ in range(3):  # it sleeps in between
        dist.all_reduce(torch.ones(4))
        time.sleep(1.5)
    seen = json.loads(recorder._dump_fr_trace_json(includeCollectives=True, backend="al"))["entries"]
    assert [entry["state"] for entry in seen] == ["completed"] * 3


# More calls than either ring holds, by more than once.
@on_ranks(2, env=RECORDS)
def test_the_latest_calls_are_kept(world):
    skip_without_recorder(world)
    reset()
    for size in range(1000):
        dist.all_reduce(torch.ones(size + 1))
        if size % 90 == 0:
            altorch.publish_flight_record()
    found = entries()
    assert len(found) == 200
    assert found[-1]["input_sizes"] == [[1000]]
    assert [entry["input_sizes"][0][0] for entry in found][-100:] == list(range(901, 1001))


@on_ranks(2, env={"TORCH_FR_BUFFER_SIZE": "0"})
def test_a_recorder_that_is_off_records_nothing(world):
    skip_without_recorder(world)
    call_everything(world)
    altorch.publish_flight_record()
    assert dist.all_reduce(torch.ones(4)) is None


def meet(world):
    dist.all_reduce(torch.ones(4))
    return world.is_al and HAS_RECORDER


def miss_a_call(world, file=None):
    group = dist.new_group(timeout=timedelta(seconds=2))
    for _ in range(3):
        dist.all_reduce(torch.ones(100), group=group)
    if (
        world.rank == world.size - 1
    ):  # is busy elsewhere; those who miss it have it write down what it has recorded
        time.sleep(5)
        return None
    began = time.monotonic()
    late = world.size - 1
    with pytest.raises(dist.DistBackendError) as missed:
        dist.all_reduce(torch.ones(100), group=group)
    assert f"ranks not waiting in this group: {late}" in str(missed.value)
    assert f"; rank {late}: in no call; last was all_reduce #3 (float32, 400 B), done " in str(missed.value)
    assert f"; its program is at {__file__}:" in str(missed.value)
    assert " in miss_a_call" in str(missed.value)
    assert "this rank's call is all_reduce(SUM) of 100 float32" in str(missed.value)
    took = time.monotonic() - began
    while file and not Path(f"{file}{world.rank}").exists():
        assert time.monotonic() - began < 2 + 6 * PATIENCE
        time.sleep(0.01)
    return took


@pytest.mark.parametrize("nodes", ["0,0,0", "0,0,1", "0,1,1"])
def test_a_missed_deadline_writes_a_file_that_names_the_missing_rank(nodes, tmp_path):
    file = f"{tmp_path}/rank_"
    env = {"TORCH_FR_DUMP_TEMP_FILE": file, "TORCH_FR_DUMP_ON_TIMEOUT": "1", "ALTORCH_TEST_NODES": nodes}
    with Cluster(3, env=env) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip(NO_RECORDER)
        took = cluster.check(miss_a_call, file=file)
    assert max(took[:2]) < 2 + 1 * PATIENCE
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rank_0", "rank_1", "rank_2"]
    analysis = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(tmp_path), "-p", "rank_"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = analysis.stdout + analysis.stderr
    assert "Not all ranks joining collective, sequence number: 4" in told
    assert "missing ranks: {2}" in told
    assert "input sizes: [[100]]" in told


# A file that the user does not want, cannot be written or is never read to its end; variables that
# torch refuses.
@pytest.mark.parametrize("trouble", ["unwanted", "no home", "slow disk", "empty size", "bad word"])
def test_a_failed_call_is_an_error_whatever_becomes_of_its_file(trouble, tmp_path):
    env = {
        "unwanted": {"TORCH_FR_DUMP_ON_TIMEOUT": "0", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"},
        "no home": {
            "TORCH_FR_DUMP_ON_TIMEOUT": "1",
            "HOME": "/proc/nowhere",
            "XDG_CACHE_HOME": "/proc/nowhere",
        },
        "slow disk": {"TORCH_FR_DUMP_ON_TIMEOUT": "1", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"},
        "empty size": {"TORCH_FR_DUMP_ON_TIMEOUT": "0", "TORCH_FR_BUFFER_SIZE": ""},
        "bad word": {"TORCH_FR_DUMP_ON_TIMEOUT": "0", "TORCH_FR_CPP_STACK": "on"},
    }[trouble]
    if trouble == "slow disk":
        os.mkfifo(tmp_path / "rank_0")
    with Cluster(2, env=env) as cluster:
        if not cluster.check(meet)[0]:
            pytest.skip(NO_RECORDER)
        assert cluster.check(miss_a_call)[0] < 2 + 1 * PATIENCE
        cluster.check(call_everything)
    assert trouble == "slow disk" or not list(tmp_path.iterdir())
