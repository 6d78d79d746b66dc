"""What the benchmarks of CUDA tensors share: groups of contenders, a device that waits for its host, what rows say."""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import altorch
from benchmarks import report
from benchmarks.ranks import Row

LONGEST_SPIN = 0.005  # seconds


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
    """A group of all ranks: "al:host_staged" over that route, "al:max_ctas=4" with that option (of "nccl" too).

    The route is settled when the first CUDA tensor comes.
    """
    backend, _, choice = contender.partition(":")
    option, _, value = choice.partition("=")
    before = os.environ.get("ALTORCH_ROUTE")
    if choice and not value:
        os.environ["ALTORCH_ROUTE"] = f"cuda={choice}"
    try:
        options = options_of(backend, option, int(value)) if value else None
        group = dist.new_group(backend=backend, pg_options=options)
        dist.all_reduce(torch.zeros(1, device=here), group=group)
        torch.cuda.synchronize()
    finally:
        if before is None:
            os.environ.pop("ALTORCH_ROUTE", None)
        else:
            os.environ["ALTORCH_ROUTE"] = before
    return group


def options_of(backend: str, name: str, value: int) -> Any:
    if backend == "al":
        return altorch.Options(**{name: value})
    options = dist.ProcessGroupNCCL.Options()
    setattr(options if hasattr(options, name) else options.config, name, value)
    return options


def slowest(figure: float) -> float:
    """The largest of all ranks."""
    largest = torch.tensor([figure], dtype=torch.float64)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def median(figures: list[float]) -> float:
    """The median of rounds, of the rank where it is largest."""
    return slowest(statistics.median(figures))


def event_pair() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


@functools.cache
def cycles_per_second() -> float:
    cycles = 10_000_000
    torch.cuda._sleep(cycles)  # loads the kernel and wakes the clock
    begin, end = event_pair()
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / begin.elapsed_time(end) * 1000


def spin_for(host: float) -> float:
    """Seconds to spin while the host issues what takes it `host` seconds: some more, but never long."""
    return min(LONGEST_SPIN, 1.5 * host + 0.0002)


def behind_spin(issue: Callable[[], Any], align: Callable[[], Any], spin: float) -> tuple[float, bool]:
    """Seconds that the current stream takes for what `issue` gives it, and whether all was issued before it began.

    A kernel that spins holds the stream meanwhile, so that the host is not what is measured. `align` is a collective
    behind it: it brings the ranks together, so that no rank's clock runs while another still spins.
    """
    begin, end = event_pair()
    cycles = int(spin * cycles_per_second())
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda._sleep(cycles)
    align()
    begin.record()
    issue()
    covered = not begin.query()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000, covered
