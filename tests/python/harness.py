# SPDX-License-Identifier: BSD-3-Clause
"""Multi-rank tests that start, watch and end their own ranks.

`@on_ranks(2, 4)` turns a function `body(world, ...)` into a pytest test that runs the body on every rank of a
pool of processes. The pool (one per world size and environment) lives on over many tests and has one process
group; it is replaced after a failure, because the ranks may then disagree about what comes next.

`Cluster` is the same thing in the hands of a test: for faults and bootstraps, where ranks die or never meet.

Every wait has a deadline, a failure carries each rank's traceback and the end of its output, and whatever was started
is killed: processes are found by their session and by a token in their environment, wherever a launcher has put them.
"""

from __future__ import annotations

import inspect
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.launch import (
    LaunchPlan,
    backend_under_test,
    clean_environment,
    launch,
    launcher_under_test,
)

WORKER = Path(__file__).resolve().parent / "worker.py"
TOKEN = "ALTORCH_TEST_TOKEN"
# Slow or shared machines: ALTORCH_TEST_PATIENCE=3 triples every deadline.
PATIENCE = float(os.environ.get("ALTORCH_TEST_PATIENCE", "1"))
# Seconds for a program that the fork server does not start: importing torch takes a minute beside
# other tests.
PROGRAM_DEADLINE = 180 * PATIENCE
# What may carry the CPU tensors of ranks on this machine, by the environment that chooses it.
CARRIERS = {
    "shm": {},
    "mpi": {"ALTORCH_SHM_BYTES": "0"},
    "gloo": {"ALTORCH_SHM_BYTES": "0", "ALTORCH_MPI": "none"},
    "nodes": {"ALTORCH_TEST_NODES": "2"},
}


def stat_of(process: Path) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    return (process / "stat").read_text().rsplit(")", 1)[1].split()


def is_running(pid: int) -> bool:
    """Whether the process runs: a zombie that no parent has collected yet does not."""
    try:
        return stat_of(Path(f"/proc/{pid}"))[0] not in "ZX"
    except OSError:
        return False


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for this signal, which would end it otherwise."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (number - 1) & 1)


def peer_pid(connection: Connection) -> int:
    """The process at the other end, by its number here: it may live in a process namespace of its own."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        return struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


@dataclass
class Outcome:
    """What one rank did with one body."""

    rank: int
    status: str  # ok | error | skip | died | late
    value: Any = None
    message: str = ""
    error_type: str = ""
    traceback: str = ""
    case: str = ""
    digests: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    output: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def report(self) -> str:
        lines = [f"rank {self.rank}: {self.status} after {self.seconds:.1f} s"]
        if self.case:
            lines[0] += f", in case: {self.case}"
        lines += [
            text
            for text in (self.traceback or self.message, self.output and "--- output:\n" + self.output)
            if text
        ]
        return "\n".join(lines)


class Cluster:
    """`size` ranks, started on entry or at first use; killed without exception on close()."""

    def __init__(
        self,
        size: int,
        *,
        group: bool = True,
        backend: str | None = None,
        launcher: str | None = None,
        env: Mapping[str, str] | None = None,
        mpirun: str | None = None,
        node_prefixes: list[list[str]] | None = None,
        ranks_of_nodes: list[int] | None = None,
        start_deadline: float = 120,
    ) -> None:
        self.size = size
        self.group = group
        self._token = secrets.token_hex(8)
        self._directory = Path(tempfile.mkdtemp(prefix="altorch-test-"))
        self._log_offsets: dict[int, int] = {}
        self.connections: dict[int, Connection] = {}
        self.pids: dict[int, int] = {}
        control = str(self._directory / "control")
        extra = dict(env or {}) | {
            TOKEN: self._token,
            "ALTORCH_TEST_CONTROL": control,
            "ALTORCH_TEST_LOGS": str(self._directory),
            "ALTORCH_TEST_BACKEND": backend or backend_under_test(),
        }
        self._plan = LaunchPlan()
        self._listener = Listener(control, family="AF_UNIX", backlog=size + 1)
        try:
            self._plan = launch(
                size,
                [str(WORKER)],
                launcher=launcher or launcher_under_test(),
                env=clean_environment(extra),
                log_directory=self._directory,
                forked="worker:main",
                mpirun=mpirun,
                node_prefixes=node_prefixes,
                ranks_of_nodes=ranks_of_nodes,
            )
            self._accept(time.monotonic() + start_deadline * PATIENCE)
        except BaseException:
            self.close(kill=True)
            raise

    def _accept(self, deadline: float) -> None:
        listening = self._listener._listener._socket  # type: ignore[attr-defined] # no public way to wait on a Listener
        while len(self.connections) < self.size:
            if wait([listening], timeout=0.2):
                connection = self._listener.accept()
                hello = connection.recv()
                self.connections[hello["rank"]] = connection
                self.pids[hello["rank"]] = peer_pid(connection)
            elif all(process.poll() is not None for process in self._plan.processes):
                raise RankFailure(f"The ranks ended before they reported.\n{self._launcher_output()}")
            elif time.monotonic() > deadline:
                missing = sorted(set(range(self.size)) - set(self.connections))
                raise RankFailure(f"Ranks {missing} never reported.\n{self._launcher_output()}")

    def _launcher_output(self) -> str:
        texts = []
        for path in sorted(self._directory.glob("*.log")):
            with suppress(OSError):
                texts.append(f"--- {path.name}:\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(texts)

    def output(self) -> str:
        """All that the ranks have printed."""
        logs = sorted(self._directory.glob("rank*.log"))
        return "\n".join(path.read_text(errors="replace") for path in logs)

    def _new_output(self, rank: int, limit: int = 6000) -> str:
        path = self._directory / f"rank{rank}.log"
        with suppress(OSError):
            data = path.read_bytes()
            start = self._log_offsets.get(rank, 0)
            self._log_offsets[rank] = len(data)
            return data[start:][-limit:].decode(errors="replace").strip()
        return ""

    def run(
        self,
        body: Callable[..., Any],
        *,
        deadline: float = 60,
        grace: float | None = None,
        group: bool | None = None,
        ranks: Iterable[int] | None = None,
        before_wait: Callable[[], None] | None = None,
        per_rank: Mapping[int, Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> list[Outcome]:
        """Run `body(world, **kwargs)` on every rank; one Outcome each, whatever happened there.

        grace: how long the others may go on after the first rank failed (None: until the deadline).
        before_wait: called in the test process once the ranks are at work (to kill one, for instance).
        per_rank: keyword arguments for single ranks.
        """
        ranks = range(self.size) if ranks is None else list(ranks)
        for rank in ranks:
            job = {
                "module": body.__module__,
                "name": body.__qualname__,
                "group": self.group if group is None else group,
                "kwargs": {**kwargs, **(per_rank or {}).get(rank, {})},
            }
            with suppress(OSError):
                self.connections[rank].send(job)
        started = time.monotonic()
        if before_wait:
            before_wait()
        end = started + deadline * PATIENCE
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < len(ranks):
            pending = {self.connections[rank]: rank for rank in ranks if rank not in outcomes}
            left = end - time.monotonic()
            ready = wait(list(pending), timeout=max(0.0, left)) if left > 0 else []
            if not ready:
                break
            for connection in ready:
                rank = pending[connection]  # type: ignore[index]
                outcomes[rank] = self._collect(rank, time.monotonic() - started)
                if grace is not None and outcomes[rank].status in ("error", "died"):
                    end = min(end, time.monotonic() + grace * PATIENCE)
        late = [rank for rank in ranks if rank not in outcomes]
        for (
            rank
        ) in late:  # altorch writes what the rank is at into its log, faulthandler every thread's stack
            if catches(self.pids[rank], signal.SIGUSR1):
                with suppress(ProcessLookupError):
                    os.kill(self.pids[rank], signal.SIGUSR1)
            with suppress(OSError):
                os.kill(self.pids[rank], signal.SIGUSR2)
        if late:
            time.sleep(0.5)
        for rank in late:
            message = f"still running after {time.monotonic() - started:.0f} s; its threads are in the output"
            output = self._new_output(rank)
            outcomes[rank] = Outcome(
                rank, "late", message=message, seconds=time.monotonic() - started, output=output
            )
        return [outcomes[rank] for rank in ranks]

    def _collect(self, rank: int, seconds: float) -> Outcome:
        try:
            reply = self.connections[rank].recv()
        except (EOFError, OSError):
            return Outcome(
                rank, "died", message="the process ended", seconds=seconds, output=self._new_output(rank)
            )
        output = self._new_output(rank)
        return Outcome(rank, **reply, output=output if reply["status"] in ("error", "died") else "")

    def check(self, body: Callable[..., Any], *, deadline: float = 60, **kwargs: Any) -> list[Any]:
        """run(), then fail the test unless every rank succeeded with the same digests; returns the values."""
        outcomes = self.run(body, deadline=deadline, grace=kwargs.pop("grace", 10), **kwargs)
        raise_for(outcomes)
        return [outcome.value for outcome in outcomes]

    def kill(self, rank: int, sig: int = signal.SIGKILL) -> None:
        os.kill(self.pids[rank], sig)

    def end(self, ranks: Iterable[int], *, deadline: float = 30) -> list[int]:
        """Ask these ranks to end as a program does at its end; the ranks that still run at the deadline."""
        ranks = list(ranks)
        for rank in ranks:
            with suppress(OSError):
                self.connections[rank].send(None)
        end = time.monotonic() + deadline * PATIENCE
        while time.monotonic() < end:
            if not any(is_running(self.pids[rank]) for rank in ranks):
                return []
            time.sleep(0.05)
        return [rank for rank in ranks if is_running(self.pids[rank])]

    def descendants(self) -> list[int]:
        """Every living process that carries our token, or is of a session that we have begun."""
        needle = f"{TOKEN}={self._token}".encode()
        sessions = {process.pid for process in self._plan.processes}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int(stat_of(path)[3]) in sessions or needle in (path / "environ").read_bytes().split(
                    b"\0"
                ):
                    found.append(int(path.name))
        return found

    def close(self, *, kill: bool = False, deadline: float = 30) -> None:
        """Ask the ranks to end; raise if one does not, or ends badly. With kill: just end them."""
        with suppress(OSError):
            self._listener.close()
        problem = "" if kill else self._ask_to_end(deadline * PATIENCE)
        self._kill_everything()
        for connection in self.connections.values():
            connection.close()
        if problem:
            problem += "\n" + self._launcher_output()
        shutil.rmtree(self._directory, ignore_errors=True)
        if problem:
            raise RankFailure(f"The ranks did not end cleanly.{problem}")

    def _ask_to_end(self, deadline: float) -> str:
        for connection in self.connections.values():
            with suppress(OSError):
                connection.send(None)
        problem = ""
        end = time.monotonic() + deadline
        for index, process in enumerate(self._plan.processes):
            try:
                code = process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                problem += f"\nProcess {index} did not end within {deadline:.0f} s of being asked to."
                for pid in self.pids.values():
                    with suppress(OSError):
                        os.kill(pid, signal.SIGUSR2)
                time.sleep(0.5)
            else:
                if code != 0:
                    problem += f"\nProcess {index} ended with status {code}."
        return problem

    def _kill_everything(self) -> None:
        ours: set[int] = set()
        end = time.monotonic() + 10
        while time.monotonic() < end:
            ours |= set(self.descendants())  # a process that is being torn down shows no environment any more
            ours = {pid for pid in ours if is_running(pid)}
            for pid in ours:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._plan.processes:
                process.poll()
            if not ours and all(process.returncode is not None for process in self._plan.processes):
                return
            time.sleep(0.01)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(kill=True)


class RankFailure(Exception):
    """One or more ranks failed; the message holds every rank's report."""


def raise_for(outcomes: list[Outcome]) -> None:
    """Turn failed ranks into one RankFailure, skipped ranks into a skip, different digests into a failure."""
    bad = [outcome for outcome in outcomes if outcome.status not in ("ok", "skip")]
    if bad:
        bad.sort(key=lambda outcome: ("error", "died", "late").index(outcome.status))
        text = "\n\n".join(outcome.report() for outcome in bad)
        raise RankFailure(f"{len(bad)} of {len(outcomes)} ranks failed.\n{text}")
    skips = [outcome for outcome in outcomes if outcome.status == "skip"]
    if skips and len(skips) < len(outcomes):
        raise RankFailure(f"Only ranks {[outcome.rank for outcome in skips]} skipped: {skips[0].message}")
    if skips:
        pytest.skip(skips[0].message)
    for other in outcomes[1:]:
        if other.digests != outcomes[0].digests:
            pairs = zip(outcomes[0].digests, other.digests, strict=False)
            first = next((mine for mine, theirs in pairs if mine != theirs), ("the number of results", ""))
            raise RankFailure(f"Ranks 0 and {other.rank} do not hold the same bits: {first[0]}")


# ---------------------------------------------------------------------------------------------------- pools


PoolKey = tuple[int, tuple[tuple[str, str], ...]]
_pool: Cluster | None = None
_pool_key: PoolKey | None = None


def pool(key: PoolKey) -> Cluster:
    """The living pool for this world size and environment. At most one pool lives at a time."""
    global _pool, _pool_key
    if _pool is not None and _pool_key != key:
        close_pool()
    if _pool is None:
        _pool, _pool_key = Cluster(key[0], env=dict(key[1])), key
    return _pool


def close_pool(*, kill: bool = False) -> None:
    global _pool, _pool_key
    living, _pool, _pool_key = _pool, None, None
    if living is not None:
        living.close(kill=kill)


def pool_key_of(item: pytest.Item) -> PoolKey | None:
    """The pool that a collected test wants, or None."""
    function = getattr(item, "obj", None)
    if not hasattr(function, "rank_body"):
        return None
    return (item.callspec.params["world_size"], function.rank_env)  # type: ignore[attr-defined]


def on_ranks(*sizes: int, deadline: float = 60, env: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """Make a test of `body(world, **parameters)`, run on every rank of each world size's pool.

    Without sizes the test's own parametrization gives `world_size`. A test of several sizes holds for any:
    ALTORCH_TEST_RANKS=8 runs it on eight ranks instead.
    """
    if len(sizes) > 1 and (asked := os.environ.get("ALTORCH_TEST_RANKS")):
        sizes = (int(asked),)
    rank_env = tuple(sorted((env or {}).items()))

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        def test(world_size: int, **parameters: Any) -> None:
            try:
                pool((world_size, rank_env)).check(test, deadline=deadline, **parameters)
            except RankFailure as failure:
                close_pool(kill=True)
                repeat = f"ALTORCH_TEST_SEED={os.environ.get('ALTORCH_TEST_SEED', '0')}"
                message = f"{failure}\n(repeat with {repeat})"
            else:
                return
            pytest.fail(message, pytrace=False)

        names = list(inspect.signature(body).parameters)[1:]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in ["world_size", *names]]
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(test, attribute, getattr(body, attribute))
        test.pytestmark = list(getattr(body, "pytestmark", []))  # type: ignore[attr-defined]
        test.rank_body = body  # type: ignore[attr-defined]
        test.rank_env = rank_env  # type: ignore[attr-defined]
        if not sizes:
            return test
        return pytest.mark.parametrize("world_size", sizes, ids=lambda size: f"{size}ranks")(test)

    return decorate


def names_all(text: str, *parts: str) -> bool:
    """Whether an error message names every part (case-insensitive regular expressions)."""
    return all(re.search(part, text, re.IGNORECASE) for part in parts)
