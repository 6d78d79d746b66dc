# SPDX-License-Identifier: BSD-3-Clause
"""Starts real MPI libraries on several processes, by altorch's own bootstrap and by each library's mpirun.

Every rank is the C++ program tests/cpp/bootstrap/mpi_ranks.cpp, without torch, so that a case takes under a second.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest
import virtual_nodes

from altorch import _mpi

REPOSITORY = Path(__file__).resolve().parents[2]
SHIMS = REPOSITORY / "python" / "altorch" / "lib"
DEADLINE = 100


@lru_cache
def ranks_program() -> str:
    """The one of the development build."""
    program = REPOSITORY / "build" / "dev" / "tests" / "cpp" / "bootstrap" / "altorch_mpi_ranks"
    if not program.exists():
        pytest.skip("altorch_mpi_ranks is not built: cmake --build build/dev --target altorch_mpi_ranks")
    return str(program)


@dataclass(frozen=True)
class Mpi:
    name: str
    library: Path
    mpirun: tuple[str, ...]  # empty: this library has no launcher here

    def __str__(self) -> str:
        return self.name


def _mpirun_of(library: Path) -> tuple[str, ...]:
    """The launcher that belongs to a library: Debian's have names of their own, others lie in bin/ beside lib/."""
    system = library.parent.name.endswith("-linux-gnu")
    family = _mpi.family_of(library)
    options = ("--allow-run-as-root", "--oversubscribe") if family == "openmpi" else ()
    if system:
        program = shutil.which("mpirun.openmpi" if family == "openmpi" else "mpirun.mpich")
    else:
        program = shutil.which("mpirun", path=str(library.parent.parent / "bin"))
    return (program, *options) if program else ()


@lru_cache
def no_virtual_nodes() -> str:
    return virtual_nodes.unsupported_reason()


@lru_cache
def mpis() -> tuple[Mpi, ...]:
    """Every library on this machine for which there is a shim."""
    found = []
    for row in _mpi.considered():
        if row.path is None or "not usable" in row.reason:
            continue
        found.append(Mpi(f"{row.path.parent.name}-{row.path.name}", row.path, _mpirun_of(row.path)))
        standard = row.path.parent / "libmpi_abi.so.1"
        if (
            standard.exists()
            and row.path.name.startswith("libmpi.so")
            and (SHIMS / "libaltorch_mpi_abi.so").exists()
        ):
            found.append(Mpi("standard-abi", standard, ()))
    return tuple(found)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mpi" in metafunc.fixturenames:
        metafunc.parametrize(
            "mpi", mpis() or [pytest.param(None, marks=pytest.mark.skip("no MPI library here"))], ids=str
        )


@pytest.fixture
def any_mpi() -> Mpi:
    """For what does not depend on the library."""
    if not mpis():
        pytest.skip("no MPI library here")
    return mpis()[0]


@dataclass
class Outcome:
    codes: list[int]
    text: str

    def must_be_good(self, size: int) -> None:
        assert self.codes == [0] * len(self.codes), self.text
        ranks = sorted(re.findall(r"ok rank (\d+) of (\d+)", self.text))
        assert ranks == [(str(rank), str(size)) for rank in range(size)], self.text


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PMI", "OMPI_COMM", "ALTORCH_MPI", "TORCHELASTIC"))
    }
    return {**clean, **(extra or {})}


def rank_command(library: Path, rank: int, size: int, store: Path, checks: str) -> list[str]:
    where = ["--library", str(library), "--shims", str(SHIMS), "--store", str(store), "--timeout", "60"]
    return [ranks_program(), *where, "--rank", str(rank), "--size", str(size), "--checks", checks]


def start(mpi: Mpi, rank: int, size: int, store: Path, checks: str, extra: dict[str, str] | None = None,
          library: Path | None = None) -> subprocess.Popen[str]:  # fmt: skip
    command = rank_command(library or mpi.library, rank, size, store, checks)
    return subprocess.Popen(
        command, env=environment(extra), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(processes: list[subprocess.Popen[str]]) -> Outcome:
    texts = []
    deadline = time.monotonic() + DEADLINE
    try:
        for process in processes:
            texts.append(process.communicate(timeout=max(1.0, deadline - time.monotonic()))[0])
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return Outcome([process.returncode for process in processes], "\n".join(texts))


def run(mpi: Mpi, size: int, store: Path, checks: str, extra: dict[str, str] | None = None) -> Outcome:
    return finish([start(mpi, rank, size, store, checks, extra) for rank in range(size)])


ALL_CHECKS = "messages,sizes,pieces,collectives,few_groups,again,fork"


@pytest.mark.parametrize("size", [1, 2, 4])
def test_own_bootstrap(mpi: Mpi, size: int, tmp_path: Path) -> None:
    outcome = run(mpi, size, tmp_path, ALL_CHECKS)
    outcome.must_be_good(size)
    assert outcome.text.count("by altorch's own bootstrap") == size


@pytest.mark.parametrize("size", [2, 3])
def test_windows(mpi: Mpi, size: int, tmp_path: Path) -> None:
    """The conformance of windows over MPI's one-sided communication; one that is left open holds no one up."""
    run(mpi, size, tmp_path / "closed", "windows").must_be_good(size)
    run(mpi, size, tmp_path / "open", "open_window").must_be_good(size)


def test_windows_under_its_launcher(mpi: Mpi, tmp_path: Path) -> None:
    if not mpi.mpirun:
        pytest.skip(f"no mpirun beside {mpi.library}")
    command = [*mpi.mpirun, "-n", "2", ranks_program(), "--library", str(mpi.library), "--shims", str(SHIMS),
               "--window-store", str(tmp_path), "--checks", "open_window"]  # fmt: skip
    finished = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("checks", [ALL_CHECKS, "existing,messages"], ids=["plain", "already_initialised"])
def test_its_own_launcher(mpi: Mpi, size: int, checks: str) -> None:
    if not mpi.mpirun:
        pytest.skip(f"no mpirun beside {mpi.library}")
    command = [*mpi.mpirun, "-n", str(size), ranks_program(), "--library", str(mpi.library), "--shims", str(SHIMS),
               "--checks", checks]  # fmt: skip
    finished = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    origin = "another user of MPI" if "existing" in checks else "an MPI launcher"
    assert finished.stdout.count(f"by {origin}") == size


def test_inherited_identities_do_no_harm(mpi: Mpi, tmp_path: Path) -> None:
    """What `srun torchrun` and `mpirun torchrun` leave behind."""
    leftovers = {
        "PMIX_NAMESPACE": "step", "PMIX_RANK": "0", "PMI_FD": "77", "PMI_RANK": "3", "PMI_SIZE": "8", "PMI2_FD": "5",
        "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "9", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3",
        "FLUX_JOB_ID": "12", "OMPI_MCA_ess_base_jobid": "1", "OMPI_MCA_orte_hnp_uri": "1.0;tcp://127.0.0.1:1",
    }  # fmt: skip
    run(mpi, 2, tmp_path, "messages", leftovers).must_be_good(2)


@pytest.mark.parametrize("ranks_per_node", [1, 2])
def test_two_nodes(mpi: Mpi, ranks_per_node: int, tmp_path: Path) -> None:
    problem = no_virtual_nodes()
    if problem:
        pytest.skip(problem)
    store = tmp_path / "store"
    size = 2 * ranks_per_node
    with virtual_nodes.virtual_nodes() as nodes:
        processes = []
        for index, node in enumerate(nodes):
            ranks = range(index * ranks_per_node, (index + 1) * ranks_per_node)
            checks, master = "messages,collectives,few_groups", ["--master", nodes[0].address]
            commands = [[*rank_command(mpi.library, rank, size, store, checks), *master] for rank in ranks]
            command = [*node.prefix, *virtual_nodes.launcher_script(tmp_path, commands)]
            processes.append(
                subprocess.Popen(
                    command,
                    env=environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        outcome = finish(processes)
    outcome.must_be_good(size)
    assert outcome.text.count("nodes " + "0" * ranks_per_node + "1" * ranks_per_node) == size


def test_refused_memory_attach_costs_speed_only(mpi: Mpi, tmp_path: Path) -> None:
    outcome = run(mpi, 2, tmp_path, "no_attach,messages")
    if "no seccomp filter here" in outcome.text:
        pytest.skip("this system does not let a process filter its system calls")
    outcome.must_be_good(2)


def test_killed_ranks_leave_no_shared_memory(mpi: Mpi, tmp_path: Path) -> None:
    processes = [start(mpi, rank, 2, tmp_path, "hang") for rank in range(2)]
    maps = ""
    for process in processes:
        assert process.stdout is not None
        # Libraries may say something before.
        assert any("hanging" in line for line in iter(process.stdout.readline, "")), "it ended"
        maps += Path(f"/proc/{process.pid}/maps").read_text()
    for process in processes:
        process.send_signal(signal.SIGKILL)
    finish(processes)
    files = {Path(name) for name in re.findall(r"/dev/shm/\S+", maps)}
    assert files, "this MPI uses no shared memory: the test looks in the wrong place"
    assert not [file for file in files if file.exists()]


def test_a_rank_without_mpi_is_an_error_on_every_rank(any_mpi: Mpi, tmp_path: Path) -> None:
    begin = time.monotonic()
    nowhere = tmp_path / "libmpi.so.12"
    outcome = finish(
        [
            start(any_mpi, 0, 2, tmp_path / "store", ""),
            start(any_mpi, 1, 2, tmp_path / "store", "", library=nowhere),
        ]
    )
    assert outcome.codes == [1, 1]
    assert outcome.text.count("Rank 1 cannot use MPI: The MPI library cannot be loaded") == 2
    assert time.monotonic() - begin < 20


def test_different_libraries_are_an_error_on_every_rank(tmp_path: Path) -> None:
    families = {_mpi.family_of(mpi.library): mpi for mpi in mpis()}  # one may be installed twice
    if len(families) < 2:
        pytest.skip("there is only one MPI here")
    first, other = list(families.values())[:2]
    outcome = finish([start(first, 0, 2, tmp_path, ""), start(other, 1, 2, tmp_path, "")])
    assert outcome.codes == [1, 1]
    assert outcome.text.count("different MPI libraries") == 2


def test_a_rank_that_stays_away_is_named(any_mpi: Mpi, tmp_path: Path) -> None:
    command = [ranks_program(), "--library", str(any_mpi.library), "--shims", str(SHIMS), "--rank", "0", "--size", "3",
               "--store", str(tmp_path), "--timeout", "1"]  # fmt: skip
    finished = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert finished.returncode == 1
    assert "ranks 1, 2 have not come to start MPI: not there after 1 s" in finished.stderr


def in_small_shared_memory(megabytes: int) -> list[str] | None:
    """A command prefix that gives its command a /dev/shm of that size, or None where that is not allowed."""
    script = f'mount -t tmpfs -o size={megabytes}m tmpfs /dev/shm && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", script, "sh"]
    works = (
        shutil.which("unshare")
        and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    )
    return prefix if works else None


def test_too_little_shared_memory_is_refused(mpi: Mpi, tmp_path: Path) -> None:
    prefix = in_small_shared_memory(10)
    if prefix is None:
        pytest.skip("mounting a small /dev/shm needs root and the packages util-linux and mount")
    launch = (
        "import subprocess, sys; ranks = [subprocess.Popen(sys.argv[1:] + ['--rank', str(r)]) for r in range(2)]; "
        "sys.exit(sum(r.wait() for r in ranks))"
    )
    command = [*prefix, sys.executable, "-c", launch, ranks_program(), "--library", str(mpi.library), "--shims",
               str(SHIMS), "--size", "2", "--store", str(tmp_path)]  # fmt: skip
    finished = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert finished.returncode == 2, finished.stdout + finished.stderr
    assert finished.stderr.count("MB free, and MPI needs 12 MB for the 2 ranks") == 2


@pytest.mark.parametrize("level", ["multiple", "single"])
def test_thread_levels(mpi: Mpi, level: str, tmp_path: Path) -> None:
    outcome = run(mpi, 2, tmp_path, "messages,collectives", {"ALTORCH_MPI_THREAD": level})
    outcome.must_be_good(2)
    assert outcome.text.count(f", {level}, by") == 2


def test_a_rank_lost_inside_mpi_while_a_group_is_made(mpi: Mpi, tmp_path: Path) -> None:
    """MPI_Comm_create_group cannot be interrupted: who called it goes on without MPI, and its process ends."""
    outcome = run(mpi, 3, tmp_path, "lost_member")
    assert outcome.codes == [0, 0, 0], outcome.text


def test_three_thousand_groups(mpi: Mpi, tmp_path: Path) -> None:
    run(mpi, 2, tmp_path, "many_groups").must_be_good(2)
