# SPDX-License-Identifier: BSD-3-Clause
"""The time of tokens to experts and back: each rank has an expert, and each token goes to two of them.

    torchrun --standalone --nproc-per-node 2 examples/expert_dispatch.py
    torchrun --standalone --nproc-per-node 2 examples/expert_dispatch.py --device cuda

By all_to_all: the ranks tell each other how many tokens come, exchange them, and exchange the results. By windows:
no rank tells its peers how many tokens come. A rank draws room in the expert's inbox from a counter there
(`fetch_add`), puts its tokens and where their results belong, and signals; the expert puts the results there. By
altorch.TokenSwitch: an all_gather of the tokens, a reduce_scatter of the results. Prints the time of a layer of each
for several numbers of tokens; exit code 1 when their results differ in a bit. A sum of two results and of zeros has
the same bits in any order.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

import altorch

CHOSEN = 2  # experts of a token


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


def expert(tokens: torch.Tensor, rank: int) -> torch.Tensor:
    return torch.tanh(tokens * (rank + 1))


class ByAllToAll:
    def __init__(self, _most: int, width: int, _device: torch.device) -> None:
        self.rank, self.ranks, self.width = dist.get_rank(), dist.get_world_size(), width

    def layer(self, tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """chosen[i]: the experts of token i. The sum of what they make of it."""
        experts, order = chosen.view(-1).sort(stable=True)
        mine = experts.bincount(minlength=self.ranks)
        theirs = torch.empty_like(mine)
        dist.all_to_all_single(theirs, mine)
        sent, came = mine.tolist(), theirs.tolist()
        inbox = tokens.new_empty(sum(came), self.width)
        dist.all_to_all_single(inbox, tokens[order // CHOSEN], came, sent)
        back = tokens.new_empty(len(order), self.width)
        dist.all_to_all_single(back, expert(inbox, self.rank), sent, came)
        results = torch.empty_like(back)
        results[order] = back
        return results.view(-1, CHOSEN, self.width).sum(1)


class ByWindows:
    """inbox: tokens for this rank's expert; whose: their ranks and places; back: results for this rank's tokens."""

    def __init__(self, most: int, width: int, device: torch.device) -> None:
        self.rank, self.ranks, self.width = dist.get_rank(), dist.get_world_size(), width
        rows = CHOSEN * most
        self.inbox = altorch.empty(rows * self.ranks, width, device=device)
        self.whose = altorch.empty(rows * self.ranks, 2, dtype=torch.int64, device=device)
        self.back = altorch.empty(rows, width, device=device)
        self.taken = altorch.empty(1, dtype=torch.int64, device=device)
        self.windows = [altorch.new_window(each) for each in (self.inbox, self.whose, self.back, self.taken)]

    def layer(self, tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        inbox, whose, back, taken = self.windows
        experts, order = chosen.view(-1).sort(stable=True)
        begin = 0
        for peer, count in enumerate(experts.bincount(minlength=self.ranks).tolist()):
            places = order[begin : begin + count]
            begin += count
            if count:
                row = taken.fetch_add(peer, 0, count)
                inbox.put(tokens[places // CHOSEN], peer, row * self.width)
                whose.put(torch.stack([torch.full_like(places, self.rank), places], 1), peer, 2 * row)
            inbox.signal(peer)
        for peer in range(self.ranks):
            inbox.wait_signal(peer)
        count = int(self.taken)
        results = expert(self.inbox[:count], self.rank)
        for result, (peer, place) in zip(results, self.whose[:count].tolist(), strict=True):
            back.put(result, peer, place * self.width)
        self.taken.zero_()  # no rank draws again before all experts have signalled
        for peer in range(self.ranks):
            back.signal(peer)
        for peer in range(self.ranks):
            back.wait_signal(peer)
        return self.back[: len(order)].view(-1, CHOSEN, self.width).sum(1)

    def close(self) -> None:
        for window in self.windows:
            window.tensor_deregister()


class ByTokenSwitch:
    def __init__(self, most: int, _width: int, _device: torch.device) -> None:
        self.rank = dist.get_rank()
        self.switch = altorch.TokenSwitch(
            num_experts=dist.get_world_size(), max_dispatch_tokens_per_rank=most
        )

    def layer(self, tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        routing = self.switch.create_routing(chosen)
        equal = torch.ones(chosen.shape, device=chosen.device)
        rows, _, _ = self.switch.dispatch(routing, tokens, equal)
        return self.switch.combine(routing, expert(rows, self.rank))


def seconds(layer: Callable[[], torch.Tensor], times: int, device: torch.device) -> float:
    """For a layer, of the slowest rank."""
    until_idle(device)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(times):
        layer()
    until_idle(device)
    took = torch.tensor((time.perf_counter() - began) / times)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=7168, help="of a token (default %(default)s)")
    parser.add_argument("--tokens", default="4,16,64", help="of each rank (default %(default)s)")
    parser.add_argument("--times", type=int, default=30, help="default %(default)s")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default %(default)s")
    arguments = parser.parse_args()

    dist.init_process_group("al")
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = device_of(arguments.device)
    random = torch.Generator().manual_seed(rank)
    counts = [int(text) for text in arguments.tokens.split(",")]
    by_windows = ByWindows(max(counts), arguments.width, device)
    by_all_to_all = ByAllToAll(max(counts), arguments.width, device)
    by_switch = ByTokenSwitch(max(counts), arguments.width, device)
    different = torch.zeros(1, dtype=torch.int64)
    for count in counts:
        tokens = torch.randn(count, arguments.width, generator=random)
        chosen = torch.stack(
            [torch.randperm(max(ranks, CHOSEN), generator=random)[:CHOSEN] for _ in range(count)]
        )
        chosen %= ranks
        tokens, chosen = tokens.to(device), chosen.to(device)
        ways = [partial(way.layer, tokens, chosen) for way in (by_all_to_all, by_windows, by_switch)]
        first, *others = (way() for way in ways)
        different += not all(torch.equal(first, other) for other in others)
        took = [1e6 * min(seconds(way, arguments.times, device) for _ in range(3)) for way in ways]
        if rank == 0:
            there, windows, switch = took
            print(
                f"{count:5} tokens: all_to_all {there:8.1f} us, windows {windows:8.1f} us: {there / windows:.2f}, "
                f"token switch {switch:8.1f} us: {there / switch:.2f}"
            )
    dist.all_reduce(different)
    if rank == 0:
        print("the same results" if not different else f"{int(different)} results differ")
    by_windows.close()
    dist.destroy_process_group()
    return int(different.item() > 0)


if __name__ == "__main__":
    sys.exit(main())
