# SPDX-License-Identifier: BSD-3-Clause
"""The operations of the conformance matrix: each `run(world, case)` performs one case and checks it.

Inputs depend on the case without its form, and every output is filled with a pattern before the call: what an earlier
case has left in memory is never taken for a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import reference as ref
import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from matrix import Case
    from worker import World

Shape = tuple[int, ...]
Size = int | Shape

LARGE = 70_001
SCALAR = ()
FEW: tuple[Size, ...] = (0, 1, 3, 17, 1000)
MORE: tuple[Size, ...] = (0, 1, 2, 3, 17, 1000, 4099)


@dataclass(frozen=True)
class Operation:
    run: Callable[[World, Case], None]
    reduces: bool
    forms: tuple[str, ...]
    sizes: tuple[Size, ...]
    shared: bool = False  # each rank has a part of a tensor: the size is that of a part
    least_ranks: int = 1


OPERATIONS: dict[str, Operation] = {}


def operation(
    *forms: str, sizes: tuple[Size, ...], reduces: bool = False, **properties: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enters a function into the table, under its own name. A form "sync" or "X sync" stands for async, too."""

    def enter(run: Callable[..., None]) -> Callable[..., None]:
        every = tuple(form for name in forms for form in _ways(name))
        OPERATIONS[run.__name__] = Operation(run, reduces, every, sizes, **properties)
        return run

    return enter


def _ways(form: str) -> list[str]:
    return [form, form.removesuffix("sync") + "async"] if form.endswith("sync") else [form]


def perform(world: World, case: Case) -> None:
    world.case = str(case)
    OPERATIONS[case.operation].run(world, case)


# ------------------------------------------------------------------------------------------- inputs and outputs


@lru_cache(maxsize=4)
def _parts(
    world: World, operation: str, dtype: torch.dtype, op: str, shapes: tuple[tuple[Shape, ...], ...]
) -> list[list[torch.Tensor]]:
    before, world.case = world.case, f"{operation} {ref.name_of(dtype)} {op} {shapes}"
    rows = []
    for rank, row in enumerate(shapes):
        counts = [torch.Size(shape).numel() for shape in row]
        joined = ref.random_tensor(world, dtype, sum(counts), rank, op)
        rows.append([part.reshape(shape) for part, shape in zip(joined.split(counts), row, strict=True)])
    world.case = before
    return rows


def parts_of(
    world: World, case: Case, shape: Callable[[int, int], Shape], count: int | None = None
) -> list[list[torch.Tensor]]:
    """parts[a][b]: part b of rank a's input, of shape(a, b); `count` parts, or one for each rank. Not to be changed."""
    parts = range(world.size if count is None else count)
    shapes = tuple(tuple(shape(rank, part) for part in parts) for rank in range(world.size))
    return _parts(world, case.operation, case.dtype, case.operator, shapes)


def inputs_of(world: World, case: Case, shape: Callable[[int], Shape] | None = None) -> list[torch.Tensor]:
    """The input of each rank, of the case's shape or of shape(rank). Not to be changed."""
    return [row[0] for row in parts_of(world, case, lambda rank, _: shape(rank) if shape else case.shape, 1)]


def blank(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    count = torch.Size(shape).numel() * dtype.itemsize
    fill = 1 if dtype is torch.bool else 0xA5
    return torch.full((count,), fill, dtype=torch.uint8).view(dtype).reshape(shape)


def blank_like(tensor: torch.Tensor) -> torch.Tensor:
    return blank(tensor.shape, tensor.dtype)


def clones(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in tensors]


def more_rows(shape: Shape, rows: int) -> Shape:
    return (shape[0] + rows, *shape[1:])


def finish(work: dist.Work | None) -> None:
    if work is not None:
        work.wait()


def check_all_equal(world: World, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> None:
    for one, other in zip(got, want, strict=True):
        ref.check_equal(world, one, other)


# The forms of a case share their inputs, and so what is expected. The key holds the tensors: they
# are the same objects.
_expected = lru_cache(maxsize=16)(ref.expected)


def check_reduced(world: World, got: torch.Tensor, inputs: Sequence[torch.Tensor], operator: str) -> None:
    if got.dtype != inputs[0].dtype:
        raise AssertionError(f"{world.case}: type {got.dtype}, expected {inputs[0].dtype}")
    ref.check_expected(world, got, *_expected(tuple(inputs), operator))


# ------------------------------------------------------------------------------------------------- reductions


@operation("sync", "pending", sizes=(*MORE, LARGE, SCALAR), reduces=True)
def all_reduce(world: World, case: Case) -> None:
    """pending: three calls at once, waited for in reverse order."""
    count = 3 if case.form == "pending" else 1
    # The call in the middle has another size.
    rows = parts_of(world, case, lambda _, part: (3,) if part == 1 else case.shape, count)
    tensors = clones(rows[world.rank])
    asynchronous = case.form != "sync"
    op = ref.reduce_op(case.operator)
    works = [dist.all_reduce(tensor, op, async_op=asynchronous) for tensor in tensors]
    for part in reversed(range(count)):
        finish(works[part])
        check_reduced(world, tensors[part], [row[part] for row in rows], case.operator)
        world.identical(tensors[part])


@operation("sync", sizes=(1, 1000), reduces=True)
def all_reduce_coalesced(world: World, case: Case) -> None:
    shapes = (case.shape, (3, 7), (1,), (130,))
    rows = parts_of(world, case, lambda _, part: shapes[part], len(shapes))
    tensors = clones(rows[world.rank])
    op = ref.reduce_op(case.operator)
    finish(dist.all_reduce_coalesced(tensors, op, async_op=case.asynchronous))
    for part, tensor in enumerate(tensors):
        check_reduced(world, tensor, [row[part] for row in rows], case.operator)
        world.identical(tensor)


@operation("sync", sizes=(*MORE, LARGE), reduces=True)
def reduce(world: World, case: Case) -> None:
    world.case += f" to {case.root}"
    inputs = inputs_of(world, case)
    tensor = inputs[world.rank].clone()
    finish(dist.reduce(tensor, case.root, ref.reduce_op(case.operator), async_op=case.asynchronous))
    if world.rank == case.root:
        check_reduced(world, tensor, inputs, case.operator)
    elif world.is_al:
        # MPI and NCCL leave the input alone where it is not the output; Gloo uses it as scratch.
        ref.check_equal(world, tensor, inputs[world.rank])


@operation("sync", "uneven sync", sizes=(*FEW, LARGE), reduces=True, shared=True)
def reduce_scatter(world: World, case: Case) -> None:
    uneven = 3 if case.layout == "uneven" else 0
    rows = parts_of(
        world, case, lambda _, part: more_rows(case.shape, uneven * part) if uneven else case.shape
    )
    mine = clones(rows[world.rank])
    output = blank_like(mine[world.rank])
    op = ref.reduce_op(case.operator)
    finish(dist.reduce_scatter(output, mine, op, async_op=case.asynchronous))
    check_reduced(world, output, [row[world.rank] for row in rows], case.operator)
    check_all_equal(world, mine, rows[world.rank])


@operation("sync", "in place", "coalesced", sizes=(*FEW, 4099, LARGE), reduces=True, shared=True)
def reduce_scatter_tensor(world: World, case: Case) -> None:
    """in place: the output is this rank's slice of the input. coalesced: three calls in a coalescing window."""
    op = ref.reduce_op(case.operator)
    if case.form == "coalesced":
        shapes = (case.shape, (1,), (1000,))
        sources, wants = [], []
        for shape in shapes:
            rows = parts_of(world, case, lambda _, part, shape=shape: shape)
            sources.append(torch.cat(rows[world.rank]))
            wants.append([row[world.rank] for row in rows])
        outputs = [blank(shape, case.dtype) for shape in shapes]
        with dist._coalescing_manager(async_ops=True) as manager:
            for output, source in zip(outputs, sources, strict=True):
                dist.reduce_scatter_tensor(output, source, op)
        manager.wait()
        for output, want in zip(outputs, wants, strict=True):
            check_reduced(world, output, want, case.operator)
        return
    rows = parts_of(world, case, lambda *_: case.shape)
    source = torch.cat(rows[world.rank])
    in_place = case.form == "in place"
    output = source.chunk(world.size)[world.rank] if in_place else blank(case.shape, case.dtype)
    finish(dist.reduce_scatter_tensor(output, source, op, async_op=case.asynchronous))
    check_reduced(world, output, [row[world.rank] for row in rows], case.operator)
    if not in_place:
        ref.check_equal(world, source, torch.cat(rows[world.rank]))


# ------------------------------------------------------------------------------------------------------ moves


@operation("sync", sizes=(*FEW, LARGE, SCALAR, (3, 5)))
def broadcast(world: World, case: Case) -> None:
    world.case += f" from {case.root}"
    inputs = inputs_of(world, case)
    tensor = inputs[world.rank].clone()
    finish(dist.broadcast(tensor, case.root, async_op=case.asynchronous))
    ref.check_equal(world, tensor, inputs[case.root])


@operation("sync", "uneven sync", sizes=(*FEW, LARGE, SCALAR, (3, 5)), shared=True)
def all_gather(world: World, case: Case) -> None:
    inputs = uneven_inputs(world, case, 3)
    mine = inputs[world.rank].clone()
    outputs = [blank_like(tensor) for tensor in inputs]
    finish(dist.all_gather(outputs, mine, async_op=case.asynchronous))
    check_all_equal(world, outputs, inputs)
    ref.check_equal(world, mine, inputs[world.rank])


def uneven_inputs(world: World, case: Case, step: int) -> list[torch.Tensor]:
    """Inputs of equal shape, or in the form "uneven" of shapes that differ by some times `step` rows."""
    if case.layout != "uneven":
        return inputs_of(world, case)
    return inputs_of(
        world, case, lambda rank: more_rows(case.shape, step * ((rank + case.root) % world.size))
    )


@operation("sync", "stacked sync", "in place", "coalesced", sizes=(*FEW, 4099, LARGE, (3, 5)), shared=True)
def all_gather_into_tensor(world: World, case: Case) -> None:
    """in place: the input is this rank's slice of the output. coalesced: four calls in a coalescing window."""
    if case.form == "coalesced":
        shapes = (case.shape, (0,), (1,), (1000,))
        rows = parts_of(world, case, lambda _, part: shapes[part], len(shapes))
        wants = [torch.cat([row[part] for row in rows]) for part in range(len(shapes))]
        outputs = [blank_like(want) for want in wants]
        with dist._coalescing_manager(async_ops=True) as manager:
            for output, source in zip(outputs, rows[world.rank], strict=True):
                dist.all_gather_into_tensor(output, source.clone())
        manager.wait()
        check_all_equal(world, outputs, wants)
        return
    inputs = inputs_of(world, case)
    want = torch.stack(inputs) if case.layout == "stacked" else torch.cat(inputs)
    output = blank_like(want)
    if case.form == "in place":
        source = output.chunk(world.size)[world.rank]
        source.copy_(inputs[world.rank])
    else:
        source = inputs[world.rank].clone()
    finish(dist.all_gather_into_tensor(output, source, async_op=case.asynchronous))
    ref.check_equal(world, output, want)
    ref.check_equal(world, source, inputs[world.rank])


@operation("sync", "uneven sync", sizes=(*FEW, LARGE, SCALAR, (3, 5)), shared=True)
def gather(world: World, case: Case) -> None:
    """uneven: each rank brings its own count; only the root knows them all."""
    world.case += f" to {case.root}"
    inputs = uneven_inputs(world, case, 2)
    mine = inputs[world.rank].clone()
    outputs = [blank_like(tensor) for tensor in inputs] if world.rank == case.root else None
    finish(dist.gather(mine, outputs, case.root, async_op=case.asynchronous))
    if outputs is not None:
        check_all_equal(world, outputs, inputs)
    ref.check_equal(world, mine, inputs[world.rank])


@operation("sync", "uneven sync", sizes=(*FEW, LARGE, SCALAR, (3, 5)), shared=True)
def scatter(world: World, case: Case) -> None:
    world.case += f" from {case.root}"
    inputs = uneven_inputs(world, case, 2)
    output = blank_like(inputs[world.rank])
    parts = clones(inputs) if world.rank == case.root else None
    finish(dist.scatter(output, parts, case.root, async_op=case.asynchronous))
    ref.check_equal(world, output, inputs[world.rank])
    if parts is not None:
        check_all_equal(world, parts, inputs)


@operation("sync", "uneven sync", "mostly empty sync", sizes=(*FEW, LARGE, (3, 5)), shared=True)
def all_to_all_single(world: World, case: Case) -> None:
    """mostly empty: each rank sends to the next rank only. The splits count rows."""

    def shape(sender: int, receiver: int) -> Shape:
        if case.layout == "uneven":
            return more_rows(case.shape, sender + 2 * receiver)
        if case.layout == "mostly empty" and (sender + 1) % world.size != receiver:
            return (0, *case.shape[1:])
        return case.shape

    rows = parts_of(world, case, shape)
    source = torch.cat(rows[world.rank])
    want = torch.cat([row[world.rank] for row in rows])
    output = blank_like(want)
    splits = {}
    if case.layout:
        splits["output_split_sizes"] = [len(row[world.rank]) for row in rows]
        splits["input_split_sizes"] = [len(part) for part in rows[world.rank]]
    finish(dist.all_to_all_single(output, source, **splits, async_op=case.asynchronous))
    ref.check_equal(world, output, want)
    ref.check_equal(world, source, torch.cat(rows[world.rank]))


@operation("sync", "uneven sync", sizes=(*FEW, LARGE), shared=True)
def all_to_all(world: World, case: Case) -> None:
    rows = parts_of(
        world, case, lambda a, b: more_rows(case.shape, a + 3 * b) if case.layout == "uneven" else case.shape
    )
    wants = [row[world.rank] for row in rows]
    outputs = [blank_like(want) for want in wants]
    sources = clones(rows[world.rank])
    finish(dist.all_to_all(outputs, sources, async_op=case.asynchronous))
    check_all_equal(world, outputs, wants)
    check_all_equal(world, sources, rows[world.rank])


if hasattr(dist, "gather_single"):  # torch 2.15

    @operation("sync", sizes=(*FEW, LARGE), shared=True)
    def gather_single(world: World, case: Case) -> None:
        """To each rank in turn."""
        inputs = inputs_of(world, case)
        mine, want = inputs[world.rank].clone(), torch.cat(inputs)
        for root in range(world.size):
            world.case = f"{case} to {root}"
            got = blank_like(want) if world.rank == root else None
            finish(dist.gather_single(mine, got, root, async_op=case.asynchronous))
            if got is not None:
                ref.check_equal(world, got, want)
        ref.check_equal(world, mine, inputs[world.rank])


@operation("sync", sizes=(*FEW, LARGE, SCALAR, (3, 5)), least_ranks=2)
def send_recv(world: World, case: Case) -> None:
    """Each rank in turn to the next; async: isend and irecv."""
    inputs = inputs_of(world, case)
    for sender in range(world.size):
        receiver = (sender + 1) % world.size
        world.case = f"{case} {sender}->{receiver}"
        if world.rank == sender:
            mine = inputs[sender].clone()
            finish(dist.isend(mine, receiver) if case.asynchronous else dist.send(mine, receiver))
            ref.check_equal(world, mine, inputs[sender])
        elif world.rank == receiver:
            got = blank_like(inputs[sender])
            if case.asynchronous:
                finish(dist.irecv(got, sender))
            else:
                assert dist.recv(got, sender) == sender
            ref.check_equal(world, got, inputs[sender])
