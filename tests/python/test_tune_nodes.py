# SPDX-License-Identifier: BSD-3-Clause
"""`altorch tune` among ranks on several nodes: what is tried, and for which groups the rules hold."""

from __future__ import annotations

import argparse
import json

import pytest
import torch.distributed as dist
from harness import PROGRAM_DEADLINE
from test_cli import document
from test_tune import TWO_STEPS, file_of

from altorch import _tuned
from altorch._extension import extension
from altorch.bench import process_group, rows, sweep, tuning
from altorch.cli import _tune_group, _tune_measure
from altorch.cli._tune_group import Group
from tests.ranks.launch import backend_under_test, clean_environment, fork_server, rank_environment
from tests.ranks.ports import free_port

pytestmark = pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")
BETWEEN_NODES = {
    "operation": "all_reduce",
    "device": "cuda",
    "ranks": 4,
    "nodes": 2,
    "from": 0,
    "below": 65536,
    "choice": "hierarchical",
    "gain": 1.3,
}


def file_for_gpus(folder, *rules):
    return file_of(folder, *rules, machine=_tuned.machine(on_gpus=True))


def test_the_group_is_that_of_the_engine(monkeypatch):
    places = [(node, f"{node}/{gpu}") for node in "ab" for gpu in range(4)]
    assert _tune_group.of_places("cuda", places) == Group("cuda", 8, 2, shared_gpus=False)
    assert str(_tune_group.of_places("cuda", places)) == "8 ranks on 2 nodes"
    assert str(_tune_group.of_places("cpu", [("a", ""), ("a", "")])) == "2 ranks"
    # One GPU that two nodes use, cut out of a machine.
    assert _tune_group.of_places("cuda", [("a", "x"), ("b", "x")]).shared_gpus
    assert not _tune_group.of_places("cpu", [("a", ""), ("b", "")]).shared_gpus

    class Gpu:
        type, uuid = "cuda", "GPU-1"

    monkeypatch.setattr(process_group.torch.cuda, "get_device_properties", lambda device: device)
    monkeypatch.setenv("NCCL_HOSTID", "")
    assert process_group.gpu_identity(Gpu()) == "GPU-1"
    monkeypatch.setenv("NCCL_HOSTID", "node1")
    assert process_group.gpu_identity(Gpu()) == "GPU-1/node1"


def test_what_is_tried_between_nodes_is_what_there_is():
    assert Group("cuda", 16, 2).choices("all_reduce") == ["nccl", "hierarchical", "host_relay"]
    assert Group("cuda", 16, 2, shared_gpus=True).choices("all_reduce") == ["hierarchical", "host_relay"]
    assert Group("cuda", 2, 2).choices("all_reduce") == ["nccl", "host_relay"]  # each rank alone on its node
    assert "peer" in Group("cuda", 2).choices("all_reduce")
    rules = [
        BETWEEN_NODES | {"operation": name, "choice": choice}
        for name in tuning.OPERATIONS["cuda"]
        for choice in Group("cuda", 4, 2).choices(name)
    ]
    extension().set_tuned_rules(_tuned.as_text({"rules": rules}))  # refuses what there is not
    extension().set_tuned_rules("")


def test_a_rule_holds_for_its_number_of_nodes(tmp_path):
    on_one = {name: value for name, value in BETWEEN_NODES.items() if name != "nodes"}
    path = file_for_gpus(tmp_path, BETWEEN_NODES, on_one | {"choice": "host_relay"})

    def asked(nodes, size="8K"):
        group = ["--device", "cuda", "--ranks", "4", "--nodes", nodes]
        said = document("explain", "all_reduce", *group, "--bytes", size, env={"ALTORCH_TUNED": str(path)})
        return said["route"], said["reason"] == "ALTORCH_TUNED"

    assert asked("2") == ("hierarchical", True)
    assert asked("2", "1M") == ("nccl", False)
    assert asked("1") == ("host_relay", True)
    assert asked("4") == ("nccl", False)
    changes = document("tune", "--diff", "--out", str(path))["changes"]
    assert [(change["ranks"], change["nodes"]) for change in changes] == [(4, 2), (4, 1)]


@pytest.fixture
def fake_gpus(monkeypatch):
    """Times of 16 ranks on two nodes, where `hierarchical` is twice as fast as the default."""

    def join(device):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        return argparse.Namespace(type=device)

    def measure(self, device, emit, at):
        for job in self.jobs():
            at(job)
            for name in self.contenders:
                took = 1.0 if name == "al:hierarchical" else 2.0
                row = {"operation": job.operation, "bytes": job.size, "contender": name}
                emit(row | {"p10_us": took, "median_us": took})

    where = rows.where
    monkeypatch.setattr(process_group, "join", join)
    monkeypatch.setattr(_tune_group, "find", lambda device: Group("cuda", 16, 2))
    monkeypatch.setattr(sweep.Sweep, "measure", measure)
    monkeypatch.setattr(rows, "where", lambda program, device: where(program))


def test_routes_between_nodes_become_rules_for_such_groups(tmp_path, fake_gpus, capsys):
    arguments = argparse.Namespace(
        device="cuda",
        operations=["all_reduce"],
        sizes="1K,64K",
        budget=1,
        passes=1,
        json=False,
        resume=False,
        out=tmp_path / "tuned.json",
    )
    others = [TWO_STEPS, *(BETWEEN_NODES | {"ranks": 16, "nodes": nodes} for nodes in (1, 4))]
    stale = BETWEEN_NODES | {"ranks": 16, "choice": "host_relay"}
    costs = [{"operation": "all_reduce", "device": "cuda", "ranks": 16, "us": [[8, 1.0]]}]
    document = json.loads(file_for_gpus(tmp_path, *others, stale).read_text())
    arguments.out.write_text(json.dumps(document | {"costs": costs}))
    assert _tune_measure.measure(arguments) == 0
    assert "Faster than the default among 16 ranks on 2 nodes" in capsys.readouterr().out
    written = _tuned.read(arguments.out)
    first, *kept = written["rules"]
    assert (first["ranks"], first["nodes"], first["choice"]) == (16, 2, "hierarchical")
    assert kept == others
    assert written["costs"] == costs  # of groups on one node
    assert _tuned.as_text(written).startswith("all_reduce@16/2:")


def test_cpu_tensors_are_for_one_node(tmp_path):
    port, ranks = free_port(), []
    for rank in range(2):
        env = rank_environment(rank, 2, "127.0.0.1", port) | {"ALTORCH_NODE": f"node{rank}"}
        errors = tmp_path / f"errors-{rank}"
        arguments = (["tune", "--out", str(tmp_path / "tuned.json")], str(errors))
        started = fork_server().start(
            "test_cli:run_command", clean_environment(env), tmp_path / f"output-{rank}", *arguments
        )
        ranks.append((started, errors))
    try:
        assert [child.wait(PROGRAM_DEADLINE) for child, _ in ranks] == [2, 2]
    finally:
        for child, _ in ranks:
            child.kill()
    said = ranks[0][1].read_text()
    assert "nodes, and CPU tensors are measured only among" in said
