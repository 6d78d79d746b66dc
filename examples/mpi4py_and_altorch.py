# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py and altorch in one program: mpi4py simulates heat, altorch trains a network on the simulation.

    mpiexec -n 2 python examples/mpi4py_and_altorch.py --plot flow.png

mpi4py initialises MPI when it is imported, and altorch uses that MPI as it is: between nodes, and on one node, too,
where ALTORCH_SHM_BYTES is 0. Each rank has a strip of a plate on which heat diffuses and drifts, and exchanges halos by
`Sendrecv`. DistributedDataParallel trains a 3 x 3 convolution on the strips of all ranks. Then the network replaces the
simulation, on the same strips and with the same halos.

Prints the time and the error of each part. Exit code 1 when the simulation differs in a bit from that of one process, a
weight by more than 1e-4, or the network's plate by more than 1%.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

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

DIFFUSION, DRIFT_DOWN, DRIFT_RIGHT = 0.15, 0.12, 0.06  # per step, in grid cells
WEIGHT_TOLERANCE, PLATE_TOLERANCE = 1e-4, 0.01
STENCIL = np.array([
    [0, DIFFUSION + DRIFT_DOWN / 2, 0],
    [DIFFUSION + DRIFT_RIGHT / 2, 1 - 4 * DIFFUSION, DIFFUSION - DRIFT_RIGHT / 2],
    [0, DIFFUSION - DRIFT_DOWN / 2, 0],
])  # fmt: skip
Step = Callable[[np.ndarray], np.ndarray]  # rows with halos -> the inner rows, one step later


class Result(NamedTuple):
    """What the simulation, the training and the network computed, and the seconds that each took."""

    initial: np.ndarray
    simulated: np.ndarray
    simulation_seconds: float
    network: Network
    loss: float
    training_seconds: float
    predicted: np.ndarray
    network_seconds: float


class Errors(NamedTuple):
    simulation: float
    weights: float
    network: float

    def acceptable(self) -> bool:
        return self.simulation == 0 and self.weights <= WEIGHT_TOLERANCE and self.network <= PLATE_TOLERANCE


def simulation_step(rows: np.ndarray) -> np.ndarray:
    """The inner rows after one step. The first and the last row are the halos."""
    padded = np.pad(rows, ((0, 0), (1, 1)), mode="wrap")
    height, width = len(rows) - 2, rows.shape[1]
    result = np.zeros((height, width))
    for row, column in zip(*np.nonzero(STENCIL), strict=True):
        result += STENCIL[row, column] * padded[row : row + height, column : column + width]
    return result


def simulate_in_one_process(plate: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        plate = simulation_step(np.pad(plate, ((1, 1), (0, 0)), mode="wrap"))
    return plate


def warm_spots(size: int) -> np.ndarray:
    """The plate that is simulated and drawn."""
    down, right = np.mgrid[:size, :size] / size
    spots = ((0.3, 0.3, 1.0), (0.55, 0.7, 0.8), (0.2, 0.75, 0.6))
    return sum(heat * np.exp(-((down - y) ** 2 + (right - x) ** 2) / 0.006) for y, x, heat in spots)


def noise(size: int, seed: int) -> np.ndarray:
    """A plate to train on: unlike smooth spots, noise determines all nine weights."""
    return np.random.default_rng(seed).standard_normal((size, size))


class Strip:
    """This rank's rows of a plate that is periodic in both directions."""

    def __init__(self, size: int) -> None:
        world = MPI.COMM_WORLD
        self.above, self.below = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        bounds = [size * rank // world.size for rank in range(world.size + 1)]
        self.own_rows = slice(bounds[world.rank], bounds[world.rank + 1])

    def exchange_halos(self, rows: np.ndarray) -> np.ndarray:
        """By mpi4py: the rows of this rank, with a row of each neighbour around them."""
        with_halos = np.empty((len(rows) + 2, rows.shape[1]))
        with_halos[1:-1] = rows
        MPI.COMM_WORLD.Sendrecv(with_halos[-2], self.below, recvbuf=with_halos[0], source=self.above)
        MPI.COMM_WORLD.Sendrecv(with_halos[1], self.above, recvbuf=with_halos[-1], source=self.below)
        return with_halos

    def run(self, plate: np.ndarray, steps: int, step: Step) -> np.ndarray:
        """The whole plate after `steps` steps, on every rank."""
        rows = plate[self.own_rows]
        for _ in range(steps):
            rows = step(self.exchange_halos(rows))
        return np.concatenate(MPI.COMM_WORLD.allgather(rows))


class Network(nn.Module):
    """One convolution. Its input includes the halos."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 1, 3, bias=False, dtype=torch.float64)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.convolution(nn.functional.pad(rows[:, None], (1, 1, 0, 0), mode="circular"))[:, 0]

    @torch.no_grad()
    def step(self, rows: np.ndarray) -> np.ndarray:
        return self(torch.from_numpy(rows)[None])[0].numpy()

    def weights(self) -> np.ndarray:
        return self.convolution.weight.detach().numpy()[0, 0]


def training_data(strip: Strip, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's strips of four plates, before and after a step."""
    inputs = [strip.exchange_halos(noise(size, seed)[strip.own_rows]) for seed in range(1, 5)]
    targets = [simulation_step(rows) for rows in inputs]
    return torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(targets))


def train(strip: Strip, size: int, epochs: int) -> tuple[Network, float]:
    """The network and its last loss, averaged over the ranks. DDP averages the gradients by altorch."""
    torch.manual_seed(0)
    network = Network()
    parallel = DistributedDataParallel(network)
    inputs, targets = training_data(strip, size)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    loss = torch.zeros(())
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return network, mean.item()


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result, and the seconds that it took."""
    began = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - began


def simulate_and_train(size: int, steps: int, epochs: int) -> Result:
    strip, initial = Strip(size), warm_spots(size)
    simulated, simulation_seconds = timed(strip.run, initial, steps, simulation_step)
    (network, loss), training_seconds = timed(train, strip, size, epochs)
    predicted, network_seconds = timed(strip.run, initial, steps, network.step)
    return Result(
        initial, simulated, simulation_seconds, network, loss, training_seconds, predicted, network_seconds
    )


def errors_of(result: Result, steps: int) -> Errors:
    difference = result.predicted - result.simulated
    return Errors(
        simulation=np.abs(result.simulated - simulate_in_one_process(result.initial, steps)).max(),
        weights=np.abs(result.network.weights() - STENCIL).max(),
        network=np.linalg.norm(difference) / np.linalg.norm(result.simulated),
    )


def mpi_library() -> str:
    """Name and version, such as "MPICH 5.0.2"."""
    first_line = MPI.Get_library_version().split(",")[0].splitlines()[0]
    return " ".join(first_line.replace(" Version:", "").split())


def print_report(result: Result, errors: Errors, steps: int, epochs: int) -> None:
    simulation, training, network = result.simulation_seconds, result.training_seconds, result.network_seconds
    print(f"{MPI.COMM_WORLD.size} ranks over {mpi_library()}, which mpi4py initialised")
    print("by                what                  seconds  error")
    print(f"mpi4py            simulation, {steps:4} steps{simulation:8.2f}  {errors.simulation:.1e}")
    print(f"altorch           training, {epochs:4} epochs {training:8.2f}  {errors.weights:.1e}")
    print(f"mpi4py, altorch   network, {steps:7} steps{network:8.2f}  {errors.network:.1e}")
    print(f"loss {result.loss:.1e}; weights of the simulation, and of the network:")
    for expected, learnt in zip(STENCIL, result.network.weights(), strict=True):
        print("".join(f"{round(weight, 4) + 0.0:8.4f}" for weight in (*expected, *learnt)))  # no -0.0000


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


def parse_arguments() -> argparse.Namespace:
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
    return parser.parse_args()


def main() -> int | str:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    if arguments.size < world.size:
        return f"{arguments.size} rows are too few for {world.size} ranks: each needs one."
    dist.init_process_group("al", init_method="mpi://")
    if (dist.get_rank(), dist.get_world_size()) != (world.rank, world.size):
        torch_rank = f"{dist.get_rank()} of {dist.get_world_size()}"
        return f"Rank {torch_rank} is {world.rank} of {world.size} in mpi4py: start this with mpiexec, not torchrun."
    result = simulate_and_train(arguments.size, arguments.steps, arguments.epochs)
    errors = errors_of(result, arguments.steps)
    if world.rank == 0:
        print_report(result, errors, arguments.steps, arguments.epochs)
        if arguments.plot:
            after = f"after {arguments.steps} steps"
            simulation, network = f"simulation, {after}", f"network, {after}"
            plates = {"start": result.initial, simulation: result.simulated, network: result.predicted}
            draw(plates, arguments.plot)
    dist.destroy_process_group()
    return 0 if errors.acceptable() else 1


if __name__ == "__main__":
    sys.exit(main())
