# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small transformer on characters with FSDP2, and goes on from a checkpoint with another number of ranks.

    torchrun --standalone --nproc-per-node 2 examples/language_model.py --folder lm
    torchrun --standalone --nproc-per-node 3 examples/language_model.py --folder lm --resume 200 --plot loss.png

The text is the reference of Python's language, out of the standard library. `fully_shard` divides the parameters among
the ranks, and torch.distributed.checkpoint saves the parts. A step has the same batch on any number of ranks, so a run
that resumes continues the losses of the run that was not interrupted. It prints the largest difference, and ends with
exit code 1 when that is above 1e-3 of the loss, or above 0 with the same number of ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TOLERANCE = 1e-3  # of the loss: with another number of ranks float32 sums have another order
TEXT = "\n".join(topics[name] for name in sorted(topics))[:400_000]
LETTERS = sorted(set(TEXT))
TOKENS = torch.tensor([LETTERS.index(letter) for letter in TEXT])


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        projected = self.projections(self.before_attention(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.joined(attended.transpose(1, 2).flatten(2))
        return hidden + self.mlp(self.before_mlp(hidden))


class LanguageModel(nn.Module):
    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.letters, self.positions = nn.Embedding(len(LETTERS), width), nn.Embedding(context, width)
        for table in (self.letters, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(layers)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(LETTERS)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1])
        return self.last(self.blocks(self.letters(tokens) + self.positions(positions)))


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

    def advance(self) -> float:
        """One step; the loss before it, of the whole batch."""
        self.step += 1
        context, random = self.arguments.context, torch.Generator().manual_seed(self.step)
        starts = torch.randint(len(TOKENS) - context, (self.arguments.batch, 1), generator=random)
        mine = starts[dist.get_rank() :: dist.get_world_size()]
        window = TOKENS[mine + torch.arange(context + 1)]
        logits = self.model(window[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        self.losses[self.step] = mean.item()
        return mean.item()

    def save(self) -> None:
        """Every rank writes its part of each parameter and of the optimizer's state."""
        checkpoint = self.arguments.folder / f"step-{self.step:06}"
        if not (checkpoint / ".metadata").exists():  # a run that resumes comes by steps that are saved
            model, optimizer = get_state_dict(self.model, self.optimizer)
            dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=checkpoint)

    def load(self, checkpoint: Path) -> None:
        """The parts are those of this number of ranks, whichever number has saved them."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer}
        dcp.load(state, checkpoint_id=checkpoint)
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        self.step = int(checkpoint.name.removeprefix("step-"))

    @torch.no_grad()
    def write(self, begin: str, length: int) -> str:
        """A text that begins so. Collective, for each rank has a part of the parameters; all draw the same letters."""
        random = torch.Generator().manual_seed(0)
        tokens = [LETTERS.index(letter) for letter in begin]
        for _ in range(length):
            logits = self.model(torch.tensor([tokens[-self.arguments.context :]]))[0, -1]
            tokens.append(int(torch.multinomial((logits / 0.5).softmax(0), 1, generator=random)))
        return "".join(LETTERS[token] for token in tokens)


def find_checkpoint(arguments: argparse.Namespace) -> Path:
    """That of step --resume, or the newest one. One without metadata is incomplete: its job ended while it saved."""
    complete = sorted(path.parent for path in arguments.folder.glob("step-*/.metadata"))
    if arguments.resume >= 0:
        complete = [path for path in complete if path.name == f"step-{arguments.resume:06}"]
    if not complete:
        which = f" of step {arguments.resume}" if arguments.resume >= 0 else ""
        raise SystemExit(f"{arguments.folder} has no complete checkpoint{which}.")
    return complete[-1]


def draw(whole: dict[int, float], resumed: dict[int, float], labels: tuple[str, str], path: str) -> None:
    """The losses of both runs; as a line of text where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        losses = list((whole | resumed).values())[:: max(1, len(whole | resumed) // 60)]
        low, high = min(losses), max(losses)
        print("loss", "".join("▁▂▃▄▅▆▇█"[int(7 * (each - low) / (high - low or 1))] for each in losses))
        print("No picture: matplotlib is not installed; pip install 'altorch[plot]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.2))
    for run, label, style in (
        (whole, labels[0], {"color": "#0072b2", "linewidth": 1}),
        (
            resumed,
            labels[1],
            {"color": "#d55e00", "marker": "o", "markersize": 3, "linestyle": "", "markevery": 5},
        ),
    ):
        if run:
            axes.plot(list(run), list(run.values()), **style)
            step = list(run)[len(run) // 8]
            at = {"xy": (step, run[step]), "xytext": (12, 14), "textcoords": "offset points"}
            axes.annotate(label, **at, color=style["color"], arrowprops={"arrowstyle": "-", "color": "grey"})
    if resumed:
        axes.axvline(min(resumed) - 1, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="step", ylabel="loss per character")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"The losses are in {path}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400, help="the last step (default %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=24, help="sequences of all ranks together (default %(default)s)"
    )
    parser.add_argument("--context", type=int, default=48, help="characters of one (default %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="default %(default)s")
    parser.add_argument("--layers", type=int, default=2, help="default %(default)s")
    parser.add_argument("--folder", type=Path, help="for checkpoints; without it there are none")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS", help="default %(default)s")
    parser.add_argument(
        "--resume", nargs="?", type=int, const=-1, metavar="STEP",
        help="go on from the checkpoint of STEP, or from the newest one",
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


def main() -> int | str:
    arguments = parsed()
    checkpoint = find_checkpoint(arguments) if arguments.resume is not None else None
    dist.init_process_group("al")
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if arguments.batch % ranks:
        dist.destroy_process_group()
        return f"A batch of {arguments.batch} sequences does not go evenly over {ranks} ranks."
    training = Training(arguments)
    if checkpoint:
        training.load(checkpoint)
    first = training.step
    if rank == 0:
        count = sum(parameter.numel() for parameter in training.model.parameters())
        print(f"{ranks} ranks, {count:,} parameters, steps {first + 1} to {arguments.steps}")
        print(" step    loss   tokens/s")
    shown, began = first, time.perf_counter()
    for step in range(first + 1, arguments.steps + 1):
        loss = training.advance()
        if step % max(1, arguments.steps // 10) == 0 and rank == 0:
            tokens = (step - shown) * arguments.batch * arguments.context
            print(f"{step:5} {loss:7.4f} {tokens / (time.perf_counter() - began):10,.0f}", flush=True)
        if arguments.folder and step % arguments.save_every == 0:
            training.save()
        if step % max(1, arguments.steps // 10) == 0:
            shown, began = step, time.perf_counter()
    text = training.write("The ", 76)
    code = report(arguments, training, text) if rank == 0 else 0
    dist.destroy_process_group()
    return code


def report(arguments: argparse.Namespace, training: Training, text: str) -> int:
    """Rank 0: compares the losses with those of the run that was not interrupted, or keeps them for that."""
    ranks, whole, resumed, label, code = dist.get_world_size(), training.losses, {}, "", 0
    kept = arguments.folder / "losses.json" if arguments.folder else None
    if arguments.resume is None and kept:
        kept.write_text(json.dumps({"ranks": ranks, "losses": list(whole.values())}))
    elif kept and kept.exists():
        run, resumed = json.loads(kept.read_text()), whole
        whole = dict(enumerate(run["losses"], 1))
        both = whole.keys() & resumed.keys()
        difference = max((abs(whole[step] - resumed[step]) / whole[step] for step in both), default=0.0)
        print(
            f"{len(both)} steps also in the run of {run['ranks']} ranks: largest difference {difference:.1e}"
        )
        code = int(difference > (0 if run["ranks"] == ranks else TOLERANCE))
        label, ranks = f"{ranks} ranks, resumed after step {min(resumed) - 1}", run["ranks"]
    print(f"It writes: {text!r}")
    if arguments.plot:
        draw(whole, resumed, (f"{ranks} ranks", label), arguments.plot)
    return code


if __name__ == "__main__":
    sys.exit(main())
