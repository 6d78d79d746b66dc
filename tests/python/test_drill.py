# SPDX-License-Identifier: BSD-3-Clause
"""The drill itself: it passes nothing that it should not, ends what hangs, cleans up. And a few of its cells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from tests.drill import __main__ as command
from tests.drill import needs
from tests.drill.cells import CELLS, FINE, noticed
from tests.drill.expectations import ERROR, SUCCESS, WRONG, RankEnd, Seen, objections
from tests.drill.leftovers import SHARED, SharedMemory, descendants
from tests.drill.report import markdown
from tests.drill.routes import ROUTES
from tests.drill.runner import Result, Runner
from tests.drill.scene import is_marked
from tests.ranks.launch import backend_under_test

VERSION = torch.__version__.partition("+")[0]
BY_NAME = {cell.name: cell for cell in CELLS}
pytestmark = pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")


@pytest.fixture(scope="module")
def runner():
    with Runner() as runner:
        yield runner


REPRESENTATIVE = [
    "killed before all_reduce @ shm",
    "killed in large all_reduce, 3 ranks @ nodes",
    "killed in wait_signal @ nodes",
    "late before all_reduce, async @ al-gloo",
    "stopped for 2 s in recv @ mpi",
    "other count in a call @ shm",
    "nothing at the end, work in flight alone @ al-gloo",
    "killed before all_reduce, then survivors, 3 ranks @ shm",
    "killed late in reconfigure @ shm",
]


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_a_cell_ends_as_expected(runner, name):
    result = runner.run(BY_NAME[name])
    if result.seen.skipped:
        pytest.skip(result.seen.skipped)
    assert result.objections == [], result.seen


def test_a_wrong_expectation_is_an_objection(runner):
    cell = BY_NAME["killed before all_reduce @ shm"]
    seen = runner.run(cell).seen
    assert Result(cell, seen).objections == []
    assert "instead of success" in Result(replace(cell, expected=FINE), seen).objections[0]
    other = replace(cell, expected=noticed("all_reduce", "rank 7 is lost"))
    assert "was not told rank 7 is lost" in Result(other, seen).objections[0]


def test_a_hang_is_ended_at_the_limit_and_reported(runner):
    began = time.monotonic()
    result = runner.run(BY_NAME["late within the deadline before all_reduce @ shm"], limit=1.5)
    assert time.monotonic() - began < 15
    assert str(result.seen) == "hang"
    assert [text for text in result.objections if "hung in its call" in text]
    assert [end for end in result.seen.ranks if "all_reduce" in end.output], "no stack of where it hung"
    deadline = time.monotonic() + 10
    while descendants(runner.process_id) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert descendants(runner.process_id) == []


def test_a_process_of_a_cell_that_dies_or_hangs_is_reported(runner, monkeypatch):
    cell, start = BY_NAME["killed before all_reduce @ shm"], runner._server.start

    def seen_of(program, argument):
        monkeypatch.setattr(
            runner._server, "start", lambda _, env, log, *__: start(program, env, log, argument)
        )
        return str(runner.run(cell, limit=0.2).seen)

    monkeypatch.setattr("tests.drill.runner.CLEARING_UP", 0.2)
    assert "the drill broke: the cell's process did not end" in seen_of("time:sleep", 1000)
    monkeypatch.setattr("tests.drill.runner.CLEARING_UP", 30.0)
    assert "ended with exit code 7" in seen_of("sys:exit", 7)
    assert "No module named 'nothing'" in seen_of("nothing:at_all", None)
    assert list(runner._folder.iterdir()) == []


def ends(**changes):
    """Of two ranks, the second of which was killed."""
    survivor = RankEnd(0, True, 0, ERROR, "altorch: group '0', rank 0: all_reduce #1: rank 1 is lost", 1.0, 0)
    victim = RankEnd(1, False, -9, exit_code=-9)
    return Seen([replace(survivor, **changes), victim])


KILLED = noticed("all_reduce", "rank 1 is lost")


def test_what_is_as_expected_meets_no_objection():
    assert objections(KILLED, ends()) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"outcome": SUCCESS, "message": ""}, "saw success instead of error"),
        ({"outcome": WRONG}, "saw wrong instead of error"),
        ({"outcome": ""}, "saw nothing instead of error"),
        ({"seconds": 1000.0}, "was told after 1000.0 s"),
        ({"message": "Connection reset by peer"}, "was not told group '"),
        ({"exit_code": 1}, "ended with exit code 1 instead of 0"),
        ({"exit_code": -6}, "ended with exit code -6"),
        ({"exit_code": None}, "hung after its error"),
        ({"last_words": "terminate called without an active exception"}, "left a last line: terminate"),
    ],
)
def test_what_is_not_as_expected_meets_one(changes, says):
    assert any(says in text for text in objections(KILLED, ends(**changes)))


def test_neither_does_what_is_left_behind_nor_a_broken_drill():
    assert objections(KILLED, replace(ends(), left_behind=["process 7"])) == ["left behind: process 7"]
    assert objections(KILLED, Seen(broken="no fork server"))


def test_what_the_victim_reads_must_not_be_wrong():
    late = RankEnd(1, False, 0, WRONG, "3 instead of 2", exit_code=0)
    assert "rank 1 saw a wrong result: 3 instead of 2" in objections(KILLED, Seen([late]))


def test_other_backends_are_recorded_and_not_judged():
    cell = replace(BY_NAME["killed before all_reduce @ shm"], route=ROUTES["gloo"])
    assert Result(cell, ends(exit_code=None)).objections == []
    assert "| hang at the end |" in markdown([Result(cell, ends(exit_code=None))], 1.0)


def test_leftovers_are_found():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert child.pid in descendants(os.getpid())
    finally:
        child.kill()
        child.wait()
    memory = SharedMemory()
    left = SHARED / f"altorch-drill-{child.pid}"
    left.write_bytes(b"x")
    try:
        assert memory.new_and_unused() == [left.name]
    finally:
        left.unlink()


def test_a_route_that_is_missing_is_skipped_with_the_reason(runner, monkeypatch):
    monkeypatch.setattr("tests.drill.needs.names_of_gpus", lambda: ())
    result = runner.run(next(cell for cell in CELLS if cell.route.device == "cuda"))
    assert "no GPU is visible" in str(result.seen) and result.objections == []
    assert "no GPU is visible, and 1 needed" in markdown([result], 1.0)


@pytest.mark.parametrize(
    ("name", "gpus", "unsupported_reason"),
    [
        ("killed before all_reduce @ host_staged", 1, ""),
        ("killed before all_reduce @ peer", 1, "1 GPU is visible, and 2 needed"),
        ("killed before all_reduce @ peer", 2, ""),
        ("killed in replayed graphs @ host_staged", 1, "1 GPU is visible, and 2 needed"),
        ("killed before all_reduce, then survivors, 3 ranks @ cuda", 2, "2 GPUs are visible, and 3 needed"),
        ("killed before all_reduce, 4 ranks @ hierarchical", 1, "1 GPU is visible, and 2 needed"),
        ("killed before all_reduce, 4 ranks @ hierarchical", 2, ""),
        ("killed before all_reduce, 4 ranks @ hierarchical-relay", 1, ""),
        ("killed in replayed graphs, 4 ranks @ hierarchical", 2, "2 GPUs are visible, and 4 needed"),
        ("killed before all_reduce @ shm", 0, ""),
    ],
)
def test_what_a_cell_needs_of_gpus(name, gpus, unsupported_reason, monkeypatch):
    monkeypatch.setattr("tests.drill.needs.names_of_gpus", lambda: ("NVIDIA H100",) * gpus)
    assert BY_NAME[name].unsupported_reason == unsupported_reason


@pytest.mark.parametrize(
    ("route", "hosts"),
    [("nodes", "0101"), ("hierarchical", "0011"), ("hierarchical-relay", ["one"] * 4), ("peer", [None] * 4)],
)
def test_ranks_on_nodes_are_on_hosts_of_nccl(route, hosts):
    environments = [ROUTES[route].environment(rank) for rank in range(4)]
    assert [each.get("NCCL_HOSTID") for each in environments] == list(hosts)
    nodes = {"nodes": "0101", "peer": [None] * 4}.get(route, "0011")
    assert [each.get("ALTORCH_NODE") for each in environments] == list(nodes)


def test_what_this_torch_lacks_is_unsupported(monkeypatch):
    monkeypatch.setattr("tests.drill.needs.names_of_gpus", lambda: ("NVIDIA H100",) * 2)
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: name != "nccl2")
    assert (
        f"torch {VERSION} has no backend nccl2"
        == BY_NAME["killed before all_reduce @ nccl2"].unsupported_reason
    )
    assert BY_NAME["killed before all_reduce @ nccl"].unsupported_reason == ""
    monkeypatch.delattr(torch.distributed, "_reconfigure", raising=False)
    assert (
        BY_NAME["killed before reconfigure @ shm"].unsupported_reason
        == f"torch {VERSION} has no reconfigure()"
    )


def test_gpus_are_listed_without_cuda(monkeypatch, tmp_path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'; echo '  MIG 1g.10gb'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    needs.names_of_gpus.cache_clear()
    try:
        assert needs.names_of_gpus() == ("NVIDIA H100 80GB HBM3",)
    finally:
        needs.names_of_gpus.cache_clear()


def test_results_on_cuda_tensors_may_be_marked():
    marked = is_marked(torch.tensor([1.0, float("nan")], dtype=torch.float16))
    assert marked.tolist() == [False, True]
    assert is_marked(torch.tensor([1, -(2**31)], dtype=torch.int32)).tolist() == [False, True]


@pytest.mark.parametrize("as_expected", [True, False])
def test_the_exit_code_says_whether_all_ended_as_expected(as_expected, tmp_path, monkeypatch):
    cell = BY_NAME["killed before all_reduce @ shm"]
    monkeypatch.setattr(command, "CELLS", [cell if as_expected else replace(cell, expected=FINE)])
    files = [tmp_path / "drill.json", tmp_path / "drill.md"]
    monkeypatch.setattr(sys, "argv", ["drill", "--json", str(files[0]), "--markdown", str(files[1])])
    assert command.main() == (0 if as_expected else 1)
    (document,) = json.loads(files[0].read_text())
    assert document["cell"] == cell.name and bool(document["objections"]) != as_expected
    assert "killed before all_reduce" in files[1].read_text()


def test_names_of_cells_are_theirs_alone():
    assert len(BY_NAME) == len(CELLS) >= 80
