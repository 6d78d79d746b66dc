# SPDX-License-Identifier: BSD-3-Clause
"""`altorch simulate`, and the replay of recorded jobs. tests/cpp/simulate holds the simulation itself."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from harness import PATIENCE

from altorch.cli import _replay, _units, main
from altorch.report.records import Call, Group
from tests.fuzz import python_parsers
from tests.ranks.launch import backend_under_test

pytestmark = pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")
MS = 1_000_000


@pytest.fixture
def simulate(capsys):
    """Runs the command in this process: its status, and what it prints and complains of."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["simulate", *arguments])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def rows_of(simulate):
    def run(*arguments: str) -> list[dict]:
        status, printed, _ = simulate("--json", *arguments)
        assert status == 0
        return json.loads(printed)["rows"]

    return run


def test_times_follow_the_description_of_the_network(rows_of):
    (row,) = rows_of(
        "broadcast", "--sizes", "1M", "--nodes", "2", "--alpha", "10us", "--beta", "1GB/s", "--call", "0s"
    )
    assert row["seconds"] == pytest.approx(10e-6 + (1 << 20) / 1e9)
    assert row["lower_bound_seconds"] == pytest.approx(row["seconds"])
    (slow,) = rows_of(
        "broadcast",
        "--sizes",
        "1M",
        "--nodes",
        "2",
        "--alpha",
        "10us",
        "--rank-beta",
        "4Gb/s",
        "--call",
        "0s",
    )
    assert slow["seconds"] == pytest.approx(10e-6 + (1 << 20) / 0.5e9)


def test_more_ranks_take_the_route_that_they_would_take(rows_of):
    found = rows_of("all_reduce", "--sizes", "16M", "--nodes", "1,64", "--per-node", "8")
    assert [row["route"] for row in found] == ["shm", "hierarchical"]
    assert all(stage["source"] in ("measured", "events", "given") for stage in found[1]["stages"])


def test_the_table_names_what_it_simulates(simulate):
    _, said, _ = simulate("all_to_all", "--sizes", "4K", "--nodes", "8", "--stages")
    for word in ("all_to_all", "4 KiB", "lower bound", "linear", "56", "requests"):
        assert word in said, said


def test_blocks_smaller_than_an_element_take_a_time(rows_of):
    for row in rows_of("all_gather", "all_to_all", "--sizes", "0,1", "--nodes", "2", "--per-node", "2"):
        assert row["seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--beta", "0GB/s"], "must be above 0"),
        (["--beta", "25"], "'25' is not a rate"),
        (["--alpha=-1us"], "'-1us' is not a time"),
        (["--alpha", "nanus"], "'nanus' is not a time"),
        (["--alpha", "1e400s"], "is not a time"),
        (["--alpha", "2s"], "must lie between 0 and 1 s"),
        (["--nodes", "0"], "--nodes: 0"),
        (["--nodes", "2,x"], "no list of numbers"),
        (["--nodes", "99999999999"], "between 1 and 131072"),
        (["--nodes", "1024", "--per-node", "1000"], "at most 131072 ranks"),
        (["--per-node", "0"], "--per-node: 0"),
        (["--sizes", "wide"], "'wide' is not a size"),
        (["--sizes", "99999999999T"], "no memory holds so much"),
        (["--dtype", "float7"], "no element type"),
        (["send"], "only collectives"),
        (["nothing"], "no operation"),
        (["--ranks", "8"], "--ranks goes with --record"),
        (["--cores", "2"], "go with --record"),
        (["--plot", "drawing"], "must end with"),
        (["--plot", "/nonexistent/x.svg"], "no such folder"),
        (["--goal", "x.goal"], "--goal writes one program"),
        (["--record", "/nonexistent", "--ranks", "8"], "/nonexistent"),
    ],
)
def test_bad_input_is_a_sentence(simulate, arguments, reason):
    status, printed, complaint = simulate(*arguments)
    assert status == 2 and reason in complaint and printed == "", complaint


def test_goal_and_plots_are_written(simulate, tmp_path):
    pytest.importorskip("matplotlib")
    goal, plot = tmp_path / "ring.goal", tmp_path / "times.svg"
    _, said, _ = simulate("all_gather", "--sizes", "64K", "--nodes", "16", "--goal", str(goal))
    assert "LogGOPSim" in said and goal.read_text().startswith("num_ranks 16\n")
    simulate("all_gather", "--sizes", "64K,1M", "--nodes", "2,16", "--plot", str(plot))
    assert "1 MiB" in plot.read_text()


# A job of 2 ranks: its program computes 3 ms, issues two buckets 1 ms apart without waiting, and
# waits for both.
def recorded(rank: int, steps: int, took: Callable[[int], int], seed: int = 0) -> list[Call]:
    noise = random.Random(seed)
    group = Group("0", "default_pg", (0, 1))
    calls: list[Call] = []
    now, number = 10 * MS, 0
    for _ in range(steps):
        now += 3 * MS + noise.randrange(1000)
        ends = []
        for bucket in range(2):
            number += 1
            begin = now + bucket * MS
            start = max([begin, *ends])
            ends.append(start + took(bucket))
            call = Call(rank, group, "all_reduce", number, False, begin, ends[-1], took(bucket))
            calls.append(replace(call, bytes=1 << 20, dtype="float32"))
        now = max(ends)
    return calls


def job(took: Callable[[int], int]) -> _replay.Job:
    return _replay.job_of([call for rank in range(2) for call in recorded(rank, 12, took, seed=rank)])


def test_a_replay_with_the_recorded_times_takes_the_recorded_time():
    made = job(lambda bucket: 2 * MS + bucket * MS)
    assert made.period == 2
    took = _replay.recorded_seconds(made)
    again = _replay.step_seconds(made, lambda call: took[call.group.name, call.sequence])
    assert again == pytest.approx(_replay.recorded_step_seconds(made), rel=1e-3)
    assert again == pytest.approx(8e-3, rel=1e-2)  # 3 to compute, then 2 + 3 of buckets


@pytest.mark.parametrize("milliseconds", [0.0, 0.4, 1.0, 5.0])
def test_a_replay_keeps_what_overlaps(milliseconds):
    made = job(lambda _: 2 * MS)
    # The second bucket is issued 1 ms after the first, whether that has ended or not.
    expected = 3 + max(2 * milliseconds, 1 + milliseconds)
    assert _replay.step_seconds(made, lambda _: milliseconds / 1e3) == pytest.approx(expected / 1e3, rel=1e-2)


def test_slower_computing_makes_the_step_longer():
    made = job(lambda _: 2 * MS)
    assert _replay.step_seconds(made, lambda _: 0.0, slowdown=2) == pytest.approx(8e-3, rel=1e-2)


def test_a_record_that_does_not_repeat_is_refused():
    calls = recorded(0, 5, lambda _: MS)
    both = calls + recorded(1, 5, lambda _: MS)
    odd = [replace(call, bytes=number % 10) for number, call in enumerate(both)]
    with pytest.raises(ValueError, match="do not repeat"):
        _replay.job_of(odd)
    with pytest.raises(ValueError, match="no collective"):
        _replay.job_of([])
    swapped = recorded(1, 5, lambda _: MS)
    swapped[0] = replace(swapped[0], sequence=2)
    swapped[1] = replace(swapped[1], sequence=1)
    with pytest.raises(ValueError, match="different orders"):
        _replay.job_of(calls + swapped)


def record_file(folder: Path, rank: int, steps: int = 12) -> Path:
    """As torch writes one."""
    entries = [
        {
            "process_group": ["0", "default_pg"],
            "collective_seq_id": call.sequence,
            "profiling_name": "al:all_reduce",
            "time_created_ns": call.begin_ns,
            "time_discovered_completed_ns": call.end_ns,
            "duration_ms": call.took_ns / 1e6,
            "input_sizes": [[call.bytes // 4]],
            "input_dtypes": ["Float"],
            "output_sizes": [[call.bytes // 4]],
            "output_dtypes": ["Float"],
            "state": "completed",
            "retired": True,
            "is_p2p": False,
        }
        for call in recorded(rank, steps, lambda _: 2 * MS, seed=rank)
    ]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    file = folder / f"rank_{rank}"
    file.write_text(json.dumps({"version": "2.10", "pg_config": config, "entries": entries}))
    return file


def test_a_record_tells_the_step_of_more_ranks(simulate, rows_of, tmp_path):
    files = [str(record_file(tmp_path, rank)) for rank in range(2)]
    _, printed, _ = simulate(
        *("--json", "--record", *files, "--ranks", "2,4,4096", "--per-node", "2", "--beta", "0.5GB/s")
    )
    found = json.loads(printed)
    assert found["recorded"]["ranks"] == 2
    assert found["recorded"]["replayed_seconds"] == pytest.approx(found["recorded"]["step_seconds"], rel=0.02)
    same, double, many = found["rows"]
    assert same["step_seconds"] == pytest.approx(found["recorded"]["step_seconds"], rel=0.02)
    assert same["step_seconds"] < double["step_seconds"] < many["step_seconds"]
    assert same["dominated_by"] == "compute" and many["nodes"] == 2048
    for row in found["rows"]:
        parts = [row[f"{part}_seconds"] for part in ("compute", "skew", "latency", "transfer")]
        assert sum(parts) == pytest.approx(row["step_seconds"], rel=0.01)
    shared = rows_of("--record", *files, "--ranks", "4", "--per-node", "4", "--cores", "2")
    assert shared[0]["compute_seconds"] == pytest.approx(2 * same["compute_seconds"], rel=0.01)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], "not valid JSON"),
        (lambda text: "[]", "no collective"),
        (lambda text: "", "empty"),
        (lambda text: text.replace("1000", "-9", 1).replace("time_created_ns", "time"), ""),
        (lambda text: text.replace("time_created_ns", "time"), "time_created_ns"),
    ],
)
def test_a_damaged_record_is_a_sentence(simulate, tmp_path, damage, reason):
    files = [record_file(tmp_path, rank) for rank in range(2)]
    for file in files:
        file.write_text(damage(file.read_text()))
    status, _, complaint = simulate("--record", *map(str, files), "--ranks", "4", "--per-node", "4")
    assert status == 2 and reason in complaint, complaint


def test_operations_that_are_not_known_take_the_recorded_time(simulate, tmp_path):
    files = [record_file(tmp_path, rank) for rank in range(2)]
    for file in files:
        file.write_text(file.read_text().replace("al:all_reduce", "al:shuffle"))
    status, printed, complaint = simulate(
        "--json", "--record", *map(str, files), "--ranks", "4", "--per-node", "4"
    )
    assert status == 0 and "shuffle cannot be simulated" in complaint
    found = json.loads(printed)
    assert found["rows"][0]["step_seconds"] == pytest.approx(found["recorded"]["step_seconds"], rel=0.02)


def test_a_job_that_waits_for_each_call_is_replayed_so():
    group = Group("0", "default_pg", (0, 1))
    calls = [
        Call(rank, group, "all_reduce", step + 1, False, step * 11 * MS, step * 11 * MS + MS, MS)
        for rank in range(2)
        for step in range(12)
    ]
    assert _replay.step_seconds(_replay.job_of(calls), lambda _: 5e-3) == pytest.approx(15e-3)
    with pytest.raises(ValueError, match="one rank"):
        _replay.job_of(calls[:12])


@pytest.mark.parametrize("target", python_parsers.TARGETS)
def test_damaged_files_are_read_or_refused(target):
    turns, refused, finding = python_parsers.fuzz(target, 60 * PATIENCE, seed=1, most=150)
    assert not finding and 0 < refused < turns, finding


def test_units():
    assert _units.parse_seconds("1.5ms") == 1.5e-3
    assert _units.parse_rate("200Gb/s") == 25e9 == _units.parse_rate("25GB/s")
    assert _units.short_time(4.18e-6) == "4.18 us" and _units.short_time(12.34e-3) == "12.3 ms"
