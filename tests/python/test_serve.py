# SPDX-License-Identifier: BSD-3-Clause
"""altorch under the names of torch's own backends: altorch.serve() and ALTORCH_SERVES."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from harness import Cluster
from test_registration import installed

import altorch
from altorch import _serve
from tests.ranks.launch import backend_under_test, clean_environment, free_port, launcher_under_test

OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14)
pytestmark = [
    pytest.mark.skipif(backend_under_test() != "al", reason="altorch's own: ALTORCH_TEST_BACKEND is not al"),
    pytest.mark.skipif(
        launcher_under_test() != "plain", reason="the ranks are started by the tests themselves"
    ),
]


def carrier(group=None):
    group = group or dist.group.WORLD
    return group._get_backend(torch.device("cpu"))


def is_served(group=None):
    from altorch import _C

    return isinstance(carrier(group), _C.Backend)


def as_gloo(world, by_alias):
    if by_alias:  # as under torch 2.11 to 2.13
        _serve._plugin = lambda name: None
        # A newer torch asks the default backend for a hook, before altorch has changed which
        # backend that is.
        dist.distributed_c10d._maybe_attach_flight_recorder = lambda *words: None
    altorch.serve("gloo", "GLOO")
    world.start("gloo")
    assert dist.get_backend() == "gloo" and is_served() and carrier().name() == "gloo"
    tensor = torch.full((5,), world.rank + 1.0)
    with torch.profiler.profile() as profile:
        dist.all_reduce(tensor)
    assert tensor.tolist() == [sum(range(1, world.size + 1))] * 5
    assert "gloo:all_reduce" in {event.name for event in profile.events()}
    found = [None] * world.size
    dist.all_gather_object(found, {"rank": world.rank})
    assert found == [{"rank": rank} for rank in range(world.size)]
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    assert sum(row["count"] for row in altorch.stats()) >= 2

    options = dist.ProcessGroupGloo._Options()
    for group in (
        dist.new_group(backend="gloo", pg_options=options),
        dist.new_group([0]),
        dist.new_group(backend="al"),
        dist.new_group(backend="cpu:gloo"),
    ):
        if world.rank in dist.get_process_group_ranks(group):
            assert is_served(group)
            dist.all_reduce(torch.ones(3), group=group)
    assert carrier(dist.new_group(backend="al")).name() == "al"

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    model(torch.ones(4, 3)).sum().backward()

    altorch.serve("gloo")  # again: nothing changes
    dist.destroy_process_group()
    world.start("gloo")
    assert is_served()
    with pytest.raises(TypeError, match="altorch: group"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool), op=dist.ReduceOp.AVG)


@pytest.mark.parametrize("by_alias", [False, True])
def test_a_group_of_gloo_is_altorchs_and_keeps_its_name(by_alias):
    with Cluster(2, group=False, launcher="plain") as cluster:
        cluster.check(as_gloo, by_alias=by_alias)


def as_mpi(world):
    altorch.serve("mpi")
    dist.init_process_group("mpi")
    assert (dist.get_rank(), dist.get_world_size()) == (world.rank, world.size)
    assert dist.get_backend() == "mpi" and is_served()
    group = dist.new_group([1, 0])
    assert is_served(group)
    for each in (None, group):
        tensor = torch.full((4,), world.rank + 1.0)
        dist.all_reduce(tensor, group=each)
        assert tensor.tolist() == [3.0] * 4
    dist.destroy_process_group()


@pytest.mark.skipif(OLD, reason="torch before 2.14 makes groups of mpi itself")
def test_a_group_of_mpi_needs_no_torch_built_with_mpi():
    with Cluster(2, group=False, launcher="plain") as cluster:
        cluster.check(as_mpi)


def on_one_rank_only(world):
    if world.rank == 0:
        altorch.serve("gloo")
    with pytest.raises(RuntimeError) as raised:
        dist.init_process_group("gloo", timeout=timedelta(seconds=4))
    return str(raised.value)


def test_a_rank_that_does_not_serve_is_told_of():
    with Cluster(2, group=False, launcher="plain") as cluster:
        text = cluster.run(on_one_rank_only)[0].value
        assert "rank 1 has not come" in text and "Serve 'gloo' on all ranks" in text, text


def too_late(world):
    world.start("gloo")
    with pytest.raises(RuntimeError, match="a group with backend 'gloo' exists already"):
        altorch.serve("gloo")
    dist.barrier()
    assert not is_served()


def test_a_group_that_exists_is_not_taken():
    with Cluster(2, group=False, launcher="plain") as cluster:
        cluster.check(too_late)


PROGRAM = """
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), "2"
    dist.init_process_group("gloo")
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)
    line = f"{type(backend).__module__} {dist.get_backend()} {tensor.tolist() == [2.0] * 3}\\n"
    os.write(1, line.encode())  # at once: the other rank writes, too
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""


@pytest.mark.parametrize("debug", ["OFF", "DETAIL"])
def test_a_variable_serves_a_program_and_its_spawned_workers(tmp_path, debug):
    if not installed("torch.backends"):
        pytest.skip("altorch is on the path but not installed, so there are no entry points")
    (tmp_path / "program.py").write_text(PROGRAM)
    variables = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCH_DISTRIBUTED_DEBUG": debug,
    }
    done = subprocess.run(
        [sys.executable, "program.py"],
        env=clean_environment({"ALTORCH_SERVES": "gloo", **variables}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[1:] for row in rows] == [["gloo", "True"]] * 2, done.stdout + done.stderr
    if debug == "OFF":
        assert {row[0] for row in rows} == {"altorch._C"}, done.stdout
    assert done.stderr.count("altorch: serves the backend name 'gloo'") == 1, done.stderr


def test_what_cannot_be_served_is_a_sentence(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ValueError, match=r"'glo' is no backend .* it serves gloo, nccl, mpi"):
        altorch.serve("gloo", "glo")
    with pytest.raises(RuntimeError, match="'nccl' is for CUDA tensors, and no GPU is visible"):
        altorch.serve("nccl")
    monkeypatch.setenv("ALTORCH_SERVES", "glo, nccl")
    with pytest.warns(RuntimeWarning) as warned:
        _serve.serve_environment()
    assert len(warned) == 2
    assert _serve.served() == []  # where one name of a call is wrong, none is taken


@pytest.mark.skipif(not OLD, reason="this torch has a table of creators")
def test_mpi_under_an_older_torch_is_a_sentence():
    with pytest.raises(RuntimeError, match=r"that needs torch 2\.14 or newer; write backend='al' instead"):
        altorch.serve("mpi")
