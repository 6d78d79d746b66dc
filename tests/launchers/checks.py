# SPDX-License-Identifier: BSD-3-Clause
"""What each rank runs under a launcher. Prints one line of JSON per rank, and raises on a wrong result.

Nothing tells this program its rank: `init_process_group("al")` must find it in what the launcher left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

SIZES = (1, 1000, 300_000)


def data(rank: int, size: int, salt: int = 0) -> torch.Tensor:
    """Any rank can make the data of any other."""
    generator = torch.Generator().manual_seed(10_007 * rank + salt)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def close(got: torch.Tensor, expected: torch.Tensor, call: str) -> None:
    assert torch.allclose(got.double(), expected, rtol=1e-5, atol=1e-5), f"{call} is wrong"


def check_group(group: dist.ProcessGroup | None, ranks: list[int], salt: int) -> None:
    rank = dist.get_rank()
    for size in SIZES:
        own = data(rank, size, salt).float()
        everything = [data(each, size, salt) for each in ranks]
        reduced = own.clone()
        dist.all_reduce(reduced, group=group)
        close(reduced, torch.stack(everything).sum(0), f"all_reduce of {size} among {ranks}")
        gathered = [torch.empty(size) for _ in ranks]
        dist.all_gather(gathered, own, group=group)
        close(torch.stack(gathered), torch.stack(everything), f"all_gather of {size} among {ranks}")
    dist.barrier(group)


def check_messages() -> None:
    """Around the ring, rank 0 first."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        return
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    for size in SIZES:
        received = torch.empty(size)
        sent = data(rank, size, 7).float()
        if rank == 0:
            dist.send(sent, after)
            dist.recv(received, before)
        else:
            dist.recv(received, before)
            dist.send(sent, after)
        close(received, data(before, size, 7), f"recv of {size} from {before}")


def check() -> dict[str, object]:
    """All checks in the default group, which the caller has made; returns this rank's row."""
    from altorch import _launcher
    from altorch._extension import extension

    rank, ranks = dist.get_rank(), dist.get_world_size()
    check_group(None, list(range(ranks)), 1)
    check_messages()
    members = list(range(0, ranks, 2)) if ranks > 2 else list(range(ranks))
    second = dist.new_group(members)
    if rank in members:
        check_group(second, members, 2)
    dist.barrier()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    return {
        "rank": rank,
        "size": ranks,
        "launcher": _launcher.detect().name,
        "transport": extension().transport(backend),
        "mpi": str(extension().describe_job()),
        "restart": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    }


def report(row: dict[str, object]) -> None:
    """In one write, so that lines of several ranks do not mix."""
    os.write(sys.stdout.fileno(), (json.dumps(row) + "\n").encode())


def die_once(flag: Path, whom: str) -> None:
    """In the first life of the job, the second worker of node "b" kills itself, and its agent before itself."""
    if os.environ.get("ALTORCH_NODE") == "b" and os.environ.get("LOCAL_RANK") == "1" and not flag.exists():
        flag.touch()
        if whom == "agent":
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--init-method", help="for example mpi://; nothing: as init_process_group does by itself"
    )
    parser.add_argument("--die-once", nargs=2, metavar=("FILE", "worker|agent"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("al", init_method=options.init_method)
    row = check()
    if options.die_once:
        die_once(Path(options.die_once[0]), options.die_once[1])
    report(row)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
