# SPDX-License-Identifier: BSD-3-Clause
"""The command line: info, algorithms, explain, check; each in words and as JSON."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from harness import PROGRAM_DEADLINE
from mpi_libraries import all_mpis

from altorch.cli import _plot_gain
from altorch.cli._output import Progress
from tests.ranks.launch import backend_under_test, clean_environment, fork_server

pytestmark = pytest.mark.skipif(
    backend_under_test() != "al", reason="altorch's own command line: ALTORCH_TEST_BACKEND is not al"
)


def altorch(*arguments, env=None, status=0):
    """The command's standard output; with another exit status than 0 its error output, too."""
    starts_no_rank = arguments[0] in ("explain", "routes", "algorithms", "settings", "plot") or status is None
    command = run_forked if starts_no_rank else run_afresh
    code, output, errors = command(arguments, clean_environment(env))
    if code != status and (status is not None or code == 0):
        pytest.fail(f"altorch {' '.join(arguments)}: exit status {code}\n{output}{errors}", pytrace=False)
    return output + ("" if status == 0 else errors)


def run_afresh(arguments, env):
    command = [sys.executable, "-m", "altorch", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr


def run_forked(arguments, env):
    """In a child of the fork server: commands that start no ranks spend their time importing torch."""
    if not fork_server().can_start(env):
        return run_afresh(arguments, env)
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        child = fork_server().start("test_cli:run_command", env, output, arguments, str(errors))
        try:
            code = child.wait(240)
        finally:
            child.kill()
        return code, output.read_text(), errors.read_text()


def run_command(arguments, errors):
    with Path(errors).open("w") as file:
        os.dup2(file.fileno(), 2)
    from altorch.cli import main

    try:
        return main(list(arguments))
    except SystemExit as end:
        return end.code


def document(*arguments, **options):
    return json.loads(altorch(*arguments, "--json", **options))


def test_info():
    found = document("info")
    assert found["versions"]["extension"].startswith("loads: ")
    routes = {row["name"]: row for row in found["routes"]}
    assert routes["gloo"]["viable"]
    assert all(row["reason"] for row in routes.values()), "a route without a reason"
    assert {"nccl", "host_staged", "host_relay"} <= set(routes)
    windows = {row["name"]: row for row in found["windows"]}
    assert windows["messages"]["viable"] and all(row["reason"] for row in windows.values())
    assert any(row["name"] == "ALTORCH_MPI" for row in found["settings"])
    assert document("settings") == found["settings"]
    assert found["fabric"]["netmod"] or found["fabric"]["unknown"]["netmod"]
    text = altorch("info")
    assert "torch" in text and "gloo" in text


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [
        {"operation": "all_reduce", "ranks": 2, "bytes": size, "contender": name, "device_us": size / 10 + 5,
         "busbw_GBps": 1.0, "link_GBps": 50.0, "machine": "a GPU", "dtype": "float32"}
        for size in (8, 1024, 1 << 20) for name in ("al", "nccl")
    ]  # fmt: skip
    results = tmp_path / "rows.jsonl"
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = document("plot", str(results), "--out", str(tmp_path / "plots"))
    assert [Path(name).name for name in found["plots"]] == ["all_reduce-float32-2-ranks-a-gpu.svg"]
    drawing = Path(found["plots"][0]).read_text()
    assert "<svg" in drawing and len(drawing) > 5000
    for text in (">NCCL</text>", ">altorch is faster</text>", ">1x</text>"):
        assert text in drawing
    results.write_text("no json\n")
    assert "line 1 is no JSON" in altorch("plot", str(results), status=2)


def test_bench_measures_in_turns_and_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "rows.jsonl"
    words = ("all_reduce", "barrier", "--sizes", "8,64K", "--against", "gloo,al:ring,fake,nccl", "--async")
    page = tmp_path / "page.html"
    if has_plotly := importlib.util.find_spec("plotly") is not None:
        words += ("--html", str(page))
    found = document("bench", *words, "--seconds", "0.05", "--out", str(file))
    assert "CUDA tensors only" in found["skipped"]["nccl"]
    head, *rows = found["rows"]
    assert head["benchmark"] == "run" and head["torch"]
    assert [json.loads(line) for line in file.read_text().splitlines()] == found["rows"]
    timed = {(r["operation"], r["bytes"], r["contender"], r["mode"]): r for r in rows}
    assert len(timed) == len(rows)
    for contender in ("al", "gloo", "fake", "al:ring"):
        for size in (8, 65536):
            for mode in ("sync", "async"):
                row = timed["all_reduce", size, contender, mode]
                assert 0 < row["p10_us"] <= row["median_us"] <= row["max_us"] and row["ranks"] == 2
    assert timed["memcpy", 65536, "memcpy", "sync"]["median_us"] > 0
    assert not has_plotly or "GB/s: all_reduce of 64 KiB by" in page.read_text()
    assert ("barrier", 0, "al", "sync") in timed and ("barrier", 0, "al:ring", "sync") not in timed
    drawn = document("plot", str(file), "--details", "--out", str(tmp_path / "plots"))["plots"]
    assert len(drawn) == 1
    assert all(f">{name}</text>" in Path(drawn[0]).read_text() for name in ("al", "gloo async", "memcpy"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("all_reduse",), "none of all_reduce"),
        (("--sizes", "8Q"), "not a size"),
        (("--sizes", ""), "names none"),
        (("--html", "/nowhere/page.html"), "cannot be written: no such folder"),
        (("--dtype", "float31"), "no type of torch"),
        (("--device", "cuda"), "no GPU"),
        (("broadcast", "--against", "al:bruck"), "none of broadcast has that algorithm"),
    ],
)
def test_bench_refuses_in_a_sentence(words, reason):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    if "--html" in words:
        pytest.importorskip("plotly")
    text = altorch("bench", *words, status=None)
    assert reason in text and "Traceback" not in text.partition("ChildFailedError")[0]


def test_gains_are_the_times_of_the_best_way_over_altorchs():
    points = {
        "al": {8: (2.0, 0.0), 64: (4.0, 0.0)},
        "al:ring": {8: (1.0, 0.0)},
        "al graph": {8: (3.0, 0.0)},
        "gloo": {8: (6.0, 0.0), 64: (2.0, 0.0), 512: (1.0, 0.0)},
        "openmpi-test": {8: (8.0, 0.0)},
        "openmpi-blocking": {8: (4.0, 0.0), 64: (20.0, 0.0)},
        "nccl graph": {8: (9.0, 0.0)},
        "memcpy": {8: (0.1, 0.0)},
        "host links": {8: (0.0, 50.0)},
    }
    assert _plot_gain.gains(points) == {
        "Gloo": {8: 3.0, 64: 0.5},
        "Open MPI from C": {8: 2.0, 64: 5.0},
        "NCCL in CUDA graphs": {8: 3.0},
    }
    assert _plot_gain.gains({"al": {8: (2.0, 0.0)}, "memcpy": {8: (1.0, 0.0)}}) == {}


def test_plot_of_every_gpu_benchmark(tmp_path):
    pytest.importorskip("matplotlib")
    run = {"benchmark": "run", "machine": "a GPU", "link_GBps": 50.0}
    line = {
        "benchmark": "cuda_collectives",
        "operation": "all_reduce",
        "dtype": "bfloat16",
        "busbw_GBps": 3.0,
    }
    lines = [
        line | {"contender": name, "mode": mode, "bytes": size, "median_us": 20.0}
        for name, mode in (("al", "sync"), ("al", "graph"), ("nccl", "sync"), ("nccl", "graph"))
        for size in (8, 1 << 20)
    ]
    lines += [line | {"contender": "al:host_staged", "bytes": 8, "median_us": 40.0, "device_us": 30.0}]
    lines += [line | {"contender": "al", "mode": "async", "bytes": 8, "host_us": 20.0}]
    overlap = {"benchmark": "cuda_overlap", "operation": "all_reduce", "dtype": "float32", "bytes": 64 << 20}
    overlap |= {"contender": "al", "hidden_percent": 97.5}
    beside = {"product": [512, 512, 64], "left_multiprocessors": 4}
    training = {"benchmark": "cuda_training", "wrap": "fsdp2", "contender": "nccl", "step_ms": 101.5}
    rows = [*lines, overlap, overlap | beside, training, {"benchmark": "unheard of"}]
    rows = [run, *({"ranks": 2} | row for row in rows)]
    results = tmp_path / "rows.jsonl"
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    drawn = {
        path.stem: path.read_text()
        for path in map(
            Path, document("plot", str(results), "--details", "--out", str(tmp_path / "plots"))["plots"]
        )
    }
    assert sorted(drawn) == [
        f"{what}-2-ranks-a-gpu" for what in ("all_reduce-bfloat16", "cuda_overlap", "cuda_training")
    ]
    drawing = drawn["all_reduce-bfloat16-2-ranks-a-gpu"]
    for name in ("al", "al graph", "nccl", "nccl graph", "al:host_staged", "host links"):
        assert f">{name}</text>" in drawing, f"no line of {name}"
    assert "stroke-dasharray" in drawing and "al async" not in drawing
    assert ">al float32</text>" in drawn["cuda_overlap-2-ranks-a-gpu"]
    assert ">al float32, 512x512x64, 4 left</text>" in drawn["cuda_overlap-2-ranks-a-gpu"]
    assert ">101.5</text>" in drawn["cuda_training-2-ranks-a-gpu"]
    only = document("plot", str(results), "--operation", "all_reduce", "--out", str(tmp_path))
    assert len(only["plots"]) == 1


def test_info_says_that_a_wheel_has_lost_its_mpi_library(tmp_path):
    """As after `pip install --target`, which leaves out what goes to <prefix>/lib."""
    described = tmp_path / "mpich-5.0.2.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: mpich\nVersion: 5.0.2\n")
    (described / "RECORD").write_text("../../lib/libmpi.so.12,,\n")
    program = "from altorch import _mpi; print(*(row.reason for row in _mpi.considered()), sep='\\n')"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    said = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert "mpich 5.0.2 is here without its libraries" in said.stdout


def test_a_row_names_the_mpi_that_is_loaded():
    """Not one that is only installed."""
    mpi = all_mpis()["mpich wheel"]
    if mpi.reason:
        pytest.skip(mpi.reason)
    program = (
        "import ctypes; from altorch.bench.rows import mpi_in_use as mpi\n"
        f"print(mpi()); ctypes.CDLL({mpi.library!r}); print(mpi())"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    before, after = said.stdout.splitlines()
    assert (before, after[:6]) == ("", "MPICH ")


def test_aims_are_judged_by_rows(tmp_path):
    from altorch.bench import aims, rows

    def row(contender, size, took, ranks=2):
        measured = {"operation": "all_reduce", "dtype": "float32", "bytes": size, "ranks": ranks}
        return measured | {"contender": contender, "mode": "sync", "median_us": took}

    file = tmp_path / "rows.jsonl"
    took = {("al", 8): 2.0, ("gloo", 8): 30.0, ("al", 1024): 4.0, ("gloo", 1024): 10.0}
    found = [{"benchmark": "run", "machine": "a CPU"}, *(row(*case, us) for case, us in took.items())]
    rows.append(file, [*found, row("al", 8, 50.0, ranks=4)])
    assert {read["machine"] for read in rows.read(file)} == {"a CPU"}

    def faster(target, **options):
        return aims.Aim(
            "faster", target, lambda r: r.ratios("al", "gloo", "device_us", "median_us"), **options
        )

    def slowest(results):
        return max(row["median_us"] for row in results.of(contender="al", bytes=range(1025)))

    table = [
        faster(2),
        faster(5),
        faster(5, ranks=4),
        aims.Aim("slowest", 3, slowest, unit=" us", at_most=True),
    ]
    assert aims.judge(table, rows.read(file), 2) == [
        ("faster", ">= 2x", "2.50x (1 KiB) to 15.00x (8 B)", True),
        ("faster", ">= 5x", "2.50x (1 KiB) to 15.00x (8 B); 1 of 2 reach it", False),
        ("slowest", "<= 3 us", "4.00 us", False),
    ]
    unmeasured, slow = aims.judge(table[2:], rows.read(file), 4)
    assert unmeasured[2:] == ("not measured", None) and slow.measured == "50.00 us"


def test_explain_on_gpus():
    def explain(*arguments, **options):
        return document("explain", *arguments, "--device", "cuda", **options)

    large = ("all_reduce", "--bytes", "64M", "--ranks", "4")
    found = explain(*large)
    assert found["route"] == "nccl" and set(found["routes_not_taken"]) == {
        "peer",
        "host_staged",
        "hierarchical",
        "host_relay",
    }
    shared = explain(*large, "--shared-gpus")
    assert shared["route"] == "host_staged" and "share one GPU" in shared["routes_not_taken"]["nccl"]
    assert "pinned memory" in shared["rounds_text"]
    few = [explain("all_to_all", "--bytes", "64M", "--ranks", str(ranks), "--nvlink") for ranks in (2, 4, 5)]
    assert [found["route"] for found in few] == ["peer", "peer", "nccl"]
    assert (
        "by LL128" in few[1]["rounds_text"]
        and "by LL128" in explain("all_reduce", "--nvlink", "--bytes", "1M")["rounds_text"]
    )
    crowded = explain("all_reduce", "--bytes", "1K", "--shared-gpus")
    assert crowded["route"] == "host_relay" and "switch between processes" in crowded["reason"]
    near = explain("all_reduce", "--bytes", "1K")
    assert near["route"] == "peer" and "into the others' memory" in near["rounds_text"]
    assert "passes that on" in explain(*large, env={"ALTORCH_ROUTE": "cuda=peer"})["rounds_text"]
    by_ll128 = explain("all_reduce", "--bytes", "1K", "--nvlink", env={"ALTORCH_ROUTE": "cuda=peer/ll128"})
    assert (by_ll128["route"], by_ll128["protocol"]) == ("peer", "ll128") and "by LL128" in by_ll128[
        "rounds_text"
    ]
    assert by_ll128["routes_not_taken"]["peer/ll"] == "a rule names another"
    too_large = ("all_reduce", "--bytes", "1G", "--nvlink")
    passed = explain(*too_large, env={"ALTORCH_ROUTE": "cuda=peer/ll"})
    assert "a rule names it, but" in passed["routes_not_taken"]["peer/ll"]
    assert explain(*too_large)["routes_not_taken"]["peer"] == "it comes first up to 256 MiB"
    small = explain("all_reduce", "--bytes", "1K", env={"ALTORCH_ROUTE": "cuda=host_staged"})
    assert small["route"] == "host_staged" and "one kernel" in small["rounds_text"]
    alone = explain("all_reduce", "--ranks", "1", env={"ALTORCH_ROUTE": "cuda=nccl"})
    assert alone["route"] == "alone" and "one copy" in alone["rounds_text"]
    far = explain("all_to_all", "--nodes", "2", env={"ALTORCH_ROUTE": "cuda=host_relay"})
    assert far["route"] == "host_relay" and "share no memory" in far["routes_not_taken"]["host_staged"]
    rails = explain(
        "all_reduce",
        "--bytes",
        "64M",
        "--nodes",
        "2",
        "--ranks",
        "8",
        env={"ALTORCH_ROUTE": "cuda=hierarchical"},
    )
    assert rails["route"] == "hierarchical" and rails["rounds_text"].splitlines() == [
        "stage 1: reduce_scatter of 4194304 elements among the 4 ranks of the node",
        "stage 2: all_reduce of 4194304 elements between nodes, with ranks 0 4",
        "stage 3: all_gather of 4194304 elements among the 4 ranks of the node",
        "on the node by peer, between nodes by nccl",
    ]
    exchange = ("all_to_all", "--bytes", "64M", "--nodes", "2", "--ranks", "8")
    exchanged = explain(*exchange, env={"ALTORCH_ROUTE": "cuda=hierarchical"})
    assert exchanged["rounds_text"].splitlines() == [
        "stage 1: all_to_all of 16777216 elements among the 4 ranks of the node",
        "stage 2: all_to_all of 16777216 elements among the 4 ranks of the node",
        "stage 3: all_to_all of 67108864 elements between nodes, with ranks 0 4",
        "on the node by peer, between nodes by nccl",
    ]
    assert "ALTORCH_ROUTE must name it" in explain(*exchange)["routes_not_taken"]["hierarchical"]
    # Who asks for staging through the host gets it, whichever way serves.
    staged = explain("all_reduce", "--nodes", "2", env={"ALTORCH_ROUTE": "cuda=host_staged"})
    assert staged["route"] == "host_relay"
    text = altorch("explain", "reduce_scatter", "--device", "cuda", "--dtype", "int16")
    assert "peer" in text and "NCCL cannot reduce int16" in text


def test_info_says_which_mpi_needs_its_mpirun(tmp_path):
    from altorch import _mpi

    assert document("info")["launcher"]["MPI started without one"] == _mpi.own_starts()
    for name in ("libaltorch_mpi_mpich.so", "libaltorch_mpi_openmpi.so", "libaltorch_flux.so"):
        (tmp_path / name).touch()
    text = _mpi.own_starts(tmp_path)
    assert text.startswith("MPICH and its relatives, Open MPI 4; not Open MPI 5: ")
    assert "libpmix-dev" in text


def test_info_without_mpi_says_why():
    found = document("info", env={"ALTORCH_MPI": "none"})
    mpi = next(row for row in found["routes"] if row["name"] == "mpi")
    assert not mpi["viable"] and "none" in mpi["reason"]


def test_info_of_an_mpi_that_does_not_exist():
    found = document("info", env={"ALTORCH_MPI": "/nowhere/libmpi.so"})
    mpi = next(row for row in found["routes"] if row["name"] == "mpi")
    assert not mpi["viable"] and "/nowhere/libmpi.so" in mpi["reason"]


def test_algorithms():
    rows = document("algorithms")
    names = {(row["op"], row["name"]) for row in rows}
    for wanted in (
        ("all_reduce", "recursive_doubling"),
        ("all_reduce", "rabenseifner"),
        ("all_reduce", "ring"),
        ("all_gather", "bruck"),
        ("reduce_scatter", "pairwise"),
        ("broadcast", "binomial"),
        ("all_to_all", "pairwise"),
        ("barrier", "dissemination"),
    ):
        assert wanted in names, f"{wanted} is not in the table"
    assert all(row["summary"] and row["cost_formula"] for row in rows)
    assert {row["op"] for row in document("algorithms", "broadcast")} == {"broadcast"}
    assert "no operation 'nonsense'" in altorch("algorithms", "nonsense", status=2)


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "all_gather", "barrier"])
def test_explain(operation):
    asked = ("explain", operation, "--bytes", "4M", "--ranks", "6", "--nodes", "2")
    found = document(*asked)
    assert found["algorithm"] and found["reason"] and found["cost_seconds"] > 0
    assert found["algorithm"] in altorch(*asked)
    assert all(row["chosen_for"] for row in found["alternatives"])


def test_explain_says_for_which_calls_another_algorithm_is_chosen():
    asked = ("explain", "all_reduce", "--bytes", "4M", "--ranks", "16")
    env = {"ALTORCH_SHM_BYTES": "0"}
    found = {
        row["name"]: row["chosen_for"] for row in document(*asked, "--nodes", "16", env=env)["alternatives"]
    }
    assert found["recursive_doubling"] == "for up to 64 KiB"
    assert found["one_shot"] == (
        "for up to 8 ranks, up to 128 KiB from a rank to all others; "
        "for up to 128 KiB from a rank to all others, exact sums"
    )
    assert found["pairwise"] == "for up to 8 ranks; for exact sums; for half types"
    assert found["ring"] == "for all other calls"
    (ring,) = document("explain", "reduce_scatter", "--nodes", "2", env=env)["alternatives"]
    assert ring["chosen_for"] == "only where ALTORCH_ROUTE names it"


@pytest.mark.parametrize(
    "world", [["--device", "cuda", "--nvlink"], ["--messages-only"]], ids=["cuda", "messages"]
)
def test_routes_end_where_explain_says(world):
    found = document("routes", "--ranks", "4", *world)
    env = {"ALTORCH_SHM_BYTES": "0"} if "--messages-only" in world else {}
    asked = [option for option in world if option != "--messages-only"]
    ranges = found["all_reduce"]
    assert len(ranges) > 1 and ranges[-1]["last"] is None
    for each, following in itertools.pairwise(ranges):
        for size, expected in ((each["last"], each), (each["last"] + 8, following)):
            answer = document("explain", "all_reduce", "--ranks", "4", "--bytes", str(size), *asked, env=env)
            protocol = f"/{answer['protocol']}" if answer["protocol"] else ""
            assert expected["route"] == answer["algorithm"] + protocol
            if asked:
                assert answer["rounds_text"].startswith(expected["how"])
    assert "larger" in altorch("routes", "--ranks", "4", *world)


def test_explain_shared_memory_where_there_is_some():
    asked = ("explain", "all_reduce", "--bytes", "4M", "--ranks", "6")
    found = document(*asked)
    assert found["algorithm"] == "shm" and "one node" in found["reason"] and "steps" in found["rounds_text"]
    assert "memory that the ranks share" in altorch(*asked)
    small = document("explain", "all_reduce", "--bytes", "8K", "--ranks", "6")
    assert small["protocol"] == "one_step" and "earlier one" in small["routes_not_taken"]["shm/two_steps"]
    env = {"ALTORCH_ROUTE": "all_reduce=shm/two_steps"}
    assert (
        document("explain", "all_reduce", "--bytes", "8K", "--ranks", "6", env=env)["protocol"] == "two_steps"
    )
    assert document(*asked, env={"ALTORCH_SHM_BYTES": "0"})["algorithm"] != "shm"
    assert document(*asked, env={"ALTORCH_ROUTE": "all_reduce=shm"})["reason"] == "ALTORCH_ROUTE"
    assert document(*asked, "--nodes", "2", env={"ALTORCH_ROUTE": "all_reduce=shm"})["algorithm"] != "shm"


def test_explain_what_happens_on_several_nodes():
    asked = ("explain", "all_reduce", "--bytes", "1K", "--ranks", "4", "--nodes", "2")
    found = document(*asked)
    assert found["algorithm"] == "hierarchical" and "with ranks 0 2" in found["rounds_text"]
    small = ("explain", "broadcast", "--bytes", "1K", "--ranks", "4", "--nodes", "2")
    assert "hierarchical is passed over: there is no plan" in altorch(*small)
    assert "reduce_scatter" in altorch(
        "explain", "all_reduce", "--bytes", "4M", "--ranks", "4", "--nodes", "2"
    )
    assert document(*asked, env={"ALTORCH_ROUTE": "all_reduce=ring"})["algorithm"] == "ring"
    for alone in (("--nodes", "4"), ("--nodes", "1")):
        assert document(*asked[:-2], *alone)["algorithm"] != "hierarchical"


def test_explain_what_is_chosen_once():
    """The way of a window, and what carries a group's messages."""
    shared = document("explain", "window")
    assert shared["route"] == "shm"
    assert list(shared["routes_not_taken"]) == ["mpi", "messages"]
    assert document("explain", "window", "--nodes", "2", "--no-mpi")["route"] == "messages"
    assert document("explain", "window", "--nodes", "2", "--mpi")["route"] == "mpi"
    named = document("explain", "window", env={"ALTORCH_ROUTE": "window=messages"})
    assert named["route"] == "messages" and named["reason"] == "ALTORCH_ROUTE"
    on_gpus = document("explain", "window", "--device", "cuda")
    assert on_gpus["route"] == "peer" and "ALTORCH_ROUTE" in on_gpus["routes_not_taken"]["nccl"]
    assert document("explain", "window", "--device", "cuda", "--nodes", "2")["route"] == "host_relay"
    too_many = document("explain", "window", "--device", "cuda", "--ranks", "72", "--nodes", "9")
    assert too_many["route"] == "none" and "at most 64 ranks" in too_many["routes_not_taken"]["host_relay"]
    for wrong in (["--nodes", "0"], ["--algorithm", "ring"], ["--dtype", "nonsense"]):
        assert "altorch explain:" in altorch("explain", "window", *wrong, status=2)
    carriers = [
        document("explain", "send", *asked)["protocol"]
        for asked in ((), ("--mpi",), ("--nodes", "2", "--no-mpi"))
    ]
    assert carriers == ["shm", "mpi", "gloo"]


def test_explain_shows_rounds_and_obeys_the_choice():
    found = document("explain", "all_reduce", "--bytes", "1K", "--ranks", "4", "--algorithm", "ring")
    assert found["algorithm"] == "ring"
    assert "send" in found["rounds_text"].lower() or "->" in found["rounds_text"], found["rounds_text"]
    other = document("explain", "all_reduce", "--ranks", "4", env={"ALTORCH_ROUTE": "all_reduce=ring"})
    assert other["algorithm"] == "ring" and "ALTORCH_ROUTE" in other["reason"], other


def test_explain_says_native_only_where_the_engine_takes_it():
    native = {"ALTORCH_ROUTE": "all_reduce=native"}
    assert document("explain", "all_reduce", "--ranks", "2", env=native)["algorithm"] == "native"
    # MPI would round half types once for each rank.
    half = ("explain", "all_reduce", "--ranks", "4", "--dtype", "bfloat16")
    assert document(*half, env=native)["algorithm"] != "native"
    assert "same bits" in altorch(*half, "--algorithm", "native", status=2)


def test_explain_refuses_nonsense_in_a_sentence():
    for arguments in (("nonsense",), ("all_reduce", "--bytes", "x"), ("all_reduce", "--ranks", "0")):
        text = altorch("explain", *arguments, status=2)
        assert "Traceback" not in text, text


@pytest.mark.parametrize("ranks", [1, 3])
def test_check(ranks):
    found = document("check", "--ranks", str(ranks))
    assert found["passed"] and found["operations"]
    not_run = {row["operation"]: row["not_run"] for row in found["operations"]}
    assert {f"windows by {name}" for name in ("shm", "mpi", "messages")} <= set(not_run)
    assert not not_run["windows by messages"] and not not_run["windows by shm"]


def test_check_names_the_windows_that_a_group_cannot_have():
    """With what carries windows in their place."""
    apart = document("check", "--ranks", "2", env={"ALTORCH_SHM_BYTES": "0", "ALTORCH_MPI": "none"})
    found = {row["operation"]: row["not_run"] for row in apart["operations"]}
    assert apart["passed"] and found["windows by messages"] == ""
    for name in ("shm", "mpi"):
        assert found[f"windows by {name}"] == "messages carries them here", found


def test_help_of_every_command():
    for command in ("info", "algorithms", "explain", "check", "report"):
        assert "usage" in altorch(command, "--help")


def test_route_setting_that_is_wrong_is_refused():
    """A bad ALTORCH_ROUTE is an error with a sentence before any rank waits for another."""
    program = "import altorch, torch.distributed as d; d.init_process_group('al'); d.barrier()"
    env = clean_environment(
        {
            "ALTORCH_ROUTE": "all_reduce=nonsense",
            "RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
        }
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=PROGRAM_DEADLINE
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode != 0 and "nonsense" in last and "ALTORCH_ROUTE" in done.stderr, done.stderr


def test_progress_is_told_in_lines_where_standard_error_is_a_file(capsys, monkeypatch):
    monkeypatch.setattr(Progress, "LINE_EVERY", 0)
    with Progress(2) as progress, Progress(2, quiet=True) as silent:
        for what in ("one", "two"):
            progress.at(what)
            silent.at(what)
    assert capsys.readouterr().err.splitlines() == ["0 of 2 done, at one", "1 of 2 done, at two"]
