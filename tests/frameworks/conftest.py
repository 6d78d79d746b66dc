# SPDX-License-Identifier: BSD-3-Clause
"""Frameworks in tiny real runs: what they compute over altorch is what they compute over Gloo.

Each test runs one program on all ranks, over altorch and over torch's Gloo, and compares what rank 0 prints last, as
JSON. Programs that call `time_steps` run over both at the same time and measure their steps in turns; a table of the
medians ends the run, and `--json FILE` writes it.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.ranks.launch import clean_environment, free_port

HERE = Path(__file__).resolve().parent
DEADLINE = 300  # of a program on all ranks, seconds
TIMES = pytest.StashKey[list[dict[str, Any]]]()

# What a program gets from its environment, by the column of the table.
OVER = {
    "al": {"BACKEND": "al"},
    "gloo": {"BACKEND": "gloo"},
    "served": {"BACKEND": "gloo", "ALTORCH_SERVES": "gloo"},
}
# On GPUs frameworks name "nccl": altorch serves that name.
ON_GPUS = {
    "al": {"BACKEND": "nccl", "ALTORCH_SERVES": "nccl", "DEVICE": "cuda"},
    "nccl": {"BACKEND": "nccl", "DEVICE": "cuda"},
}


def run_sides(program: str, sides: dict[str, dict[str, str]], size: int = 2) -> dict[str, Any]:
    """What rank 0 of each side printed last; fails with what all ranks said, if one of them failed."""
    with tempfile.TemporaryDirectory() as folder:
        ranks, said = [], {}
        for side, variables in sides.items():
            env = {
                "WORLD_SIZE": str(size),
                "LOCAL_WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_port()),
                "TORCHELASTIC_RUN_ID": "frameworks",
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
                "SIDE": side,
            } | variables
            for rank in range(size):
                work, text = Path(folder, f"{side}{rank}"), Path(folder, f"{side}{rank}.txt")
                work.mkdir()
                said[side, rank] = text
                env |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                environment = clean_environment(env)
                environment["PYTHONPATH"] = f"{HERE}:{environment.get('PYTHONPATH', '')}".rstrip(":")
                with text.open("w") as output:
                    ranks.append(
                        subprocess.Popen(
                            [sys.executable, "-c", program],
                            env=environment,
                            stdout=output,
                            stderr=subprocess.STDOUT,
                            cwd=work,
                        )
                    )
        end = time.monotonic() + DEADLINE
        try:
            while any(rank.poll() is None for rank in ranks):
                if any(rank.poll() for rank in ranks) or time.monotonic() > end:
                    time.sleep(2)  # for the last words of the other ranks
                    break
                time.sleep(0.02)
        finally:
            for each in ranks:
                each.kill()
                each.wait()
        codes = [rank.returncode for rank in ranks]
        if any(codes):
            failed = [each for each, code in zip(said, codes, strict=True) if code and code > 0] or list(said)
            texts = [
                f"--- {side}, rank {rank}\n{said[side, rank].read_text()[-3000:]}" for side, rank in failed
            ]
            pytest.fail(f"exit codes {codes}\n" + "\n".join(texts[:3]), pytrace=False)
        return {side: json.loads(last_figures(said[side, 0].read_text())) for side in sides}


def last_figures(text: str) -> str:
    """The last line that is a JSON object: libraries may warn after it."""
    found = [line for line in text.splitlines() if line.startswith("{")]
    assert found, f"rank 0 printed no figures:\n{text[-3000:]}"
    return found[-1]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All numbers and strings of a JSON value, with their path."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(each, f"{name}/{key}")
    else:
        yield name, value


@pytest.fixture
def ranks() -> Callable[..., Any]:
    """Runs a program on ranks with the variables of the environment that are given."""

    def run(program: str, size: int = 2, **environment: str) -> Any:
        return run_sides(program, {"only": environment}, size)["only"]

    return run


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs a program over "al" or the served name, and over Gloo; the same figures are expected of both.

    `name` is its row in the table of step times. Where the framework refuses the name "al", `al=False`.
    A program that starts `workers` itself runs in a single process. `cuda`: over the served name "nccl", and NCCL.
    """

    def run(
        program: str,
        size: int = 2,
        *,
        name: str = "",
        rel: float = 1e-6,
        al: bool = True,
        workers: int | None = None,
        cuda: bool = False,
        **more: str,
    ) -> Any:
        other = "nccl" if cuda else "gloo"
        sides = {side: (ON_GPUS if cuda else OVER)[side] | more for side in ("al", other)}
        if not al:
            sides["al"] = OVER["served"] | more
        with tempfile.TemporaryDirectory() as turns:
            for each in sides.values():
                each["TURNS"] = turns
            said = run_sides(program, sides, size)
            times = {side: Path(turns, f"times-{side}") for side in sides}
            if all(each.exists() for each in times.values()):
                row = {side: json.loads(each.read_text()) for side, each in times.items()}
                request.config.stash[TIMES].append({"name": name, "ranks": workers or size, "seconds": row})
        if al and not cuda:
            said |= run_sides(program, {"served": OVER["served"] | more}, size)
        theirs = said[other]
        assert not theirs.pop("by").startswith("altorch")
        for side in said.keys() - {other}:
            assert said[side].pop("by") == "altorch._C", side
            assert dict(flat(said[side])) == pytest.approx(dict(flat(theirs)), rel=rel, abs=rel), side
        return theirs

    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--json", metavar="FILE", help="write the step times there")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TIMES] = []


def machine() -> str:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{len(os.sched_getaffinity(0))} cores of {model}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = config.stash[TIMES]
    if not rows:
        return
    terminalreporter.section(f"step times, medians of turns; torch {torch.__version__}, {machine()}")
    for row in rows:
        _, other = row["seconds"]
        ours, theirs = (1e3 * statistics.median(row["seconds"][side]) for side in ("al", other))
        terminalreporter.write_line(
            f"{row['name']:<36} {row['ranks']} ranks  al {ours:8.2f} ms  {other} {theirs:8.2f} ms  {theirs / ours:5.2f}"
        )
    if config.getoption("--json"):
        versions = {each.metadata["Name"]: each.version for each in metadata.distributions()}
        kept = {"machine": machine(), "torch": torch.__version__, "rows": rows, "versions": versions}
        Path(config.getoption("--json")).write_text(json.dumps(kept, indent=1) + "\n")
