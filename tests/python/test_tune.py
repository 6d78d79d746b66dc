# SPDX-License-Identifier: BSD-3-Clause
"""`altorch tune` and ALTORCH_TUNED: what is measured becomes rules, which hold where they were measured."""

from __future__ import annotations

import json
import os
import warnings

import pytest
import torch
import torch.distributed as dist
from harness import Cluster, backend_under_test
from test_cli import altorch, document

from altorch import _tuned
from altorch._extension import extension
from altorch._version import __version__
from altorch.bench import tuning
from altorch.bench.unfinished import Unfinished

pytestmark = pytest.mark.skipif(backend_under_test() != "al", reason="ALTORCH_TEST_BACKEND is not al")
TWO_STEPS = {
    "operation": "all_reduce",
    "ranks": 2,
    "from": 0,
    "below": 65536,
    "choice": "shm/two_steps",
    "gain": 1.2,
}


def content(*rules, **changes):
    return {
        "altorch_tuned": 1,
        "altorch": __version__,
        "machine": _tuned.machine(),
        "rules": list(rules or [TWO_STEPS]),
    } | changes


def file_of(folder, *rules, **changes):
    path = folder / "tuned.json"
    path.write_text(json.dumps(content(*rules, **changes)))
    return path


def test_what_is_measured_becomes_a_file_that_is_loaded(tmp_path):
    out = tmp_path / "tuned.json"
    # With three ranks a case has more bytes than were asked for.
    sizes = ["--sizes", "1K,64K", "--budget", "1.5", "--passes", "1"]
    said = altorch("tune", "--ranks", "3", *sizes, "--out", str(out))
    assert "written:" in said and ("Faster than the default" in said or "no choice is faster" in said)
    written = json.loads(out.read_text())
    assert _tuned.read(out) == written
    # What the file says of other numbers of ranks stays.
    others = [rule | {"ranks": 4} for rule in [TWO_STEPS]]
    out.write_text(json.dumps(content(*others)))
    assert document("tune", "--ranks", "2", *sizes, "--out", str(out))["rules"][-1]["ranks"] == 4
    # What does not hold is replaced.
    out.write_text(json.dumps(content(*others, costs=[{"operation": "all_reduce", "ranks": 4, "us": []}])))
    found = document("tune", "all_reduce", "--ranks", "2", *sizes, "--out", str(out))
    assert _tuned.read(out) == found and all(row["ranks"] == 2 for row in found["rules"] + found["costs"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
def test_routes_of_cuda_tensors_are_measured(tmp_path):
    out = tmp_path / "tuned.json"
    asked = [
        "all_reduce",
        "broadcast",
        "--device",
        "cuda",
        "--sizes",
        "1K,1M",
        "--budget",
        "4",
        "--passes",
        "1",
    ]
    said = altorch("tune", "--ranks", "2", *asked, "--out", str(out))
    assert "written:" in said, said
    assert all(rule["device"] == "cuda" for rule in _tuned.read(out)["rules"])
    # What it says of CUDA tensors stays where CPU tensors are measured.
    on_gpus = TWO_STEPS | {"device": "cuda", "choice": "host_relay"}
    out.write_text(json.dumps(content(on_gpus, machine=_tuned.machine(on_gpus=True))))
    sizes = ["--sizes", "1K", "--budget", "1", "--passes", "1"]
    rules = document("tune", "all_reduce", "--ranks", "2", *sizes, "--out", str(out))["rules"]
    assert on_gpus in rules
    env = {"ALTORCH_TUNED": str(out)}
    found = document("explain", "all_reduce", "--device", "cuda", "--bytes", "1K", env=env)
    assert (found["route"], found["reason"]) == ("host_relay", "ALTORCH_TUNED")


def test_a_run_that_was_stopped_is_resumed(tmp_path):
    out, sizes = tmp_path / "tuned.json", ["--sizes", "1K,64K", "--budget", "1", "--passes", "2"]
    kept = tmp_path / "tuned.json.unfinished"
    asked = {
        "plans": {"all_reduce": ["al", "al:shm/one_step", "al:shm/two_steps"]},
        "sizes": [1024, 65536],
        "passes": 2,
        "ranks": 2,
        "nodes": 1,
        "device": "cpu",
        "machine": _tuned.machine(),
        "altorch": __version__,
    }

    def row(number, size, contender, took):
        return {
            "pass": number,
            "size": size,
            "operation": "all_reduce",
            "bytes": size,
            "contender": contender,
            "p10_us": took,
            "median_us": took,
        }

    # Times that no machine has: what comes of them was not measured again.
    done = [
        row(number, 1024, name, took)
        for number in range(2)
        for name, took in zip(asked["plans"]["all_reduce"], (7e6, 7e6, 1e6), strict=True)
    ]
    cut = [row(0, 65536, "al", 7e6), row(0, 65536, "al:shm/one_step", 1e6)]  # stopped before the third
    kept.write_text("".join(json.dumps(line) + "\n" for line in [asked, *done, *cut]))
    rules = document("tune", "all_reduce", "--resume", "--ranks", "2", *sizes, "--out", str(out))["rules"]
    small = [rule for rule in rules if rule["from"] <= 1024]
    assert [(rule["choice"], rule["gain"]) for rule in small] == [("shm/two_steps", 7.0)]
    assert not [rule for rule in rules if rule["choice"] == "shm/one_step" and rule["gain"] > 6]
    assert not kept.exists()
    # Of another run: it stays, and nothing is measured.
    kept.write_text(json.dumps(asked | {"nodes": 2}) + "\n")
    before = out.read_text()
    altorch("tune", "all_reduce", "--resume", "--ranks", "2", *sizes, "--out", str(out), status=None)
    assert kept.exists() and out.read_text() == before


ROW = {
    "pass": 0,
    "size": 8,
    "bytes": 8,
    "operation": "all_reduce",
    "contender": "al",
    "p10_us": 1.0,
    "median_us": 1.0,
}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        "[" * 200_000,
        *(
            json.dumps(ROW | change)
            for change in (
                {"pass": "0"},
                {"pass": 2},
                {"pass": True},
                {"size": 9},
                {"contender": "al:ring"},
                {"operation": []},
                {"bytes": None},
                {"p10_us": float("inf")},
                {"median_us": 10**400},
            )
        ),
    ],
)
def test_a_damaged_file_is_not_resumed(line, tmp_path):
    asked = {"plans": {"all_reduce": ["al", "al:shm/one_step"]}, "sizes": [8], "passes": 2}
    found = Unfinished(tmp_path / "x", asked)
    found.path.write_text(json.dumps(asked) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=r"no row|Expecting|too deep"):
        found.resume()
    assert not found.rows
    # What a full disk has cut off, and a size without all its rows, are measured again.
    rows = [
        json.dumps(ROW),
        json.dumps(ROW | {"contender": "al:shm/one_step"}),
        json.dumps(ROW | {"pass": 1}),
    ]
    found.path.write_text("\n".join([json.dumps(asked), *rows, '{"pa']))
    found.resume()
    assert found.cells() == {(0, "all_reduce", 8)} and len(found.rows) == 2


def test_what_a_file_changes_is_printed(tmp_path):
    path = file_of(tmp_path, TWO_STEPS | {"below": 1 << 20})
    said = altorch("tune", "--diff", "--out", str(path))
    for word in ("all_reduce", "0 B to 1 MiB", "shm/one_step, then shm/two_steps", "1.20x"):
        assert word in said, said
    (change,) = document("tune", "--diff", "--out", str(path))["changes"]
    assert change["choice"] == "shm/two_steps" and change["gain"] == 1.2 and change["nodes"] == 1
    huge = TWO_STEPS | {"ranks": 100_000, "gain": 10**400}
    (change,) = document("tune", "--diff", "--out", str(file_of(tmp_path, huge)))["changes"]
    assert change["default"] == "?" and change["gain"] is None
    assert "changes nothing" in altorch("tune", "--diff", "--out", str(file_of(tmp_path, rules=[])))
    file_of(tmp_path, TWO_STEPS | {"choice": "shm/fastest"})
    assert "no protocol of shm" in altorch("tune", "--diff", "--out", str(path), status=2)


def test_what_is_tried_is_what_there_is():
    for operation in tuning.OPERATIONS["cpu"]:
        assert tuning.choices("cpu", operation) in (
            ["shm/one_step", "shm/two_steps"],
            ["shm/in_place", "shm/areas"],
        )
    tried = tuning.choices("cuda", "all_reduce")
    assert {"nccl", "host_staged", "peer/ll128"} <= set(tried) and "peer/norm" not in tried
    assert tuning.choices("cuda", "all_reduce", shared_gpus=True) == ["host_staged", "host_relay"]
    rules = [
        {"operation": name, "ranks": 2, "from": 0, "below": 8, "choice": choice}
        for device, names in tuning.OPERATIONS.items()
        for name in names
        for choice in tuning.choices(device, name)
    ]
    extension().set_tuned_rules(_tuned.as_text({"rules": rules}))  # refuses what there is not
    extension().set_tuned_rules("")


def test_choices_for_gpus_hold_with_the_gpus_that_they_were_measured_on(tmp_path, monkeypatch):
    on_gpus = TWO_STEPS | {"device": "cuda", "choice": "peer/ll"}
    monkeypatch.setattr(_tuned, "_gpus", lambda: ["NVIDIA H200"])
    path = file_of(tmp_path, on_gpus, machine=_tuned.machine(on_gpus=True))
    assert _tuned.read(path)["rules"] == [on_gpus]
    monkeypatch.setattr(_tuned, "_gpus", lambda: ["NVIDIA H100"])
    with pytest.raises(ValueError, match=r"with the GPUs \['NVIDIA H200'\], this is .* \['NVIDIA H100'\]"):
        _tuned.read(path)


def test_the_command_line_is_refused_in_a_sentence():
    for arguments in (
        ["gather"],
        ["--sizes", "many"],
        ["--passes", "0"],
        ["--budget", "nan"],
        ["--ranks", "1"],
        ["broadcast"],
        *([["--device", "cuda"]] if not torch.cuda.is_available() else []),
        ["--out", "/nowhere/x"],
    ):
        assert "altorch tune:" in altorch("tune", *arguments, status=2)
    said = altorch("tune", env={"ALTORCH_ROUTE": "all_reduce=ring"}, status=2)
    assert "ALTORCH_ROUTE is set" in said


def test_a_tuned_rule_holds_for_its_ranks_and_sizes(tmp_path):
    env = {"ALTORCH_TUNED": str(file_of(tmp_path))}

    def asked(ranks, size, **more):
        said = document("explain", "all_reduce", "--ranks", ranks, "--bytes", size, env=env | more)
        return said["protocol"], said["reason"]

    assert asked("2", "8K") == ("two_steps", "ALTORCH_TUNED")
    assert asked("2", "64K")[0] == "one_step"
    assert asked("3", "8K")[0] == "one_step"
    assert asked("2", "8K", ALTORCH_ROUTE="all_reduce=shm/one_step") == ("one_step", "ALTORCH_ROUTE")


BAD = {
    "no JSON": ("{", "line 1"),
    "not ours": ("[]", "not written by `altorch tune`"),
    "newer": (content(altorch_tuned=2), "format is 2"),
    "another version": (content(altorch="0.0.1"), "tune again"),
    "another machine": (content(machine={"cpu": "a 6502", "cores": 1}), "1 cores of a 6502"),
    "no machine": (content(machine=None), "an unknown machine"),
    "no rules": (content(rules=7), "not a list"),
    "no name": (content(TWO_STEPS | {"choice": "x=y,cuda=nccl"}), "rule 1: 'choice'"),
    "no number": (content(TWO_STEPS, TWO_STEPS | {"below": -1}), "rule 2: 'below'"),
    "a truth": (content(TWO_STEPS | {"ranks": True}), "rule 1: 'ranks'"),
    "no nodes": (content(TWO_STEPS | {"nodes": 0}), "rule 1: 'nodes' is not a number from 1 on"),
    "null nodes": (content(TWO_STEPS | {"nodes": None}), "rule 1: 'nodes'"),
    "no costs": (content() | {"costs": [{"us": 7}]}, "costs, row 1"),
    "costs of no ranks": (
        content() | {"costs": [{"operation": "all_reduce", "ranks": 1, "us": [[8, 1.0]]}]},
        "at least 2 ranks",
    ),
    "no GPUs": (content(TWO_STEPS | {"device": "cuda"}), "no models of GPUs"),
    "no device": (content(TWO_STEPS | {"device": []}), "neither cpu nor cuda"),
    "an unknown choice": (content(TWO_STEPS | {"choice": "shm/fastest"}), "no protocol of shm"),
    "a folder": (None, "Is a directory"),
    "deep": ("[" * 200_000, "nested too deep"),
    "large": (" " * (_tuned.MOST_BYTES + 1), "more than 1 MiB"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_does_not_hold_is_ignored(name, tmp_path, monkeypatch):
    bad, reason = BAD[name]
    path = tmp_path / "tuned.json"
    if bad is None:
        path.mkdir()
    else:
        path.write_text(bad if isinstance(bad, str) else json.dumps(bad))
    monkeypatch.setenv("ALTORCH_TUNED", str(path))
    with pytest.warns(RuntimeWarning, match="the defaults apply") as caught:
        _tuned.apply()
    assert reason in str(caught[0].message) and _tuned.digest() == "none"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _tuned.apply()  # once is enough
    monkeypatch.setenv("ALTORCH_TUNED", "")
    _tuned.apply()


def other_file(world, path):
    os.environ["ALTORCH_TUNED"] = path if world.rank else ""
    return world.rank


def makes_a_group(world):
    try:
        group = dist.new_group()
        dist.all_reduce(torch.ones(1), group=group)
    except Exception as error:
        return str(error)
    return ""


def test_ranks_with_different_files_are_told(tmp_path):
    with Cluster(2, launcher="plain") as cluster:
        cluster.run(other_file, path=str(file_of(tmp_path)))
        for outcome in cluster.run(makes_a_group):
            assert "the ranks differ in ALTORCH_TUNED" in outcome.value


def rows(**medians):
    for size, times in medians.items():
        for contender, time in times.items():
            yield {
                "operation": "all_reduce",
                "bytes": int(size[1:]),
                "contender": contender,
                "p10_us": time,
                "median_us": time,
            }


def test_a_choice_must_be_faster_in_every_pass():
    first = list(rows(s1024={"al": 10, "al:a": 9.9, "al:b": 8}, s4096={"al": 10, "al:a": 5, "al:b": 6}))
    second = list(rows(s1024={"al": 10, "al:a": 5, "al:b": 10}, s4096={"al": 10, "al:a": 8, "al:b": 6}))
    assert tuning.faster([first]) == {("all_reduce", 1024): ("b", 1.25), ("all_reduce", 4096): ("a", 2.0)}
    assert tuning.faster([first, second]) == {("all_reduce", 4096): ("b", 10 / 6)}


def test_neighbouring_sizes_of_one_choice_are_one_rule():
    chosen = {("all_reduce", size): ("a", gain) for size, gain in ((1024, 2.0), (4096, 1.5), (65536, 1.2))}
    found = tuning.rules_of(chosen, {"all_reduce": [1024, 4096, 16384, 65536]}, 2)
    assert [(rule.begin, rule.below, rule.gain) for rule in found] == [(1024, 8192, 1.5), (32768, 65537, 1.2)]


def test_sizes_are_those_that_were_measured():
    passes = [list(rows(s1032={"al": 10, "al:a": 5}))]
    found = tuning.rules_of(tuning.faster(passes), {"all_reduce": tuning.sizes_of(passes, "all_reduce")}, 3)
    assert [(rule.begin, rule.below) for rule in found] == [(1032, 1033)]
