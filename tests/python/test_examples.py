# SPDX-License-Identifier: BSD-3-Clause
"""The examples: as programs under torchrun, and what they compute."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import runpy
import shlex
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, PROGRAM_DEADLINE, Cluster, on_ranks
from mpi_libraries import all_mpis

from tests.ranks.launch import REPOSITORY, backend_under_test, clean_environment

INFERENCE = REPOSITORY / "examples" / "tensor_parallel_inference.py"
TINY = ["--width", "32", "--layers", "2", "--heads", "4", "--vocabulary", "64", "--new", "6", "--turns", "2"]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_as_program(world, path, words):
    """What the program printed, and its exit code or last words."""
    said = io.StringIO()
    sys.argv = [path, *words]
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            return said.getvalue(), end.code
    return said.getvalue(), 0


def test_tensor_parallel_inference_as_a_program():
    both = backend_under_test() == "al"
    words = [*TINY, "--backend", "both" if both else "gloo"]
    with Cluster(2, group=False, launcher="torchrun") as cluster:
        (said, code), (nothing, other_code) = cluster.check(
            run_as_program, path=str(INFERENCE), words=words, deadline=60
        )
    assert (code, other_code) == (0, 0), said
    assert said.count("the same tokens") == 1 + both and ("al / gloo" in said) == both, said
    assert not nothing.strip()


def test_heads_that_do_not_go_over_the_ranks_are_refused_in_a_sentence():
    with Cluster(2, group=False, launcher="torchrun") as cluster:
        words = [*TINY, "--heads", "1", "--backend", backend_under_test()]
        found = cluster.check(run_as_program, path=str(INFERENCE), words=words, deadline=60)
    assert {code for _, code in found} == {"32 columns and 1 heads do not go evenly over 2 ranks."}


@on_ranks(2, 3)
def test_shards_decode_what_the_whole_model_does(world):
    example = load(INFERENCE)
    shape = example.Shape(vocabulary=64, width=48, layers=2, heads=6, positions=16)
    prompt = torch.arange(3 * 4).view(3, 4)
    whole, _ = example.generate(example.Shard(shape, batch=3), prompt, 12)
    mine, _ = example.generate(example.Shard(shape, batch=3, group=dist.group.WORLD), prompt, 12)
    assert mine.shape == (3, 12, 64) and example.agreed(mine, whole)
    world.identical(mine)
    assert not example.agreed(mine + world.rank, whole), "all ranks learn of one rank's difference"


JACOBI = str(REPOSITORY / "examples" / "jacobi.py")


@pytest.mark.parametrize("size", [37, 128])
def test_jacobi_is_the_same_on_any_number_of_ranks(size, tmp_path):
    if backend_under_test() != "al":
        pytest.skip("only altorch has windows for CPU tensors")
    picture, figures = tmp_path / "heat.png", tmp_path / "rows.jsonl"
    words = ["--size", str(size), "--steps", "60", "--turns", "1", "--plot", str(picture)]
    words += ["--against", "gloo", "--json", str(figures)]
    with Cluster(3, group=False, launcher="torchrun") as cluster:
        (said, code), *others = cluster.check(run_as_program, path=JACOBI, words=words, deadline=60)
    assert code == 0 and all(end == ("", 0) for end in others), said
    assert "largest difference from one process: 0.0e+00" in said and "messages / window" in said
    [row] = [json.loads(line) for line in figures.read_text().splitlines()]
    assert row["step_us"].keys() == {"window", "messages", "gloo"} and row["ranks"] == 3
    assert picture.exists() or "not installed" in said


def test_jacobi_refuses_more_ranks_than_rows():
    if backend_under_test() != "al":
        pytest.skip("only altorch has windows for CPU tensors")
    with Cluster(2, group=False, launcher="torchrun") as cluster:
        found = cluster.check(run_as_program, path=JACOBI, words=["--size", "3"], deadline=60)
    assert {code for _, code in found} == {"3 rows are too few for 2 ranks: each needs two."}


def test_training_survives_the_loss_of_ranks_and_of_the_store():
    command = [
        sys.executable,
        str(REPOSITORY / "examples" / "survive.py"),
        "--steps",
        "60",
        "--lose",
        "3@20",
        "0@40",
    ]
    done = subprocess.run(
        command,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=300 * PATIENCE,  # five processes import torch, beside other tests
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 ranks go on" in done.stdout
    assert "2 ranks go on" in done.stdout


def test_training_takes_ranks_in_again_that_were_killed():
    if not hasattr(dist, "_reconfigure"):
        pytest.skip(f"torch {torch.__version__} has no reconfigure()")
    command = [sys.executable, str(REPOSITORY / "examples" / "elastic.py"), "--ranks", "3", "--steps", "60"]
    done = subprocess.run(
        [*command, "--seconds-per-step", "0.01", "--kill", "1@20", "0@20"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=300 * PATIENCE,  # six processes import torch, beside other tests
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("   ") for line in done.stdout.splitlines() if line.startswith("step")]
    assert lines[0][-1] == "3 ranks"
    assert lines[-1][-1] == "3 ranks"
    assert "2 deaths" in done.stdout
    told = [line for line in done.stderr.splitlines() if line.startswith("worker")]
    reasons = (" is lost: process ", " has not come to make group ")  # the latter: it went on to a newer plan
    assert told and all(any(reason in line for reason in reasons) for line in told), done.stderr


def test_weights_do_not_depend_on_the_number_of_ranks():
    if backend_under_test() != "al":
        pytest.skip("only altorch has exact sums")
    path = str(REPOSITORY / "examples" / "exact_digits.py")
    hashes = set()
    for size in (1, 2, 4):
        with Cluster(size, group=False, launcher="torchrun") as cluster:
            (said, code), *others = cluster.check(
                run_as_program, path=path, words=["--steps", "40"], deadline=60
            )
        assert (code, [end for _, end in others]) == (0, [0] * (size - 1)), said
        assert f"{size} ranks, 40 steps" in said
        hashes.add(said.split()[-1])
    assert len(hashes) == 1, hashes


def test_parameter_server():
    if backend_under_test() != "al":
        pytest.skip("only altorch has windows for CPU tensors")
    with Cluster(3, group=False, launcher="torchrun") as cluster:
        path = str(REPOSITORY / "examples" / "parameter_server.py")
        (said, code), *others = cluster.check(
            run_as_program, path=path, words=["--updates", "400"], deadline=60
        )
    assert (code, [end for _, end in others]) == (0, [0, 0]), said
    assert "together 400" in said


def test_the_example_of_the_page_about_windows(tmp_path):
    if backend_under_test() != "al":
        pytest.skip("only altorch has windows for CPU tensors")
    page = (REPOSITORY / "docs" / "windows.md").read_text()
    program = tmp_path / "page.py"
    program.write_text(page.partition("```python\n")[2].partition("```")[0])
    with Cluster(3, group=False, launcher="torchrun") as cluster:
        ends = cluster.check(run_as_program, path=str(program), words=[], deadline=60)
    assert ends == [("", 0)] * 3


def test_tokens_reach_their_experts_in_every_way(tmp_path):
    if backend_under_test() != "al":
        pytest.skip("only altorch has windows for CPU tensors")
    losses = tmp_path / "losses.json"
    runs = {
        "expert_dispatch": ["--width", "33", "--tokens", "1,5,40", "--times", "2"],
        "moe": ["--steps", "40", "--json", str(losses)],
    }
    said = {}
    with Cluster(3, group=False, launcher="torchrun") as cluster:
        for name, words in runs.items():
            path = str(REPOSITORY / "examples" / f"{name}.py")
            (said[name], code), *others = cluster.check(run_as_program, path=path, words=words, deadline=60)
            assert code == 0 and all(end == ("", 0) for end in others), said
    assert "the same results" in said["expert_dispatch"]
    assert said["expert_dispatch"].count("tokens: all_to_all") == 3
    assert "largest relative difference of a loss" in said["moe"]
    assert [len(each) for each in json.loads(losses.read_text()).values()] == [40, 40]


LANGUAGE_MODEL = str(REPOSITORY / "examples" / "language_model.py")
SMALL_MODEL = [
    "--steps",
    "6",
    "--save-every",
    "3",
    "--batch",
    "6",
    "--context",
    "12",
    "--width",
    "16",
    "--layers",
    "1",
]


def test_a_language_model_resumes_with_another_number_of_ranks(tmp_path):
    if backend_under_test() != "al":
        pytest.skip("the example trains over altorch alone")
    picture, folder = tmp_path / "loss.png", ["--folder", str(tmp_path / "checkpoints")]
    said = []
    for ranks, runs in ((2, [[], ["--resume", "3"]]), (1, [["--resume", "3", "--plot", str(picture)]])):
        with Cluster(ranks, group=False, launcher="plain") as cluster:
            for more in runs:
                words = [*SMALL_MODEL, *folder, *more]
                ends = cluster.check(run_as_program, path=LANGUAGE_MODEL, words=words, deadline=60)
                said.append(ends[0][0])
                assert [code for _, code in ends] == [0] * ranks, said
    whole, same_number, other_number = said
    assert "steps 1 to 6" in whole and "It writes: 'The " in whole
    assert "3 steps also in the run of 2 ranks: largest difference 0.0e+00" in same_number, said
    assert "3 steps also in the run of 2 ranks" in other_number, said
    assert picture.exists() or "not installed" in other_number


def test_a_language_model_without_a_checkpoint_does_not_resume(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [LANGUAGE_MODEL, "--folder", str(tmp_path), "--resume", "7"])
    with pytest.raises(SystemExit, match=r"has no complete checkpoint of step 7\."):
        runpy.run_path(LANGUAGE_MODEL, run_name="__main__")


def test_a_language_model_does_not_mix_checkpoints_of_two_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "step-000003").mkdir()
    monkeypatch.setattr(sys, "argv", [LANGUAGE_MODEL, "--folder", str(tmp_path)])
    with pytest.raises(SystemExit):
        runpy.run_path(LANGUAGE_MODEL, run_name="__main__")
    assert "has checkpoints: --resume goes on from them" in capsys.readouterr().err


def test_mpi4py_and_altorch_share_an_mpi(tmp_path):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    if backend_under_test() != "al":
        pytest.skip("the example trains over altorch alone")
    mpi = all_mpis()["mpich wheel"]
    if not mpi.mpirun:
        pytest.skip("the mpich wheel is not installed")
    picture = tmp_path / "plates.png"
    program = str(REPOSITORY / "examples" / "mpi4py_and_altorch.py")
    words = ["--size", "37", "--steps", "20", "--epochs", "200", "--plot", str(picture)]
    done = subprocess.run(
        [*shlex.split(mpi.mpirun), "-n", "2", sys.executable, program, *words],
        env=clean_environment({"MPI4PY_LIBMPI": mpi.library, "ALTORCH_SHM_BYTES": "0"}),
        capture_output=True,
        text=True,
        timeout=PROGRAM_DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "which mpi4py initialised" in done.stdout and "0.0e+00" in done.stdout, done.stdout
    assert picture.exists() or "not installed" in done.stdout


WEIGHTS = REPOSITORY / "examples" / "weights_to_inference.py"


def test_inference_ranks_serve_the_weights_of_the_trainers():
    if backend_under_test() != "al":
        pytest.skip("only altorch has windows for CPU tensors")
    words = ["--trainers", "2", "--width", "64", "--versions", "3", "--steps", "80"]
    with Cluster(4, group=False, launcher="plain") as cluster:
        ends = cluster.check(run_as_program, path=str(WEIGHTS), words=words, deadline=60)
    assert [code for _, code in ends] == [0] * 4, ends
    said = ends[0][0]
    assert "differ from the trainers' in a bit: 0; batches from torn weights: 0" in said, said
    assert said.count("2 of 2") == 3, "every inference rank serves every version"


def test_weights_that_differ_or_change_are_reported(capsys):
    example = load(WEIGHTS)
    trained = {"version": 1, "step": 9, "seconds": 0.5, "digest": "same"}
    served = {"version": 1, "digest": "same", "images": 100, "right": 95, "torn": 0}
    assert example.report([[trained]], [[served], [served]], 1000) == 0
    for wrong in ({"digest": "other"}, {"torn": 1}, {"right": 50}):
        assert example.report([[trained]], [[served], [served | wrong]], 1000) == 1, wrong
    assert "in a bit: 1;" in capsys.readouterr().out


def test_the_notebook(tmp_path):
    if backend_under_test() != "al":
        pytest.skip("the notebook is about altorch")
    path = REPOSITORY / "examples" / "five_minutes.ipynb"
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    program = tmp_path / "notebook.py"
    program.write_text("\n".join("".join(cell["source"]) for cell in cells))
    done = subprocess.run(
        [sys.executable, str(program)],
        env=clean_environment({"MPLBACKEND": "Agg"}),
        capture_output=True,
        text=True,
        timeout=PROGRAM_DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("tensor([0., 1., 2., 3.])", "[6.0, 6.0, 6.0]", "the same weights on both ranks: True"):
        assert line in done.stdout, done.stdout
        assert line in path.read_text(), "the notebook is stored with its outputs"
    assert path.stat().st_size < 100_000
