# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous updates by one-sided access: no rank waits for another.

    torchrun --standalone --nproc-per-node 3 examples/parameter_server.py
    torchrun --standalone --nproc-per-node 2 examples/parameter_server.py --device cuda

Rank 0 keeps the parameters of a linear model in a window, and does nothing. The others read them (`get`), compute a
gradient on data of their own, and add their step to them (`accumulate`), each at its own pace; the number of updates
is drawn from a counter in a second window (`fetch_add`), so that fast ranks make more of them. Prints who made how
many and the error at the end; exit code 1 when that is above 1e-2.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist

import altorch

RATE = 0.05


def device_of(name: str) -> torch.device:
    """This rank's. On GPUs one each, or one that several ranks share."""
    if name == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def batch(truth: torch.Tensor, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(64, len(truth), generator=random, device=truth.device)
    return inputs, inputs @ truth + 0.01 * torch.randn(64, generator=random, device=truth.device)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=32, help="of the model (default %(default)s)")
    parser.add_argument(
        "--updates", type=int, default=600, help="of all ranks together (default %(default)s)"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default %(default)s")
    arguments = parser.parse_args()

    dist.init_process_group("al")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = device_of(arguments.device)
    truth = torch.randn(arguments.width, generator=torch.Generator().manual_seed(0)).to(device)
    kept = altorch.empty(arguments.width if rank == 0 else 0, device=device)
    parameters = altorch.new_window(kept)
    counter = altorch.new_window(altorch.empty(1 if rank == 0 else 0, dtype=torch.int64, device=device))

    made = torch.zeros(ranks, dtype=torch.int64)
    if rank > 0 or ranks == 1:
        random = torch.Generator(device).manual_seed(rank + 1)
        model = torch.empty(arguments.width, device=device)
        while counter.fetch_add(0, 0, 1) < arguments.updates:
            parameters.get(model, 0)
            inputs, wanted = batch(truth, random)
            gradient = inputs.T @ (inputs @ model - wanted) / len(wanted)
            parameters.accumulate(-RATE * gradient, 0)
            made[rank] += 1
            time.sleep(0.0005 * max(0, rank - 1))  # ranks of different speed
    parameters.fence()
    dist.all_reduce(made)
    error = ((kept - truth).norm() / truth.norm()).cpu() if rank == 0 else torch.zeros(())
    dist.broadcast(error, 0)
    if rank == 0:
        print(f"updates by rank: {made.tolist()}, together {int(made.sum())}")
        print(f"error of the parameters: {error.item():.1e}")
    for window in (parameters, counter):
        window.tensor_deregister()
    dist.destroy_process_group()
    return int(error.item() > 1e-2 or int(made.sum()) != arguments.updates)


if __name__ == "__main__":
    sys.exit(main())
