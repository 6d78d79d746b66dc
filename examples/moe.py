# SPDX-License-Identifier: BSD-3-Clause
"""Trains a mixture of experts whose experts are spread over the ranks, by all_to_all and by altorch.TokenSwitch.

    torchrun --standalone --nproc-per-node 2 examples/moe.py
    torchrun --standalone --nproc-per-node 2 examples/moe.py --device cuda

Each kind of token has a function of its own to learn, which one expert of two layers can. A gate chooses two experts
for each token. Each rank trains its own experts, on tokens of all ranks; the encoder and the gate are the same on all
ranks, which average their gradients. Both runs start with the same weights and train on the same tokens. The script
prints their losses. Its exit code is 1 if these differ by more than rounding can explain, or have not halved.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import altorch

CHOSEN = 2  # experts of a token
LOCAL = 2  # experts of a rank
TOKENS, WIDTH, HIDDEN = 128, 16, 32  # of a rank and step; of a token; of an expert
# The two runs may add up the same numbers in other orders. Noise of one rounding (2^-23) in each
# result of the layer changes the losses of 150 steps by 2e-7, a token that once goes to a wrong
# expert by 3e-4.
TOLERANCE = 1e-5


class Exchange(torch.autograd.Function):
    """all_to_all_single, whose gradients go the way back. `sent`, `came`: rows for and of each rank."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], came: list[int]) -> Tensor:
        ctx.sent, ctx.came = sent, came
        got = rows.new_empty(sum(came), rows.shape[1])
        dist.all_to_all_single(got, rows.contiguous(), came, sent)
        return got

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return Exchange.apply(grad, ctx.came, ctx.sent), None, None


class Experts(nn.Module):
    """The experts of this rank. Rows of one expert follow one another."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        torch.manual_seed(1 + rank)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, WIDTH)) for _ in range(LOCAL)
        )

    def forward(self, rows: Tensor, counts: list[int]) -> Tensor:
        parts = rows.split(counts)
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])


class ByAllToAll:
    """The ranks tell each other how many tokens come, exchange them, and exchange the results."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def __call__(self, experts: Experts, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        ids, order = chosen.view(-1).sort(stable=True)
        mine = ids.bincount(minlength=LOCAL * self.ranks)
        theirs = torch.empty_like(mine)
        dist.all_to_all_single(theirs, mine)
        sent, came = (
            mine.view(self.ranks, LOCAL).sum(1).tolist(),
            theirs.view(self.ranks, LOCAL).sum(1).tolist(),
        )
        rows = Exchange.apply(tokens[order // CHOSEN], sent, came)
        local = torch.arange(LOCAL, device=tokens.device).repeat(self.ranks).repeat_interleave(theirs)
        by_expert = local.argsort(stable=True)  # they have come by rank
        made = experts(rows[by_expert], theirs.view(self.ranks, LOCAL).sum(0).tolist())
        back = Exchange.apply(made[by_expert.argsort()], came, sent)
        return (back[order.argsort()].view(-1, CHOSEN, WIDTH) * weights[:, :, None]).sum(1)


class ByTokenSwitch:
    def __init__(self, ranks: int) -> None:
        self.switch = altorch.TokenSwitch(num_experts=LOCAL * ranks, max_dispatch_tokens_per_rank=TOKENS)

    def __call__(self, experts: Experts, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        counts = torch.empty(LOCAL, dtype=torch.int32, device=tokens.device)
        routing = self.switch.create_routing(chosen, counts, layout="expert_major")
        rows, row_weights, _ = self.switch.dispatch(routing, tokens, weights)
        return self.switch.combine(routing, experts(rows, counts.tolist()) * row_weights[:, None])


class Model(nn.Module):
    def __init__(self, exchange: Callable[..., Tensor], rank: int, ranks: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.gate = nn.Linear(WIDTH, LOCAL * ranks)
        self.experts, self.exchange = Experts(rank), exchange

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.encoder(inputs)
        weights, chosen = self.gate(tokens).softmax(1).topk(CHOSEN)
        return self.exchange(self.experts, tokens, weights, chosen)

    def average_gradients(self, ranks: int) -> None:
        """An expert's gradient is the sum over all ranks already: its tokens were those of all ranks."""
        shared = [*self.encoder.parameters(), *self.gate.parameters()]
        flat = torch.cat([each.grad.view(-1) for each in shared])
        dist.all_reduce(flat, dist.ReduceOp.AVG)
        for each, grad in zip(shared, flat.split([each.numel() for each in shared]), strict=True):
            each.grad.copy_(grad.view_as(each))
        for each in self.experts.parameters():
            each.grad /= ranks


class Data:
    """Tokens of as many kinds as there are experts. The kind is where a token lies, and which function it has."""

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        shared = torch.Generator().manual_seed(0)
        kinds = LOCAL * ranks
        self.centres = 2 * torch.randn(kinds, WIDTH, generator=shared)
        self.functions = torch.randn(kinds, WIDTH, WIDTH, generator=shared) / WIDTH**0.5
        self.random, self.device = torch.Generator().manual_seed(1 + rank), device

    def batch(self) -> tuple[Tensor, Tensor]:
        kind = torch.randint(len(self.centres), (TOKENS,), generator=self.random)
        inputs = self.centres[kind] + torch.randn(TOKENS, WIDTH, generator=self.random)
        targets = torch.tanh(inputs[:, None] @ self.functions[kind])[:, 0]
        return inputs.to(self.device), targets.to(self.device)


def train(exchange: type, steps: int, device: torch.device) -> tuple[list[float], float]:
    """The losses of all ranks after each step, and the seconds of a step."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = Model(exchange(ranks), rank, ranks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    data, losses = Data(rank, ranks, device), torch.zeros(steps, device=device)
    began = time.perf_counter()
    for step in range(steps):
        inputs, targets = data.batch()
        loss = mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        model.average_gradients(ranks)
        optimizer.step()
        losses[step] = loss.detach()
    dist.all_reduce(losses, dist.ReduceOp.AVG)
    return losses.tolist(), (time.perf_counter() - began) / steps


def device_of(name: str) -> torch.device:
    """This rank's. On GPUs one each, or one that several ranks share."""
    if name == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100, help="default %(default)s")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the losses of all steps")
    arguments = parser.parse_args()

    dist.init_process_group("al")
    torch.set_num_threads(1)
    device = device_of(arguments.device)
    (there, there_s), (ours, ours_s) = (
        train(exchange, arguments.steps, device) for exchange in (ByAllToAll, ByTokenSwitch)
    )
    apart = max(abs(a - b) / a for a, b in zip(there, ours, strict=True))
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, {LOCAL} experts each\n step  all_to_all  token switch")
        for step in range(0, arguments.steps, max(1, arguments.steps // 10)):
            print(f"{step + 1:5}  {there[step]:10.6f}  {ours[step]:12.6f}")
        print(f"{'ms':>5}  {1e3 * there_s:10.2f}  {1e3 * ours_s:12.2f}  a step")
        print(f"largest relative difference of a loss: {apart:.1e} (at most {TOLERANCE:.0e})")
        if arguments.json:
            arguments.json.write_text(json.dumps({"all_to_all": there, "token_switch": ours}) + "\n")
    dist.destroy_process_group()
    return int(not (apart <= TOLERANCE and ours[-1] < ours[0] / 2))


if __name__ == "__main__":
    sys.exit(main())
