# SPDX-License-Identifier: BSD-3-Clause
"""One rank of a test: connects to the harness, runs test bodies one after another, reports each outcome."""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
import zlib
from datetime import timedelta
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

# For tests.ranks, which the modules of test bodies import too.
sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.ranks.fork_server import die_with_parent

SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


class World:
    """What a test body gets as its first argument."""

    def __init__(self, rank: int, size: int, backend: str) -> None:
        self.rank = rank
        self.size = size
        self.backend = backend
        self.case = ""  # the case under test, printed with a failure and part of the random seed
        self.digests: list[tuple[str, str]] = []

    @property
    def is_al(self) -> bool:
        """Whether altorch's engine carries the default group: not another backend, nor Gloo for want of an MPI."""
        import torch
        import torch.distributed as dist

        if "al" not in self.backend.replace("cpu:", "").replace("cuda:", "").split(","):
            return False
        impl = dist.group.WORLD._get_backend(torch.device("cpu"))
        return not isinstance(impl, dist.ProcessGroupGloo)

    @property
    def seed(self) -> int:
        return int(os.environ.get("ALTORCH_TEST_SEED", "0"))

    def generator(self, rank: int | None = None) -> Any:
        """A random generator that any rank can rebuild for any rank: the reference needs no communication."""
        import torch

        key = f"{self.case}|{self.rank if rank is None else rank}|{self.seed}"
        return torch.Generator().manual_seed(zlib.crc32(key.encode()))

    def identical(self, tensor: Any) -> None:
        """The harness fails the test unless every rank calls this with the same bytes, in the same order."""
        import torch

        data = tensor.detach().contiguous().cpu()
        raw = b"" if data.numel() == 0 else bytes(data.reshape(-1).view(torch.uint8).numpy().data)
        self.digests.append((self.case, hashlib.sha1(raw).hexdigest()))

    def start(self, backend: str | None = None, timeout: float = 120, **options: Any) -> None:
        """init_process_group in the way that fits the launcher."""
        start_group(backend or self.backend, self.rank, self.size, timeout, **options)


def _first(names: tuple[str, ...], default: str) -> int:
    return int(next((os.environ[name] for name in names if name in os.environ), default))


def start_group(backend: str, rank: int, size: int, timeout: float, **options: Any) -> None:
    import torch.distributed as dist

    if "al" in backend:
        import altorch  # noqa: F401 - registers the backend
    if port := os.environ.get("ALTORCH_TEST_MASTER_PORT"):  # mpirun started us
        if "al" in backend:
            options.setdefault("init_method", os.environ.get("ALTORCH_TEST_INIT_METHOD", "mpi://"))
        else:
            options |= {"init_method": f"tcp://127.0.0.1:{port}", "rank": rank, "world_size": size}
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout), **options)


def _resolve(module: str, name: str) -> Any:
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    # A test function decorated with on_ranks carries the body that the ranks run.
    return getattr(target, "rank_body", target)


def _run(world: World, job: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    world.case, world.digests = "", []
    reply: dict[str, Any] = {"status": "ok", "value": None}
    try:
        if job["group"]:
            import torch.distributed as dist

            if not dist.is_initialized():
                world.start()
        reply["value"] = _resolve(job["module"], job["name"])(world, **job["kwargs"])
    except BaseException as error:  # pytest's outcomes are BaseExceptions
        if type(error).__name__ == "Skipped":
            reply |= {"status": "skip", "message": str(error)}
        else:
            reply |= {"status": "error", "message": str(error), "error_type": type(error).__name__}
            reply["traceback"] = traceback.format_exc()
    reply |= {"case": world.case, "digests": world.digests, "seconds": time.monotonic() - started}
    return reply


def _receive_jobs(connection: Connection, jobs: queue.SimpleQueue[Any]) -> None:
    while True:
        try:
            jobs.put(connection.recv())
        except (EOFError, OSError):
            os._exit(3)  # the harness is gone: no process is left to clean up after us


def _redirect_output(rank: int) -> None:
    path = Path(os.environ["ALTORCH_TEST_LOGS"]) / f"rank{rank}.log"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _node(nodes: str, rank: int, size: int) -> str:
    """As if the ranks were on so many nodes, one after another; or on those of a list, in turns: "0,0,1"."""
    listed = nodes.split(",")
    return listed[rank % len(listed)] if len(listed) > 1 else str(rank * int(nodes) // size)


def main() -> int:
    rank, size = _first(RANK_VARIABLES, "0"), _first(SIZE_VARIABLES, "1")
    _redirect_output(rank)
    if nodes := os.environ.get("ALTORCH_TEST_NODES"):
        os.environ["ALTORCH_NODE"] = _node(nodes, rank, size)
        os.environ.setdefault("NCCL_HOSTID", os.environ["ALTORCH_NODE"])
    die_with_parent()
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    connection = Client(os.environ["ALTORCH_TEST_CONTROL"], family="AF_UNIX")
    connection.send({"rank": rank})
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive_jobs, args=(connection, jobs), daemon=True).start()
    world = World(rank, size, os.environ.get("ALTORCH_TEST_BACKEND", "al"))
    while (job := jobs.get()) is not None:
        reply = _run(world, job)
        sys.stdout.flush()
        try:
            connection.send(reply)
        except (TypeError, AttributeError) as error:  # a value that cannot be pickled
            reply |= {"status": "error", "value": None, "message": f"unpicklable result: {error}"}
            connection.send(reply)
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    # Bodies find this very module (and one World class) under its plain name.
    sys.modules.setdefault("worker", sys.modules["__main__"])
    sys.exit(main())
