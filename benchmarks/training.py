# SPDX-License-Identifier: BSD-3-Clause
"""What benchmarks.cpu_training and benchmarks.cuda_training share: the decoder, its wraps, a step, whose turn it is."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.decoder import Decoder

SHAPE = ("batch", "sequence", "layers", "width", "heads", "vocabulary")


def add_shape(parser: argparse.ArgumentParser, **defaults: int) -> None:
    for name in SHAPE:
        parser.add_argument(f"--{name}", type=int, default=defaults[name], help="default %(default)s")


def decoder_of(shape: argparse.Namespace) -> Decoder:
    return Decoder(shape.vocabulary, shape.width, shape.layers, shape.heads, shape.sequence)


def about(shape: argparse.Namespace) -> dict[str, int]:
    """What rows say of the model and of a rank's tokens."""
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in decoder_of(shape).parameters())
    return {"parameters": parameters} | {name: getattr(shape, name) for name in SHAPE}


def wrap_ddp(model: Decoder, group: Any, here: torch.device, dtype: torch.dtype) -> nn.Module:
    ids = [here.index] if here.type == "cuda" else None
    return DistributedDataParallel(
        model.to(dtype), device_ids=ids, process_group=group, gradient_as_bucket_view=True
    )


def wrap_fsdp2(model: Decoder, group: Any, here: torch.device, dtype: torch.dtype) -> nn.Module:
    mesh = DeviceMesh.from_group(group, here.type)
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for part in [*model.blocks, model]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return model


WRAPS: dict[str, Callable[[Decoder, Any, torch.device, torch.dtype], nn.Module]] = {
    "ddp": wrap_ddp,
    "fsdp2": wrap_fsdp2,
}


class Training:
    """A model that is made anew, always the same, and one batch of random tokens that differ from rank to rank."""

    def __init__(
        self, wrap: str, group: Any, here: torch.device, dtype: torch.dtype, shape: argparse.Namespace
    ) -> None:
        torch.manual_seed(0)
        with here:
            decoder = decoder_of(shape)
        self.model = WRAPS[wrap](decoder, group, here, dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        torch.manual_seed(1 + torch.distributed.get_rank())
        self.tokens = torch.randint(shape.vocabulary, (shape.batch, shape.sequence + 1), device=here)
        self.loss = torch.zeros((), device=here)  # of the last step

    def step(self, communicates: bool = True) -> None:
        with contextlib.nullcontext() if communicates else self.model.no_sync():
            logits = self.model(self.tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), self.tokens[:, 1:].flatten())
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss = loss.detach()


def there_and_back(names: list[str], repeats: int) -> Iterator[str]:
    """A B, B A, A B, ..."""
    for turn in range(repeats):
        yield from names if turn % 2 == 0 else reversed(names)
