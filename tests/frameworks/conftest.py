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
from typing import Any, NamedTuple

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.ranks.launch import clean_environment, free_port

HERE = Path(__file__).resolve().parent
PROGRAM_TIMEOUT = 300  # seconds, of a program on all ranks
EXIT_GRACE = 2  # seconds for the other ranks to report, after one has failed
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


class Rank(NamedTuple):
    """A process that runs the program. `side`: the backend it runs over; "only" where there is no other."""

    side: str
    number: int
    process: subprocess.Popen[bytes]
    log: Path

    def failed(self) -> bool:
        """Ended with an error of its own: a negative code is that of a signal, such as the kill at the end."""
        return self.process.returncode > 0

    def output(self) -> str:
        return self.log.read_text()


def run_sides(program: str, sides: dict[str, dict[str, str]], size: int = 2) -> dict[str, Any]:
    """The figures that rank 0 of each side printed. Fails with the output of failed ranks, if there are any.

    `sides`: environment variables by name of the side. All sides run at the same time.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranks: list[Rank] = []
        try:
            for side, variables in sides.items():
                ranks += start_side(program, side, variables, size, Path(folder))
            wait_for_exit(ranks)
        finally:
            for rank in ranks:
                rank.process.kill()
                rank.process.wait()
        fail_with_output(ranks)
        return {rank.side: json.loads(last_figures(rank.output())) for rank in ranks if rank.number == 0}


def start_side(program: str, side: str, variables: dict[str, str], size: int, folder: Path) -> Iterator[Rank]:
    shared = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHELASTIC_RUN_ID": "frameworks",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "SIDE": side,
    }
    for number in range(size):
        env = clean_environment(shared | variables | {"RANK": str(number), "LOCAL_RANK": str(number)})
        env["PYTHONPATH"] = f"{HERE}:{env.get('PYTHONPATH', '')}".rstrip(":")
        work, log = folder / f"{side}{number}", folder / f"{side}{number}.txt"
        work.mkdir()
        with log.open("w") as output:
            command = [sys.executable, "-c", program]
            process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT, cwd=work)
        yield Rank(side, number, process, log)


def wait_for_exit(ranks: list[Rank]) -> None:
    """Returns when all ranks have ended, soon after one has failed, or after PROGRAM_TIMEOUT."""
    deadline = time.monotonic() + PROGRAM_TIMEOUT
    while any(rank.process.poll() is None for rank in ranks):
        if any(rank.process.poll() for rank in ranks) or time.monotonic() > deadline:
            time.sleep(EXIT_GRACE)
            return
        time.sleep(0.02)


def fail_with_output(ranks: list[Rank]) -> None:
    """Fails the test if a rank ended with another code than 0."""
    codes = [rank.process.returncode for rank in ranks]
    if not any(codes):
        return
    shown = [rank for rank in ranks if rank.failed()] or ranks
    texts = [f"--- {rank.side}, rank {rank.number}\n{rank.output()[-3000:]}" for rank in shown[:3]]
    pytest.fail(f"exit codes {codes}\n" + "\n".join(texts), pytrace=False)


def run_in_turns(
    program: str, sides: dict[str, dict[str, str]], size: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of each side, and the step times of each; none if the program calls no `time_steps`."""
    with tempfile.TemporaryDirectory() as turns:
        with_turns = {side: variables | {"TURNS": turns} for side, variables in sides.items()}
        figures = run_sides(program, with_turns, size)
        files = {side: Path(turns, f"times-{side}") for side in sides}
        if not all(file.exists() for file in files.values()):
            return figures, {}
        return figures, {side: json.loads(file.read_text()) for side, file in files.items()}


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
        figures, seconds = run_in_turns(program, sides, size)
        if seconds:
            request.config.stash[TIMES].append({"name": name, "ranks": workers or size, "seconds": seconds})
        if al and not cuda:
            figures |= run_sides(program, {"served": OVER["served"] | more}, size)
        expected = figures[other]
        assert not expected.pop("by").startswith("altorch")
        for side in figures.keys() - {other}:
            assert figures[side].pop("by") == "altorch._C", side
            assert dict(flat(figures[side])) == pytest.approx(dict(flat(expected)), rel=rel, abs=rel), side
        return expected

    return run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--json", metavar="FILE", help="write the step times there")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TIMES] = []
    config.addinivalue_line("markers", "gpu: needs two GPUs; skipped, with the reason, where there are fewer")


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
