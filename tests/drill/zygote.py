"""A process that has imported torch and forks the cells: a rank is there in milliseconds, not in two seconds of a core.

What it has imported is all that the ranks share: it makes no group, loads neither altorch's extension nor an MPI nor
CUDA, and has one thread, which is checked. A forked rank returns from here to the top, so that its interpreter ends as
that of any program does.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from multiprocessing.connection import Connection, Listener
from pathlib import Path

import torch.distributed
import torch.distributed.distributed_c10d  # noqa: F401

import altorch  # noqa: F401 - registers the backend, and loads no more than that
from tests.drill import moments  # noqa: F401
from tests.drill.cells import CELLS
from tests.drill.expectations import Seen
from tests.drill.scene import die_with_parent
from tests.drill.stage import Program, perform

BY_NAME = {cell.name: cell for cell in CELLS}


def main(address: str) -> int:
    die_with_parent()
    gc.collect()
    gc.freeze()  # what torch has made is not gone through again at each rank's end, which copies every page of it
    listener = Listener(address, family="AF_UNIX", backlog=64)
    print("ready", flush=True)
    while True:
        connection = listener.accept()
        collect()
        assert len(list(Path("/proc/self/task").iterdir())) == 1, (
            "a thread's locks would be held for ever in what is forked"
        )
        if os.fork() == 0:
            listener._listener._unlink = None  # type: ignore[attr-defined] # the name is the parent's to remove
            listener.close()
            return serve(connection)
        connection.close()


def collect() -> None:
    """The cells that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def serve(connection: Connection) -> int:
    """One cell. Both this process and the ranks it forks come out of here."""
    die_with_parent()
    name, limit, folder = connection.recv()
    try:
        outcome: Seen | Program = perform(BY_NAME[name], limit, Path(folder))
    except Exception:
        outcome = Seen(broken=traceback.format_exc())
    if not isinstance(outcome, Seen):
        connection.close()
        return outcome()
    connection.send(outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
