# SPDX-License-Identifier: BSD-3-Clause
"""Starts ranks as plain processes, by torchrun, or by an MPI's own mpirun.

Environment variables (documented in docs/testing.md):
  ALTORCH_TEST_BACKEND   the backend under test ("al" by default)
  ALTORCH_TEST_LAUNCHER  plain | torchrun | mpirun
  ALTORCH_TEST_MPIRUN    the mpirun command of the MPI that ALTORCH_MPI points to
  ALTORCH_TEST_FORK      0: plain ranks are fresh interpreters, not forks (fork_server.py)
  ALTORCH_MPI            the MPI library that altorch loads (read by altorch itself)
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tests.ranks.fork_server import ForkedProcess, ForkServer
from tests.ranks.ports import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
NODE = Path(__file__).resolve().parent / "node.py"
LAUNCHERS = ("plain", "torchrun", "mpirun")

# Variables that an outer launcher sets. Ranks start as if from a clean shell.
_OUTER_LAUNCHER = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_OUTER_PREFIXES = ("TORCHELASTIC_", "PMI_", "PMIX_", "OMPI_COMM_", "SLURM_")


def backend_under_test() -> str:
    return os.environ.get("ALTORCH_TEST_BACKEND", "al")


def launcher_under_test() -> str:
    launcher = os.environ.get("ALTORCH_TEST_LAUNCHER", "plain")
    if launcher not in LAUNCHERS:
        raise ValueError(f"ALTORCH_TEST_LAUNCHER is {launcher!r}; choose one of {', '.join(LAUNCHERS)}.")
    return launcher


def clean_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without what an outer launcher left, plus `extra`."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _OUTER_LAUNCHER and not name.startswith(_OUTER_PREFIXES)
    }
    # There are often more ranks than cores: one compute thread per rank keeps tests fast.
    env.setdefault("OMP_NUM_THREADS", "1")
    env.setdefault("OPENBLAS_NUM_THREADS", "1")
    env.setdefault("TORCH_SHOW_CPP_STACKTRACES", "0")
    env.setdefault("TORCH_FR_DUMP_ON_TIMEOUT", "0")  # a failed call would write a file to the home directory
    env["PYTHONFAULTHANDLER"] = "1"
    env["PYTHONUNBUFFERED"] = "1"
    env.update(extra or {})
    return env


@lru_cache(maxsize=8)
def mpirun_flags(mpirun: str) -> tuple[str, ...]:
    """What this mpirun needs to start more ranks than cores, possibly as root."""
    command = shlex.split(mpirun)
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, check=False)
    text = version.stdout + version.stderr
    if "Open MPI" not in text and "OpenRTE" not in text and "prte" not in text.lower():
        return ()
    flags: list[str] = ["--oversubscribe"]
    if "Open MPI) 5" in text or "prte" in text.lower():
        flags = ["--map-by", ":OVERSUBSCRIBE"]
    if os.geteuid() == 0:
        flags.append("--allow-run-as-root")
    return tuple(flags)


def default_mpirun() -> str | None:
    """ALTORCH_TEST_MPIRUN, or the mpiexec that belongs to this Python environment, or mpirun on PATH."""
    if command := os.environ.get("ALTORCH_TEST_MPIRUN"):
        return command
    beside = Path(sys.prefix) / "bin" / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpirun")


Process = subprocess.Popen[bytes] | ForkedProcess


@dataclass
class LaunchPlan:
    """The processes of one started job: its ranks, or the launchers that started them."""

    processes: list[Process] = field(default_factory=list)


@lru_cache(maxsize=1)
def fork_server() -> ForkServer:
    """The one that forks the ranks of this process's tests."""
    return ForkServer(clean_environment(), preload=["pytest"])


def rank_environment(rank: int, size: int, address: str, port: int | str) -> dict[str, str]:
    """What torchrun sets for a rank of one node."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def spawn(
    command: list[str], env: dict[str, str], log: Path, *, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in its own session. Its output goes to the end of `log`, or stdout to where `stdout` says."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output if stdout is None else stdout,
            stderr=output,
            start_new_session=True,
        )


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that spawn() started, with the children that stayed in its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def start_rank(program: list[str], forked: str | None, env: dict[str, str], log: Path) -> Process:
    """Fork a rank where `forked` names its function and its environment allows that, else start an interpreter."""
    if forked and os.environ.get("ALTORCH_TEST_FORK", "1") != "0" and fork_server().can_start(env):
        try:
            return fork_server().start(forked, env, log)
        except OSError as error:
            print(f"this rank is not forked: {error!r}", file=sys.stderr)
    return spawn([sys.executable, *program], env, log)


def launch(
    size: int,
    program: list[str],
    *,
    launcher: str,
    env: dict[str, str],
    log_directory: Path,
    forked: str | None = None,
    mpirun: str | None = None,
    node_prefixes: list[list[str]] | None = None,
    ranks_of_nodes: list[int] | None = None,
) -> LaunchPlan:
    """Start `size` ranks of the Python program `program` (arguments after the interpreter).

    `forked`: the program as a function, "module:function", which lets plain ranks be forked.
    With `node_prefixes` there is one torchrun for each (virtual) node, started behind its prefix; MASTER_ADDR in
    `env` is then an address of the first. Plain ranks may be `forked` there, and `ranks_of_nodes` says how many of
    them are on each.
    """
    port = free_port()
    address = env.get("MASTER_ADDR", "127.0.0.1")
    log = log_directory / "launcher.log"
    prefixes = node_prefixes or [[]]
    counts = ranks_of_nodes or [size // len(prefixes)] * len(prefixes)
    if launcher == "plain" and node_prefixes and forked:
        group = {"WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(port)}
        folder = str(Path(program[0]).parent)
        plan = LaunchPlan()
        for node, prefix in enumerate(prefixes):
            first = str(sum(counts[:node]))
            command = [*prefix, sys.executable, str(NODE), forked, folder, first, str(counts[node])]
            plan.processes.append(spawn(command, env | group, log))
        return plan
    if launcher == "plain":
        plan = LaunchPlan()
        for rank in range(size):
            rank_env = env | rank_environment(rank, size, address, env.get("MASTER_PORT", port))
            plan.processes.append(start_rank(program, forked, rank_env, log))
        return plan
    if launcher == "torchrun":
        command = [
            *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size // len(prefixes)}"),
            *(f"--master-addr={address}", f"--master-port={port}", f"--nnodes={len(prefixes)}"),
        ]
        plan = LaunchPlan()
        for node, prefix in enumerate(prefixes):
            full = [*prefix, *command, f"--node-rank={node}", *program]
            plan.processes.append(spawn(full, env, log))
        return plan
    mpirun = mpirun or default_mpirun()
    if mpirun is None:
        raise RuntimeError("No mpirun was found: put it on PATH or name it in ALTORCH_TEST_MPIRUN.")
    # For backends that cannot find their Store through MPI (Gloo), the worker reads these two.
    env = env | {"ALTORCH_TEST_MASTER_PORT": str(port), "ALTORCH_TEST_WORLD_SIZE": str(size)}
    command = [*shlex.split(mpirun), *mpirun_flags(mpirun), "-n", str(size), sys.executable, *program]
    return LaunchPlan([spawn(command, env, log)])
