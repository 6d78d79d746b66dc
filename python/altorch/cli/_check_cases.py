# SPDX-License-Identifier: BSD-3-Clause
"""The operations that `altorch check` runs, each against a reference that every rank computes by itself.

Data are small integers, so that every type and every order of additions gives the same, exactly known sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from altorch import _version_check

COUNTS = (1, 1000, 300_001)  # one element, a small message, an odd large one
DTYPES = (torch.float32, torch.bfloat16, torch.int64)


@dataclass(frozen=True)
class Case:
    name: str
    # (rank, size); raises AssertionError. Text: why there was nothing to run, alike on all ranks.
    run: Callable[[int, int], str | None]


def data(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """What `rank` contributes: small integers, different on every rank and in every place."""
    return ((torch.arange(count) + 3 * rank) % 7).to(dtype)


def same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    if got.shape != wanted.shape:
        raise AssertionError(f"the result has shape {tuple(got.shape)} instead of {tuple(wanted.shape)}")
    if torch.equal(got, wanted):
        return
    where = (got != wanted).nonzero()[0].tolist()
    raise AssertionError(
        f"{got.dtype}, {got.numel()} elements: element {where} is {got[tuple(where)].item()} instead "
        f"of {wanted[tuple(where)].item()}"
    )


def every(body: Callable[[int, int, int, torch.dtype], None]) -> Callable[[int, int], None]:
    def run(rank: int, size: int) -> None:
        for dtype in DTYPES:
            for count in COUNTS:
                body(rank, size, count, dtype)

    return run


def all_reduce(rank: int, size: int, count: int, dtype: torch.dtype) -> None:
    wide = torch.stack([data(r, count, torch.int64) for r in range(size)])
    for op, wanted in ((dist.ReduceOp.SUM, wide.sum(0)), (dist.ReduceOp.MAX, wide.max(0).values)):
        tensor = data(rank, count, dtype)
        dist.all_reduce(tensor, op)
        same(tensor, wanted.to(dtype))


def all_reduce_async(rank: int, size: int) -> None:
    tensors = [data(rank, 100 * (i + 1), torch.float32) for i in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
        work.wait()
        same(tensor, sum(data(r, 100 * (i + 1), torch.float32) for r in range(size)))


def reduce(rank: int, size: int, count: int, dtype: torch.dtype) -> None:
    root = size - 1
    tensor = data(rank, count, dtype)
    dist.reduce(tensor, dst=root)
    if rank == root:
        same(tensor, sum(data(r, count, torch.int64) for r in range(size)).to(dtype))


def broadcast(rank: int, size: int, count: int, dtype: torch.dtype) -> None:
    root = size // 2
    tensor = data(rank, count, dtype)
    dist.broadcast(tensor, src=root)
    same(tensor, data(root, count, dtype))


def all_gather(rank: int, size: int, count: int, dtype: torch.dtype) -> None:
    outputs = [torch.empty(count, dtype=dtype) for _ in range(size)]
    dist.all_gather(outputs, data(rank, count, dtype))
    for r, output in enumerate(outputs):
        same(output, data(r, count, dtype))
    output = torch.empty(size * count, dtype=dtype)
    dist.all_gather_into_tensor(output, data(rank, count, dtype))
    same(output, torch.cat([data(r, count, dtype) for r in range(size)]))


def reduce_scatter(rank: int, size: int, count: int, dtype: torch.dtype) -> None:
    output = torch.empty(count, dtype=dtype)
    dist.reduce_scatter_tensor(output, data(rank, size * count, dtype))
    wanted = sum(data(r, size * count, torch.int64) for r in range(size))
    same(output, wanted[rank * count : (rank + 1) * count].to(dtype))


def all_to_all(rank: int, size: int, count: int, dtype: torch.dtype) -> None:
    output = torch.empty(size * count, dtype=dtype)
    dist.all_to_all_single(output, data(rank, size * count, dtype))
    wanted = [data(r, size * count, dtype)[rank * count : (rank + 1) * count] for r in range(size)]
    same(output, torch.cat(wanted))


def all_to_all_uneven(rank: int, size: int) -> None:
    sends = [rank + r for r in range(size)]  # rank a sends a + b elements to rank b
    tensor = data(rank, sum(sends), torch.float32)
    output = torch.empty(sum(sends), dtype=torch.float32)
    dist.all_to_all_single(output, tensor, output_split_sizes=sends, input_split_sizes=sends)
    wanted = []
    for r in range(size):
        begin = sum(r + k for k in range(rank))
        wanted.append(data(r, sum(r + k for k in range(size)), torch.float32)[begin : begin + r + rank])
    same(output, torch.cat(wanted))


def gather_scatter(rank: int, size: int, count: int, dtype: torch.dtype) -> None:
    gathered = [torch.empty(count, dtype=dtype) for _ in range(size)] if rank == 0 else None
    dist.gather(data(rank, count, dtype), gathered, dst=0)
    for r, block in enumerate(gathered or []):
        same(block, data(r, count, dtype))
    output = torch.empty(count, dtype=dtype)
    dist.scatter(output, gathered, src=0)
    same(output, data(rank, count, dtype))


def send_recv(rank: int, size: int, count: int, dtype: torch.dtype) -> None:
    if size == 1:
        return
    received = torch.empty(count, dtype=dtype)
    works = [dist.isend(data(rank, count, dtype), (rank + 1) % size), dist.irecv(received, (rank - 1) % size)]
    for work in works:
        if work is not None:
            work.wait()
    same(received, data((rank - 1) % size, count, dtype))


def objects(rank: int, size: int) -> None:
    outputs: list[object] = [None] * size
    dist.all_gather_object(outputs, {"rank": rank})
    if outputs != [{"rank": r} for r in range(size)]:
        raise AssertionError(f"all_gather_object gave {outputs}")


def subgroup(rank: int, size: int) -> None:
    evens = list(range(0, size, 2))
    group = dist.new_group(evens)
    if rank in evens:
        tensor = data(rank, 1000, torch.float32)
        dist.all_reduce(tensor, group=group)
        same(tensor, sum(data(r, 1000, torch.float32) for r in evens))
        dist.destroy_process_group(group)


def barrier(rank: int, size: int) -> None:
    for _ in range(10):
        dist.barrier()


def of_backend(name: str, gpus: bool = False) -> tuple[Case, ...]:
    """Windows are altorch's alone. `gpus`: whether every rank has one."""
    if name != "al":
        return CASES
    if _version_check.needs_fallback():
        return (
            *CASES,
            Case("windows", lambda rank, size: "windows need an extension for this torch"),
        )
    from altorch.cli import _check_windows

    return (*CASES, *_check_windows.cases(gpus))


CASES = (
    Case("barrier", barrier),
    Case("all_reduce", every(all_reduce)),
    Case("all_reduce, asynchronous", all_reduce_async),
    Case("reduce", every(reduce)),
    Case("broadcast", every(broadcast)),
    Case("all_gather", every(all_gather)),
    Case("reduce_scatter", every(reduce_scatter)),
    Case("all_to_all", every(all_to_all)),
    Case("all_to_all, uneven", all_to_all_uneven),
    Case("gather, scatter", every(gather_scatter)),
    Case("send, recv", every(send_recv)),
    Case("objects", objects),
    Case("new_group", subgroup),
)
