# SPDX-License-Identifier: BSD-3-Clause
"""Jacobi iteration on a square plate with a hot edge: each rank has a strip of rows, and needs its neighbours' rows.

    torchrun --standalone --nproc-per-node 2 examples/jacobi.py
    torchrun --standalone --nproc-per-node 2 examples/jacobi.py --device cuda --size 4096
    torchrun --standalone --nproc-per-node 4 examples/jacobi.py --size 4096 --steps 20 --against gloo --json rows.jsonl

By windows (`altorch.new_window`): a rank puts its outer rows into its neighbours' memory with a signal, computes the
rest, and waits for their signals. By messages: isend and irecv of the same rows at the same moments. Prints the time
of a step of each, how much of the exchange the rest of the computation hides, and the largest difference from the same
iteration in one process; ends with exit code 1 when that is above 1e-12. `--against gloo` sends the messages over
another backend, too; `--plot heat.png` draws the plate.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import altorch


def device_of(name: str) -> torch.device:
    """This rank's. On GPUs one each, or one that several ranks share."""
    if name == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def until_idle(device: torch.device) -> None:
    """The host is ahead of a GPU, whose clock is the one that counts."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def relax(source: torch.Tensor, target: torch.Tensor, first: int, end: int) -> None:
    """Rows first to end of `target`: the mean of each place's four neighbours in `source`."""
    inner = target[first:end, 1:-1]
    torch.add(source[first - 1 : end - 1, 1:-1], source[first + 1 : end + 1, 1:-1], out=inner)
    inner.add_(source[first:end, :-2]).add_(source[first:end, 2:]).mul_(0.25)


class Strip:
    """Two copies, read and written in turn, of this rank's rows with a row of each neighbour around them."""

    def __init__(self, size: int, rank: int, ranks: int, device: torch.device) -> None:
        self.device = device
        self.counts = [size // ranks + (each < size % ranks) for each in range(ranks)]
        self.rows, self.rank = self.counts[rank], rank
        self.above = rank - 1 if rank > 0 else None
        self.below = rank + 1 if rank + 1 < ranks else None
        self.width = size + 2
        self.copies = altorch.empty(2, self.rows + 2, self.width, dtype=torch.float64, device=device)
        self.reset()

    def reset(self) -> None:
        self.copies.zero_()
        if self.above is None:
            hot = torch.sin(torch.linspace(0, torch.pi, self.width, dtype=torch.float64))
            self.copies[:, 0] = hot.to(self.device)  # a GPU's sine has other last bits

    def neighbours(self) -> list[tuple[int, int, int]]:
        """Of each: its rank, this rank's row for it, and which of its rows that is."""
        return [
            (rank, row, self.counts[rank] + 1 if rank == self.above else 0)
            for rank, row in ((self.above, 1), (self.below, self.rows))
            if rank is not None
        ]

    def step(self, number: int, exchange: Exchange | None, computes: bool = True) -> None:
        """The outer rows come first: they read what the neighbours have put, and the neighbours wait for them."""
        source, target = self.copies[number % 2], self.copies[1 - number % 2]
        if computes:
            relax(source, target, 1, 2)
            relax(source, target, self.rows, self.rows + 1)
        finish = exchange(self, 1 - number % 2) if exchange else None
        if computes:
            relax(source, target, 2, self.rows)
        if finish:
            finish()


Exchange = Callable[[Strip, int], Callable[[], None]]


def by_window(window: altorch.Window) -> Exchange:
    """On GPUs both halves are on the current stream, and the host waits for neither."""

    def exchange(strip: Strip, copy: int) -> Callable[[], None]:
        for rank, row, theirs in strip.neighbours():
            rows = strip.counts[rank] + 2
            window.put_signal(strip.copies[copy, row], rank, (copy * rows + theirs) * strip.width)

        def finish() -> None:
            for rank, _, _ in strip.neighbours():
                window.wait_signal(rank)

        return finish

    return exchange


def by_messages(group: dist.ProcessGroup | None = None) -> Exchange:
    def exchange(strip: Strip, copy: int) -> Callable[[], None]:
        operations = []
        for rank, row, _ in strip.neighbours():
            theirs = strip.copies[copy, row - 1 if rank == strip.above else row + 1]
            operations += [(dist.irecv, theirs, rank), (dist.isend, strip.copies[copy, row], rank)]
        if strip.device.type == "cuda":  # on one stream each would wait for the one before it
            batch = [dist.P2POp(call, row, rank, group) for call, row, rank in operations]
            works = dist.batch_isend_irecv(batch) if batch else []
        else:
            works = [call(row, rank, group) for call, row, rank in operations]

        def finish() -> None:
            for work in works:
                work.wait()

        return finish

    return exchange


def timed(strip: Strip, steps: int, exchange: Exchange | None, computes: bool = True) -> float:
    """Microseconds for a step, of the slowest rank."""
    strip.reset()
    until_idle(strip.device)
    dist.barrier()
    began = time.perf_counter()
    for number in range(steps):
        strip.step(number, exchange, computes)
    until_idle(strip.device)
    took = torch.tensor((time.perf_counter() - began) / steps * 1e6)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def gathered(strip: Strip, steps: int) -> torch.Tensor:
    """The plate, without its edges, on every rank."""
    mine = strip.copies[steps % 2, 1:-1].contiguous().cpu()
    plates = [torch.empty(count, strip.width, dtype=torch.float64) for count in strip.counts]
    dist.all_gather(plates, mine)
    return torch.cat(plates)[:, 1:-1]


def whole(size: int, steps: int, device: torch.device) -> torch.Tensor:
    """The same on one process."""
    strip = Strip(size, 0, 1, device)
    for number in range(steps):
        strip.step(number, None)
    return strip.copies[steps % 2, 1:-1, 1:-1].cpu()


def draw(plate: torch.Tensor, path: str) -> None:
    try:
        import matplotlib
    except ImportError:
        print("No picture: matplotlib is not installed; pip install 'altorch[plot]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 5))
    figure.colorbar(axes.imshow(plate, cmap="inferno"), label="temperature")
    axes.set_axis_off()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"The plate is in {path}")


def main() -> int | str:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--size", type=int, default=1024, help="rows and columns of the plate (default %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=300, help="default %(default)s")
    parser.add_argument(
        "--turns", type=int, default=3, help="of both ways, the fastest one counts (default %(default)s)"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default %(default)s")
    parser.add_argument("--against", default="", metavar="LIST", help="backends for messages beside al's")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append the figures to FILE, as one JSON line"
    )
    parser.add_argument("--plot", metavar="PNG", help="draw the plate")
    arguments = parser.parse_args()

    dist.init_process_group("al")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if arguments.size < 2 * ranks:
        dist.destroy_process_group()
        return f"{arguments.size} rows are too few for {ranks} ranks: each needs two."
    torch.set_num_threads(1)
    device = device_of(arguments.device)
    strip = Strip(arguments.size, rank, ranks, device)
    window = altorch.new_window(strip.copies)
    ways: dict[str, Exchange] = {"window": by_window(window), "messages": by_messages()}
    for name in filter(None, arguments.against.split(",")):
        ways[name] = by_messages(dist.new_group(backend=name))
    alone: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in ways}
    exchanging: dict[str, list[float]] = {name: [] for name in ways}
    worst = 0.0
    wanted = whole(arguments.size, arguments.steps, device) if rank == 0 else None
    for _ in range(arguments.turns):  # of all in turn: what else the machine does falls on all alike
        alone.append(timed(strip, arguments.steps, None))
        for name, exchange in ways.items():
            exchanging[name].append(timed(strip, arguments.steps, exchange, computes=False))
            found[name].append(timed(strip, arguments.steps, exchange))
            plate = gathered(strip, arguments.steps)
            if wanted is not None:
                worst = max(worst, (plate - wanted).abs().max().item())
    best = {name: min(took) for name, took in found.items()}
    # Between none and all: of a large plate the computation alone varies by more than the exchange
    # takes.
    hidden = {
        name: min(max(0, 1 - (took - min(alone)) / min(exchanging[name])), 1) for name, took in best.items()
    }
    if rank == 0:
        for name, took in best.items():
            print(
                f"{name:>8}: {took:8.1f} us a step, {took - min(alone):+.1f} us for the exchange; alone it takes "
                f"{min(exchanging[name]):.1f}, the computation {min(alone):.1f}: {hidden[name]:.0%} hidden"
            )
        for name, took in best.items():
            if name != "window":
                print(f"{name} / window: {took / best['window']:.2f}")
        if arguments.json:
            figures = {
                "benchmark": "jacobi", "ranks": ranks, "device": arguments.device, "size": arguments.size,
                "steps": arguments.steps, "torch": torch.__version__, "altorch": altorch.__version__,
                "computation_us": min(alone), "step_us": best, "hidden": hidden,
                "exchange_us": {name: min(took) for name, took in exchanging.items()},
            }  # fmt: skip
            with arguments.json.open("a") as file:
                file.write(json.dumps(figures) + "\n")
        print(f"largest difference from one process: {worst:.1e}")
        if arguments.plot:
            draw(plate, arguments.plot)
    window.tensor_deregister()
    dist.destroy_process_group()
    return int(worst > 1e-12)


if __name__ == "__main__":
    sys.exit(main())
