"""What the benchmarks of CUDA tensors share: groups of contenders, a device that waits for its host, what rows say."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from altorch.bench import contenders
from altorch.bench.clocks import LONGEST_SPIN, behind_spin, event_pair, spin_for
from altorch.bench.rows import Row
from benchmarks import report

__all__ = ["LONGEST_SPIN", "behind_spin", "event_pair", "spin_for"]


def start() -> torch.device:
    """Takes this rank's GPU and joins the default group, altorch's, which also carries what is not measured."""
    here = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(here)
    dist.init_process_group("al")
    return here


def finish(rows: Iterable[Row], file: str | None) -> None:
    if file and dist.get_rank() == 0:
        report.append(Path(file), rows)
    dist.barrier()
    dist.destroy_process_group()


def about(benchmark: str) -> Row:
    """What every row begins with."""
    return {
        "benchmark": benchmark, "ranks": dist.get_world_size(), "gpus": torch.cuda.device_count(),
        "machine": torch.cuda.get_device_name(), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "commit": os.environ.get("ALTORCH_TEST_COMMIT") or report.commit(),
    }  # fmt: skip


def headline(row: Row) -> str:
    return (
        f"{row['ranks']} ranks on {row['gpus']} x {row['machine']}, torch {row['torch']}, NCCL {row['nccl']}, "
        f"commit {row['commit']}"
    )


def shares_gpus() -> bool:
    return dist.get_world_size() > torch.cuda.device_count()


def usable(contenders: Iterable[str]) -> list[str]:
    """NCCL refuses ranks that share a GPU."""
    return [name for name in contenders if name.partition(":")[0] != "nccl" or not shares_gpus()]


def skipped(contenders: Iterable[str]) -> bool:
    """Whether nothing is left to measure; says so then."""
    if usable(contenders):
        return False
    if dist.get_rank() == 0:
        print("skipped: ranks share a GPU here, which NCCL refuses")
    finish([], None)
    return True


def make_group(contender: str, here: torch.device) -> Any:
    """A group of all ranks, as altorch.bench.contenders describes them; its route is settled."""
    return contenders.make(contender, here, ())


def slowest(figure: float) -> float:
    """The largest of all ranks."""
    largest = torch.tensor([figure], dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def median(figures: list[float]) -> float:
    """The median of rounds, of the rank where it is largest."""
    return slowest(statistics.median(figures))
