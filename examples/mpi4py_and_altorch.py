# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py and altorch in one program: mpi4py simulates a flow, altorch trains a network on what it simulates.

    mpiexec -n 2 python examples/mpi4py_and_altorch.py --plot flow.png

mpi4py initialises MPI when it is imported, and altorch uses that MPI as it is: between nodes, and on one node, too,
where ALTORCH_SHM_BYTES is 0. Each rank has a strip of a plate on which heat spreads and drifts, and exchanges halos by
`Sendrecv`. DistributedDataParallel trains a convolution of 3 x 3 on the strips of all ranks; then the network takes the
place of the simulation, in the same strips with the same halos.

Prints what each has computed, and its error. Exit code 1 when the simulation differs from one process in a bit, a
weight by more than 1e-4, or the network's plate by more than 1%.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

try:
    from mpi4py import MPI  # before the group is made: altorch finds an MPI that is initialised
except (ImportError, RuntimeError) as error:
    raise SystemExit(
        f"mpi4py cannot be imported: {error}\n"
        "`pip install mpi4py` installs it; MPI4PY_LIBMPI names the libmpi.so that it loads."
    ) from None
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SPREAD, DOWN, RIGHT = 0.15, 0.12, 0.06  # of a step, in places of the grid
Step = Callable[[np.ndarray], np.ndarray]


def stencil() -> np.ndarray:
    """What a place takes of each of the nine places around it in a step."""
    return np.array([
        [0, SPREAD + DOWN / 2, 0],
        [SPREAD + RIGHT / 2, 1 - 4 * SPREAD, SPREAD - RIGHT / 2],
        [0, SPREAD - DOWN / 2, 0],
    ])  # fmt: skip


def simulated(rows: np.ndarray) -> np.ndarray:
    """A step of all rows but the first and the last, which are the neighbours'."""
    wide = np.pad(rows, ((0, 0), (1, 1)), mode="wrap")
    weights, height, width = stencil(), len(rows) - 2, rows.shape[1]
    after = np.zeros((height, width))
    for down, right in zip(*np.nonzero(weights), strict=True):
        after += weights[down, right] * wide[down : down + height, right : right + width]
    return after


def plate_at_start(size: int, seed: int) -> np.ndarray:
    """Some warm spots, for the picture; noise, from which all nine weights can be learnt."""
    if seed:
        return np.random.default_rng(seed).standard_normal((size, size))
    down, right = np.mgrid[:size, :size] / size
    spots = ((0.3, 0.3, 1.0), (0.55, 0.7, 0.8), (0.2, 0.75, 0.6))
    return sum(heat * np.exp(-((down - y) ** 2 + (right - x) ** 2) / 0.006) for y, x, heat in spots)


class Strip:
    """This rank's rows of a plate that is closed into a ring in both directions."""

    def __init__(self, size: int) -> None:
        world = MPI.COMM_WORLD
        self.above, self.below = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        bounds = [size * rank // world.size for rank in range(world.size + 1)]
        self.mine = slice(bounds[world.rank], bounds[world.rank + 1])

    def with_halos(self, rows: np.ndarray) -> np.ndarray:
        """By mpi4py: a row of each neighbour around them."""
        whole = np.empty((len(rows) + 2, rows.shape[1]))
        whole[1:-1] = rows
        MPI.COMM_WORLD.Sendrecv(whole[-2], self.below, recvbuf=whole[0], source=self.above)
        MPI.COMM_WORLD.Sendrecv(whole[1], self.above, recvbuf=whole[-1], source=self.below)
        return whole

    def run(self, plate: np.ndarray, steps: int, step: Step) -> np.ndarray:
        """The whole plate after so many steps, on every rank."""
        rows = plate[self.mine]
        for _ in range(steps):
            rows = step(self.with_halos(rows))
        return np.concatenate(MPI.COMM_WORLD.allgather(rows))


class Network(nn.Module):
    """A convolution; its input has the neighbours' rows."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 1, 3, bias=False, dtype=torch.float64)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.convolution(nn.functional.pad(rows[:, None], (1, 1, 0, 0), mode="circular"))[:, 0]

    @torch.no_grad()
    def step(self, rows: np.ndarray) -> np.ndarray:
        return self(torch.from_numpy(rows)[None])[0].numpy()


def train(strip: Strip, size: int, epochs: int) -> tuple[Network, float]:
    """By altorch: DDP averages the ranks' gradients. The network and its last loss, of all ranks."""
    torch.manual_seed(0)
    network = Network()
    parallel = DistributedDataParallel(network)
    inputs = np.stack([strip.with_halos(plate_at_start(size, seed)[strip.mine]) for seed in range(1, 5)])
    before, after = torch.from_numpy(inputs), torch.from_numpy(np.stack([simulated(rows) for rows in inputs]))
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    loss = torch.zeros(())
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(before), after)
        loss.backward()
        optimizer.step()
        schedule.step()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return network, mean.item()


def draw(plates: dict[str, np.ndarray], path: str) -> None:
    try:
        import matplotlib
    except ImportError:
        print("No picture: matplotlib is not installed; pip install 'altorch[plot]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(plates), figsize=(2.8 * len(plates), 3.2), layout="constrained")
    for axis, (title, plate) in zip(axes, plates.items(), strict=True):
        image = axis.imshow(plate, cmap="viridis")
        axis.set_title(title, fontsize=10)
        axis.set_axis_off()
        figure.colorbar(image, ax=axis, orientation="horizontal", shrink=0.8)
    figure.savefig(path, dpi=90)
    print(f"The plates are in {path}")


def main() -> int | str:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--size", type=int, default=96, help="rows and columns of the plate (default %(default)s)"
    )
    parser.add_argument(
        "--steps", type=int, default=200, help="of the simulation, and of the network (default %(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=400, help="of the training (default %(default)s)")
    parser.add_argument("--plot", metavar="PNG", help="draw the plates")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    if arguments.size < world.size:
        return f"{arguments.size} rows are too few for {world.size} ranks: each needs one."

    dist.init_process_group("al", init_method="mpi://")
    if (dist.get_rank(), dist.get_world_size()) != (world.rank, world.size):
        torch_rank = f"{dist.get_rank()} of {dist.get_world_size()}"
        return f"Rank {torch_rank} is {world.rank} of {world.size} in mpi4py: start this with mpiexec, not torchrun."
    strip, start = Strip(arguments.size), plate_at_start(arguments.size, 0)
    began = time.perf_counter()
    plate = strip.run(start, arguments.steps, simulated)
    simulation_took = time.perf_counter() - began
    began = time.perf_counter()
    network, loss = train(strip, arguments.size, arguments.epochs)
    training_took = time.perf_counter() - began
    began = time.perf_counter()
    predicted = strip.run(start, arguments.steps, network.step)
    network_took = time.perf_counter() - began

    weights = network.convolution.weight.detach().numpy()[0, 0]
    alone = start
    for _ in range(arguments.steps):
        alone = simulated(np.pad(alone, ((1, 1), (0, 0)), mode="wrap"))
    off = np.abs(plate - alone).max()
    weights_off = np.abs(weights - stencil()).max()
    network_off = np.linalg.norm(predicted - plate) / np.linalg.norm(plate)
    good = off == 0 and weights_off <= 1e-4 and network_off <= 0.01
    if world.rank == 0:
        library = MPI.Get_library_version().split(",")[0].splitlines()[0].replace(" Version:", "")
        print(f"{world.size} ranks over {' '.join(library.split())}, which mpi4py initialised")
        print("by                what                  seconds  error")
        print(f"mpi4py            simulation, {arguments.steps:4} steps{simulation_took:8.2f}  {off:.1e}")
        print(
            f"altorch           training, {arguments.epochs:4} epochs {training_took:8.2f}  {weights_off:.1e}"
        )
        print(f"mpi4py, altorch   network, {arguments.steps:7} steps{network_took:8.2f}  {network_off:.1e}")
        print(f"loss {loss:.1e}; weights of the simulation, and of the network:")
        for wanted, found in zip(stencil(), weights, strict=True):
            print("".join(f"{round(each, 4) + 0.0:8.4f}" for each in (*wanted, *found)))  # no -0.0000
        if arguments.plot:
            after = f"after {arguments.steps} steps"
            plates = {"start": start, f"simulation, {after}": plate, f"network, {after}": predicted}
            draw(plates, arguments.plot)
    dist.destroy_process_group()
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
