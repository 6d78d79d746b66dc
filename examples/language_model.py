# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small transformer on characters with FSDP2, and resumes from a checkpoint with another number of ranks.

    torchrun --standalone --nproc-per-node 2 examples/language_model.py --folder lm
    torchrun --standalone --nproc-per-node 3 examples/language_model.py --folder lm --resume 200 --plot loss.png

The text is Python's language reference, which the standard library contains. `fully_shard` shards the parameters, and
torch.distributed.checkpoint saves the shards. A step has the same batch on any number of ranks, so the losses of a run
that resumes continue those of the uninterrupted run. The program prints the largest relative difference. Exit code 1
when that is above 1e-3, or above 0 with the same number of ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TOLERANCE = 1e-3  # relative: with another number of ranks float32 sums have another order
TEXT = "\n".join(topics[name] for name in sorted(topics))[:400_000]
VOCABULARY = sorted(set(TEXT))
TOKENS = torch.tensor([VOCABULARY.index(character) for character in TEXT])


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm_attention(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.output(attended.transpose(1, 2).flatten(2))
        return hidden + self.mlp(self.norm_mlp(hidden))


class LanguageModel(nn.Module):
    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(len(VOCABULARY), width), nn.Embedding(context, width)
        for table in (self.characters, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(VOCABULARY)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1])
        return self.head(self.blocks(self.characters(tokens) + self.positions(positions)))


class Training:
    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.arguments, self.step = arguments, 0
        self.losses: dict[int, float] = {}
        self.model = LanguageModel(arguments.width, arguments.layers, arguments.context)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-3)

    def local_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """This rank's share of the batch of this step: its inputs, and the characters that follow them."""
        context, random = self.arguments.context, torch.Generator().manual_seed(self.step)
        starts = torch.randint(len(TOKENS) - context, (self.arguments.batch, 1), generator=random)
        local_starts = starts[dist.get_rank() :: dist.get_world_size()]
        sequences = TOKENS[local_starts + torch.arange(context + 1)]
        return sequences[:, :-1], sequences[:, 1:]

    def train_step(self) -> None:
        """Records the loss before the step, averaged over the whole batch."""
        self.step += 1
        inputs, targets = self.local_batch()
        loss = nn.functional.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        self.losses[self.step] = mean.item()

    def save(self) -> None:
        """Every rank writes its shards of the parameters and of the optimizer's state."""
        checkpoint = self.arguments.folder / f"step-{self.step:06}"
        if not (checkpoint / ".metadata").exists():  # a run that resumes repeats steps that were saved
            model, optimizer = get_state_dict(self.model, self.optimizer)
            dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=checkpoint)

    def load(self, checkpoint: Path) -> None:
        """Loads the shards of this number of ranks. Another number of ranks may have saved the checkpoint."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer}
        dcp.load(state, checkpoint_id=checkpoint)
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        self.step = int(checkpoint.name.removeprefix("step-"))

    @torch.no_grad()
    def generate(self, prompt: str, length: int) -> str:
        """Continues the prompt. All ranks call it, because the parameters are sharded, and get the same text."""
        random = torch.Generator().manual_seed(0)
        tokens = [VOCABULARY.index(character) for character in prompt]
        for _ in range(length):
            logits = self.model(torch.tensor([tokens[-self.arguments.context :]]))[0, -1]
            tokens.append(int(torch.multinomial((logits / 0.5).softmax(0), 1, generator=random)))
        return "".join(VOCABULARY[token] for token in tokens)

    def run(self) -> None:
        """Trains up to the last step, and prints and saves on the way."""
        arguments = self.arguments
        print_every = max(1, arguments.steps // 10)
        printed_step, began = self.step, time.perf_counter()
        while self.step < arguments.steps:
            self.train_step()
            if self.step % print_every == 0 and dist.get_rank() == 0:
                tokens = (self.step - printed_step) * arguments.batch * arguments.context
                rate = tokens / (time.perf_counter() - began)
                print(f"{self.step:5} {self.losses[self.step]:7.4f} {rate:10,.0f}", flush=True)
            if arguments.folder and self.step % arguments.save_every == 0:
                self.save()
            if self.step % print_every == 0:  # the rate leaves out what save() takes
                printed_step, began = self.step, time.perf_counter()


def find_checkpoint(arguments: argparse.Namespace) -> Path:
    """The checkpoint of step --resume, or the newest one.

    A folder without metadata is incomplete: its job ended while it saved.
    """
    complete = sorted(path.parent for path in arguments.folder.glob("step-*/.metadata"))
    if arguments.resume >= 0:
        complete = [path for path in complete if path.name == f"step-{arguments.resume:06}"]
    if not complete:
        which = f" of step {arguments.resume}" if arguments.resume >= 0 else ""
        raise SystemExit(f"{arguments.folder} has no complete checkpoint{which}.")
    return complete[-1]


class Run(NamedTuple):
    """A run, and its loss at each step."""

    ranks: int
    losses: dict[int, float]


def save_losses(run: Run, path: Path) -> None:
    path.write_text(json.dumps({"ranks": run.ranks, "losses": list(run.losses.values())}))


def load_losses(path: Path) -> Run:
    saved = json.loads(path.read_text())
    return Run(saved["ranks"], dict(enumerate(saved["losses"], 1)))


def compare(uninterrupted: Run, resumed: Run) -> int:
    """Prints the largest relative difference of the losses. Returns the exit code."""
    common = uninterrupted.losses.keys() & resumed.losses.keys()
    differences = (
        abs(uninterrupted.losses[step] - resumed.losses[step]) / uninterrupted.losses[step] for step in common
    )
    largest = max(differences, default=0.0)
    ranks = uninterrupted.ranks
    print(f"{len(common)} steps also in the run of {ranks} ranks: largest difference {largest:.1e}")
    return int(largest > (0 if ranks == resumed.ranks else TOLERANCE))


def print_sparkline(losses: list[float]) -> None:
    losses = losses[:: max(1, len(losses) // 60)]
    low, high = min(losses), max(losses)
    print("loss", "".join("▁▂▃▄▅▆▇█"[int(7 * (loss - low) / (high - low or 1))] for loss in losses))


def draw_run(axes: Any, run: Run, label: str, **style: Any) -> None:
    steps = list(run.losses)
    axes.plot(steps, list(run.losses.values()), **style)
    labelled = steps[len(steps) // 8]
    axes.annotate(
        label, xy=(labelled, run.losses[labelled]), xytext=(12, 14), textcoords="offset points",
        color=style["color"], arrowprops={"arrowstyle": "-", "color": "grey"},
    )  # fmt: skip


def draw(uninterrupted: Run, resumed: Run | None, path: str) -> None:
    """The losses of the runs; as a line of text where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        losses = uninterrupted.losses | (resumed.losses if resumed else {})
        print_sparkline(list(losses.values()))
        print("No picture: matplotlib is not installed; pip install 'altorch[plot]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.2))
    draw_run(axes, uninterrupted, f"{uninterrupted.ranks} ranks", color="#0072b2", linewidth=1)
    if resumed:
        before = min(resumed.losses) - 1
        label = f"{resumed.ranks} ranks, resumed after step {before}"
        dots = {"color": "#d55e00", "marker": "o", "markersize": 3, "linestyle": "", "markevery": 5}
        draw_run(axes, resumed, label, **dots)
        axes.axvline(before, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="step", ylabel="loss per character")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"The losses are in {path}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400, help="the last step (default %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=24, help="sequences in a batch, over all ranks (default %(default)s)"
    )
    parser.add_argument(
        "--context", type=int, default=48, help="characters in a sequence (default %(default)s)"
    )
    parser.add_argument("--width", type=int, default=64, help="default %(default)s")
    parser.add_argument("--layers", type=int, default=2, help="default %(default)s")
    parser.add_argument("--folder", type=Path, help="for checkpoints; without it there are none")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS", help="default %(default)s")
    parser.add_argument(
        "--resume", nargs="?", type=int, const=-1, metavar="STEP",
        help="resume from the checkpoint of STEP, or from the newest one",
    )  # fmt: skip
    parser.add_argument("--plot", metavar="PNG", help="draw the losses")
    arguments = parser.parse_args()
    if arguments.resume is not None and not arguments.folder:
        parser.error("--resume needs the --folder of the checkpoints")
    if arguments.folder and arguments.resume is None and any(arguments.folder.glob("step-*")):
        parser.error(
            f"{arguments.folder} has checkpoints: --resume goes on from them; else take another folder"
        )
    return arguments


def report(training: Training, text: str) -> int:
    """Rank 0: compares the losses with those of the uninterrupted run, or saves them for that. The exit code."""
    arguments, code = training.arguments, 0
    run, resumed = Run(dist.get_world_size(), training.losses), None
    path = arguments.folder / "losses.json" if arguments.folder else None
    if path and arguments.resume is None:
        save_losses(run, path)
    elif path and path.exists():
        run, resumed = load_losses(path), run
        code = compare(run, resumed)
    print(f"It writes: {text!r}")
    if arguments.plot:
        draw(run, resumed, arguments.plot)
    return code


def train(arguments: argparse.Namespace, checkpoint: Path | None) -> int:
    """Returns the exit code: on rank 0, that of the report."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    training = Training(arguments)
    if checkpoint:
        training.load(checkpoint)
    if rank == 0:
        count = sum(parameter.numel() for parameter in training.model.parameters())
        print(f"{ranks} ranks, {count:,} parameters, steps {training.step + 1} to {arguments.steps}")
        print(" step    loss   tokens/s")
    training.run()
    text = training.generate("The ", 76)
    return report(training, text) if rank == 0 else 0


def main() -> int | str:
    arguments = parse_arguments()
    checkpoint = find_checkpoint(arguments) if arguments.resume is not None else None
    dist.init_process_group("al")
    torch.set_num_threads(1)
    ranks = dist.get_world_size()
    if arguments.batch % ranks:
        result: int | str = f"A batch of {arguments.batch} sequences does not go evenly over {ranks} ranks."
    else:
        result = train(arguments, checkpoint)
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    sys.exit(main())
