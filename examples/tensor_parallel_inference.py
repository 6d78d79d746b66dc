# SPDX-License-Identifier: BSD-3-Clause
"""Generates tokens with a decoder transformer whose matrices are split over the ranks, on CPU.

    torchrun --standalone --nproc-per-node 2 examples/tensor_parallel_inference.py --backend both

The first matrix of each pair is split by outputs, the second by inputs: a layer needs an all_reduce after attention and
one after the network. Weights are random, decoding is greedy. With `both`, al and gloo carry the same tokens in turns.
Ends with exit code 1 when the tokens of any rank are not those of the whole model on one process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import track
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

TOLERANCE = 1e-3  # of logits around 1: partial sums are added in another order than on one process


class Shape(NamedTuple):
    vocabulary: int
    width: int
    layers: int
    heads: int
    positions: int  # of a prompt and of what follows it


class Shard:
    """A rank's part of the model and of its cache; without a group all of it. Every rank draws all weights alike."""

    def __init__(self, shape: Shape, batch: int, group: dist.ProcessGroup | None = None) -> None:
        self.group, self.normal, width = group, [shape.width], shape.width
        ranks, rank = (dist.get_world_size(group), dist.get_rank(group)) if group else (1, 0)
        random = torch.Generator().manual_seed(0)

        def draw(*size: int) -> torch.Tensor:
            return torch.randn(size, generator=random) / size[-1] ** 0.5

        def mine(weight: torch.Tensor, dim: int) -> torch.Tensor:
            return weight.chunk(ranks, dim)[rank].contiguous()

        self.tokens = torch.randn(shape.vocabulary, width, generator=random)
        self.positions, self.head = draw(shape.positions, width), draw(shape.vocabulary, width)
        self.layers = [
            (
                mine(draw(3, width, width), dim=1).flatten(0, 1),  # queries, keys and values of whole heads
                mine(draw(width, width), dim=1),
                mine(draw(4 * width, width), dim=0),
                mine(draw(width, 4 * width), dim=1),
            )
            for _ in range(shape.layers)
        ]
        self.heads = shape.heads // ranks
        self.cache = torch.zeros(shape.layers, 2, batch, self.heads, shape.positions, width // shape.heads)

    def summed(self, part: torch.Tensor) -> torch.Tensor:
        if self.group:
            dist.all_reduce(part, group=self.group)
        return part

    def attend(self, layer: int, mixed: torch.Tensor, begin: int) -> torch.Tensor:
        """What this rank's heads attend to, from a whole prompt or from the one token after those in the cache."""
        query, *new = mixed.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        end = begin + mixed.shape[1]
        self.cache[layer, :, :, :, begin:end] = torch.stack(new)
        keys, values = self.cache[layer, :, :, :, :end]
        attended = scaled_dot_product_attention(query, keys, values, is_causal=begin == 0)
        return attended.transpose(1, 2).flatten(2)

    def logits(self, tokens: torch.Tensor, begin: int) -> torch.Tensor:
        """Of the token after these, the first of which stands at `begin`."""
        x = self.tokens[tokens] + self.positions[begin : begin + tokens.shape[1]]
        for layer, (mix, attended, up, down) in enumerate(self.layers):
            heads = self.attend(layer, linear(layer_norm(x, self.normal), mix), begin)
            x = x + self.summed(linear(heads, attended))
            x = x + self.summed(linear(gelu(linear(layer_norm(x, self.normal), up)), down))
        return linear(layer_norm(x[:, -1], self.normal), self.head)


def generate(model: Shard, prompt: torch.Tensor, count: int) -> tuple[torch.Tensor, float]:
    """Logits of `count` new tokens, and the seconds that all but the first took: that one is the prompt's."""
    with torch.inference_mode():
        logits = [model.logits(prompt, begin=0)]
        began = time.perf_counter()
        for at in range(prompt.shape[1], prompt.shape[1] + count - 1):
            logits.append(model.logits(logits[-1].argmax(-1, keepdim=True), at))
        return torch.stack(logits, dim=1), time.perf_counter() - began


def agreed(mine: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether all ranks found the tokens, and nearly the logits, of the whole model."""
    right = torch.equal(mine.argmax(-1), whole.argmax(-1)) and torch.allclose(mine, whole, atol=TOLERANCE)
    dist.all_reduce(agree := torch.tensor(int(right)), dist.ReduceOp.MIN)
    return bool(agree)


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("al", "gloo", "both"), default="both", help="default both")
    model = {"width": 512, "layers": 8, "heads": 8, "vocabulary": 2048}
    for name, default in (model | {"batch": 1, "prompt": 16, "new": 48, "turns": 4}).items():
        parser.add_argument(f"--{name}", type=int, default=default, help="default %(default)s")
    return parser.parse_args()


def main() -> int:
    arguments = arguments_of()
    batch, new, width, heads = arguments.batch, arguments.new, arguments.width, arguments.heads
    names = ["al", "gloo"] if arguments.backend == "both" else [arguments.backend]
    torch.set_num_threads(1)
    dist.init_process_group(names[0])
    ranks = dist.get_world_size()
    if heads % ranks or width % heads:
        sys.exit(f"{width} columns and {heads} heads do not go evenly over {ranks} ranks.")
    console = Console(highlight=False, quiet=dist.get_rank() > 0)
    shape = Shape(arguments.vocabulary, width, arguments.layers, heads, arguments.prompt + new)
    prompt = torch.arange(batch * arguments.prompt).view(batch, -1) % shape.vocabulary
    count = (12 * shape.layers * width + 2 * shape.vocabulary + shape.positions) * width
    console.print(f"{ranks} ranks, {count / 1e6:.1f} million parameters, {batch} x {new} new tokens a turn")

    whole, _ = generate(Shard(shape, batch), prompt, new)
    shards = {name: Shard(shape, batch, dist.new_group(backend=name)) for name in names}
    turns = [name for turn in range(arguments.turns) for name in (names[::-1] if turn % 2 else names)]
    took: dict[str, list[float]] = {name: [] for name in names}
    right = dict.fromkeys(names, True)
    for name in track(turns, "generating", console=console, transient=True):
        logits, seconds = generate(shards[name], prompt, new)
        took[name].append(seconds)
        right[name] &= agreed(logits, whole)

    console.print(f"one process: {', '.join(map(str, whole[0, :12].argmax(-1).tolist()))}, ...")
    speeds = {name: batch * (new - 1) / statistics.median(seconds) for name, seconds in took.items()}
    for name, speed in speeds.items():
        console.print(f"{name:>5}: {speed:6.1f} tokens/s, {'the same' if right[name] else 'OTHER'} tokens")
    if len(speeds) == 2:
        console.print(f"al / gloo: {speeds['al'] / speeds['gloo']:.2f}x")
    dist.destroy_process_group()
    return 0 if all(right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
