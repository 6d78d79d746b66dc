"""How the ranks of a test are started: plain processes, torchrun, or an MPI's own mpirun.

Environment variables (documented in docs/testing.md):
  ALTORCH_TEST_BACKEND   the backend under test ("al" by default)
  ALTORCH_TEST_LAUNCHER  plain | torchrun | mpirun
  ALTORCH_TEST_MPIRUN    the mpirun command of the MPI that ALTORCH_MPI points to
  ALTORCH_TEST_FORK      0: plain ranks start afresh, and are not forked (nursery.py)
  ALTORCH_MPI            the MPI library that altorch loads (read by altorch itself)
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from nursery import Forked, Nursery

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
WORKER = HERE / "worker.py"
LAUNCHERS = ("plain", "torchrun", "mpirun")

# Variables of an outer launcher: a test starts its ranks as if from a clean shell.
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


def free_port() -> int:
    """A TCP port below the ephemeral range, so that no outgoing connection takes it meanwhile."""
    for _ in range(1000):
        port = random.SystemRandom().randint(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("No free TCP port was found between 15000 and 32000.")


def clean_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without what an outer launcher left, plus `extra`."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _OUTER_LAUNCHER and not name.startswith(_OUTER_PREFIXES)
    }
    # More ranks than cores is the normal case here: one compute thread per rank keeps tests fast.
    env.setdefault("OMP_NUM_THREADS", "1")
    env.setdefault("OPENBLAS_NUM_THREADS", "1")
    env.setdefault("TORCH_SHOW_CPP_STACKTRACES", "0")
    env.setdefault(
        "TORCH_FR_DUMP_ON_TIMEOUT", "0"
    )  # many tests fail a call; the files would go to the home folder
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


@dataclass
class LaunchPlan:
    """One started job: its processes, and whether the harness itself names the ranks."""

    processes: list[subprocess.Popen[bytes] | Forked] = field(default_factory=list)
    per_rank: bool = False  # processes[i] is rank i


@lru_cache(maxsize=1)
def nursery() -> Nursery:
    return Nursery(clean_environment())


def spawn(command: list[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """In a session of its own, with its output at the end of `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def start_rank(program: list[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes] | Forked:
    """A worker is forked where its environment allows that, and starts afresh otherwise, like all else."""
    may_fork = program == [str(WORKER)] and os.environ.get("ALTORCH_TEST_FORK", "1") != "0"
    if may_fork and nursery().can_start(env):
        try:
            return nursery().start(WORKER.stem, env, log)
        except (EOFError, OSError) as error:  # it has ended, and said why
            print(f"ranks are not forked from now on: {error!r}", file=sys.stderr)
    return spawn([sys.executable, *program], env, log)


def launch(
    size: int,
    program: list[str],
    *,
    launcher: str,
    env: dict[str, str],
    log_directory: Path,
    mpirun: str | None = None,
    node_prefixes: list[list[str]] | None = None,
) -> LaunchPlan:
    """Start `size` ranks of the Python program `program` (arguments after the interpreter).

    With `node_prefixes` there is one torchrun for each (virtual) node, started behind its prefix; MASTER_ADDR in
    `env` is then an address of the first.
    """
    port = free_port()
    address = env.get("MASTER_ADDR", "127.0.0.1")
    log = log_directory / "launcher.log"
    if launcher == "plain":
        plan = LaunchPlan(per_rank=True)
        for rank in range(size):
            rank_env = env | {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_WORLD_SIZE": str(size),
                "MASTER_ADDR": address,
                "MASTER_PORT": env.get("MASTER_PORT", str(port)),
            }
            plan.processes.append(start_rank(program, rank_env, log))
        return plan
    if launcher == "torchrun":
        prefixes = node_prefixes or [[]]
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
