"""Conformance of the operations that move data: operation x type x size x async x world size."""

from __future__ import annotations

import pytest
import reference as ref
import torch
import torch.distributed as dist
from harness import on_ranks

WORLDS = (1, 2, 3, 4)
SIZES = (0, 1, 3, 17, 1000)
BY_TYPE = pytest.mark.parametrize("dtype", ref.MOVABLE, ids=ref.name_of)
SOME_TYPES = pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2],
    ids=ref.name_of,
)
_GLOO_MOVES = {*ref._GLOO_TYPES, torch.bool}


def skip_unsupported(world, dtype):
    if not world.is_al and dtype not in _GLOO_MOVES:
        pytest.skip(f"{world.backend} does not move {ref.name_of(dtype)}")


def inputs_of(world, dtype, shape):
    return [ref.random_tensor(world, dtype, shape, rank) for rank in range(world.size)]


def finish(work):
    if work is not None:
        work.wait()


@on_ranks(*WORLDS)
@BY_TYPE
def test_broadcast(world, dtype):
    skip_unsupported(world, dtype)
    for index, size in enumerate((*SIZES, (3, 5), 70_001)):
        root = index % world.size
        world.case = f"broadcast {ref.name_of(dtype)} {size} from {root}"
        inputs = inputs_of(world, dtype, size)
        tensor = inputs[world.rank].clone()
        finish(dist.broadcast(tensor, root, async_op=bool(index % 2)))
        ref.check_equal(world, tensor, inputs[root])


@on_ranks(*WORLDS)
@BY_TYPE
def test_all_gather(world, dtype):
    skip_unsupported(world, dtype)
    for index, size in enumerate((*SIZES, (2, 3), 20_001)):
        world.case = f"all_gather {ref.name_of(dtype)} {size}"
        inputs = inputs_of(world, dtype, size)
        mine = inputs[world.rank].clone()
        outputs = [torch.empty_like(tensor) for tensor in inputs]
        finish(dist.all_gather(outputs, mine, async_op=bool(index % 2)))
        for output, want in zip(outputs, inputs, strict=True):
            ref.check_equal(world, output, want)
        ref.check_equal(world, mine, inputs[world.rank])


@on_ranks(1, 2, 3, 4)
@SOME_TYPES
def test_all_gather_uneven(world, dtype):
    if not world.is_al:
        pytest.skip("Gloo takes lists of equal sizes only")
    for index, base in enumerate((0, 1, 17, 1000)):
        counts = [base + 3 * ((rank + index) % world.size) for rank in range(world.size)]
        world.case = f"all_gather {ref.name_of(dtype)} uneven {counts}"
        inputs = [ref.random_tensor(world, dtype, counts[rank], rank) for rank in range(world.size)]
        outputs = [torch.empty_like(tensor) for tensor in inputs]
        finish(dist.all_gather(outputs, inputs[world.rank].clone(), async_op=bool(index % 2)))
        for output, want in zip(outputs, inputs, strict=True):
            ref.check_equal(world, output, want)


@on_ranks(2, 3)
def test_all_gather_with_aliased_outputs(world):
    """Outputs that are slices of one tensor, and an input that is one of the outputs."""
    inputs = inputs_of(world, torch.float32, 7)
    joined = torch.zeros(world.size * 7)
    outputs = list(joined.split(7))
    outputs[world.rank].copy_(inputs[world.rank])
    world.case = "all_gather into slices of one tensor, input among them"
    dist.all_gather(outputs, outputs[world.rank])
    ref.check_equal(world, joined, torch.cat(inputs))


@on_ranks(*WORLDS)
@BY_TYPE
def test_all_gather_into_tensor(world, dtype):
    skip_unsupported(world, dtype)
    for index, size in enumerate((*SIZES, 4099)):
        world.case = f"all_gather_into_tensor {ref.name_of(dtype)} {size}"
        inputs = inputs_of(world, dtype, size)
        want = torch.cat(inputs)
        # Concatenated and stacked; Gloo takes the first form only.
        for shape in ((size * world.size,), (world.size, size))[: 2 if world.is_al else 1]:
            output = torch.empty(shape, dtype=dtype)
            finish(dist.all_gather_into_tensor(output, inputs[world.rank].clone(), async_op=bool(index % 2)))
            ref.check_equal(world, output.reshape(-1), want)
        if size:
            world.case += " in place"
            output = torch.zeros(size * world.size, dtype=torch.uint8).to(dtype)
            slot = output[world.rank * size : (world.rank + 1) * size]
            slot.copy_(inputs[world.rank])
            dist.all_gather_into_tensor(output, slot)
            ref.check_equal(world, output, want)


@on_ranks(2, 3)
@SOME_TYPES
def test_all_gather_into_tensor_coalesced(world, dtype):
    skip_unsupported(world, dtype)
    sizes = (3, 0, 1, 1000)
    world.case = f"coalesced all_gather_into_tensor {ref.name_of(dtype)} {sizes}"
    per_rank = [ref.random_tensor(world, dtype, sum(sizes), rank).split(sizes) for rank in range(world.size)]
    outputs = [torch.empty(size * world.size, dtype=dtype) for size in sizes]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, source in zip(outputs, per_rank[world.rank], strict=True):
            dist.all_gather_into_tensor(output, source.clone())
    manager.wait()
    for index, output in enumerate(outputs):
        ref.check_equal(world, output, torch.cat([parts[index] for parts in per_rank]))


@on_ranks(2, 3)
def test_all_gather_coalesced(world):
    shapes = [(3,), (2, 5), (1,)]
    per_rank = []
    for rank in range(world.size):
        parts = ref.random_tensor(world, torch.float32, 14, rank).split([3, 10, 1])
        per_rank.append([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)])
    outputs = [[torch.empty(shape) for shape in shapes] for _ in range(world.size)]
    finish(dist.all_gather_coalesced(outputs, per_rank[world.rank], async_op=True))
    for got, want in zip(outputs, per_rank, strict=True):
        for a, b in zip(got, want, strict=True):
            ref.check_equal(world, a, b)


@on_ranks(*WORLDS)
@BY_TYPE
def test_gather_and_scatter(world, dtype):
    skip_unsupported(world, dtype)
    if not world.is_al and dtype in ref.COMPLEX:
        pytest.skip("Gloo does not gather complex numbers")
    for index, size in enumerate((*SIZES, (2, 3), 5001)):
        root = index % world.size
        inputs = inputs_of(world, dtype, size)
        world.case = f"gather {ref.name_of(dtype)} {size} to {root}"
        outputs = [torch.empty_like(tensor) for tensor in inputs] if world.rank == root else None
        finish(dist.gather(inputs[world.rank].clone(), outputs, root, async_op=bool(index % 2)))
        for output, want in zip(outputs or [], inputs, strict=False):
            ref.check_equal(world, output, want)

        world.case = f"scatter {ref.name_of(dtype)} {size} from {root}"
        output = torch.empty_like(inputs[world.rank])
        parts = [tensor.clone() for tensor in inputs] if world.rank == root else None
        finish(dist.scatter(output, parts, root, async_op=bool(index % 2)))
        ref.check_equal(world, output, inputs[world.rank])


@on_ranks(1, 2, 3, 4)
@SOME_TYPES
def test_gather_and_scatter_uneven(world, dtype):
    """The vector forms: every rank brings or takes its own count; only the root knows them all."""
    if not world.is_al:
        pytest.skip("Gloo takes lists of equal sizes only")
    for index, base in enumerate((0, 1, 33)):
        root = index % world.size
        counts = [base + 2 * ((rank + index) % world.size) for rank in range(world.size)]
        world.case = f"uneven gather {ref.name_of(dtype)} {counts} to {root}"
        inputs = [ref.random_tensor(world, dtype, counts[rank], rank) for rank in range(world.size)]
        outputs = [torch.empty_like(tensor) for tensor in inputs] if world.rank == root else None
        finish(dist.gather(inputs[world.rank].clone(), outputs, root, async_op=bool(index % 2)))
        for output, want in zip(outputs or [], inputs, strict=False):
            ref.check_equal(world, output, want)
        world.case = f"uneven scatter {ref.name_of(dtype)} {counts} from {root}"
        output = torch.empty_like(inputs[world.rank])
        parts = [tensor.clone() for tensor in inputs] if world.rank == root else None
        finish(dist.scatter(output, parts, root, async_op=bool(index % 2)))
        ref.check_equal(world, output, inputs[world.rank])


def parts_between(world, dtype, count):
    """parts[a][b]: what rank a sends to rank b, of count(a, b) elements."""
    rows = []
    for sender in range(world.size):
        counts = [count(sender, receiver) for receiver in range(world.size)]
        rows.append(ref.random_tensor(world, dtype, sum(counts), sender).split(counts))
    return rows


@on_ranks(*WORLDS)
@BY_TYPE
def test_all_to_all_single(world, dtype):
    """Even splits, uneven splits, and splits of nothing."""
    skip_unsupported(world, dtype)
    forms = {
        "even": lambda a, b, n: n,
        "uneven": lambda a, b, n: n + a + 2 * b,
        "mostly empty": lambda a, b, n: n if (a + 1) % world.size == b else 0,
    }
    index = 0
    for form, count in forms.items():
        for size in (0, 1, 17, 1000):
            index += 1
            world.case = f"all_to_all_single {ref.name_of(dtype)} {form} {size}"
            parts = parts_between(world, dtype, lambda a, b, count=count, size=size: count(a, b, size))
            source = torch.cat(parts[world.rank])
            want = torch.cat([row[world.rank] for row in parts])
            output = torch.empty_like(want)
            splits = {}
            if form != "even":
                splits["output_split_sizes"] = [row[world.rank].numel() for row in parts]
                splits["input_split_sizes"] = [part.numel() for part in parts[world.rank]]
            finish(dist.all_to_all_single(output, source, **splits, async_op=bool(index % 2)))
            ref.check_equal(world, output, want)


@on_ranks(2, 3)
def test_all_to_all_single_of_rows(world):
    """Splits count rows of a matrix, not elements."""
    world.case = "all_to_all_single rows"
    rows = [[sender + receiver for receiver in range(world.size)] for sender in range(world.size)]
    mine = rows[world.rank]
    source = torch.cat([torch.full((n, 5), 10.0 * world.rank + r) for r, n in enumerate(mine)])
    takes = [row[world.rank] for row in rows]
    output = torch.empty(sum(takes), 5)
    dist.all_to_all_single(output, source, takes, mine)
    want = torch.cat([torch.full((n, 5), 10.0 * sender + world.rank) for sender, n in enumerate(takes)])
    ref.check_equal(world, output, want)


@on_ranks(*WORLDS)
@BY_TYPE
def test_all_to_all(world, dtype):
    if not world.is_al:
        pytest.skip("Gloo has no all_to_all of lists on every torch")
    for index, size in enumerate((0, 1, 17, 1000)):
        uneven = index % 2
        world.case = f"all_to_all {ref.name_of(dtype)} {size} {'uneven' if uneven else 'even'}"
        parts = parts_between(world, dtype, lambda a, b, n=size, u=uneven: n + u * (a + 3 * b))
        outputs = [torch.empty_like(row[world.rank]) for row in parts]
        sources = [part.clone() for part in parts[world.rank]]
        finish(dist.all_to_all(outputs, sources, async_op=bool(index % 2)))
        for output, row in zip(outputs, parts, strict=True):
            ref.check_equal(world, output, row[world.rank])


@on_ranks(2, 3)
def test_strided_and_zero_dimensional_tensors(world):
    """A view that is not contiguous is moved rightly or refused by name; nothing outside it is written."""
    if not world.is_al:
        pytest.skip("Gloo moves a strided view as if it were contiguous, and so gives wrong numbers")
    world.case = "broadcast of a 0-dim tensor"
    scalar = torch.tensor(3.5 if world.rank == 0 else 0.0)
    dist.broadcast(scalar, 0)
    assert scalar.item() == 3.5 and scalar.dim() == 0

    base = torch.full((6, 4), -1.0)
    column = base[:, 1]
    column.fill_(float(world.rank))
    world.case = "broadcast of a column"
    try:
        dist.broadcast(column, 1)
    except (RuntimeError, ValueError) as error:
        assert "contiguous" in str(error), error
    else:
        assert torch.equal(column, torch.full((6,), 1.0)), f"{world.case}: {column}"
        assert torch.equal(base[:, 0], torch.full((6,), -1.0)), "wrote outside the view"
        assert torch.equal(base[:, 2:], torch.full((6, 2), -1.0)), "wrote outside the view"

    world.case = "all_gather of a transposed matrix"
    source = torch.arange(6.0).reshape(2, 3).t() + 100 * world.rank
    outputs = [torch.zeros(3, 2) for _ in range(world.size)]
    try:
        dist.all_gather(outputs, source)
    except (RuntimeError, ValueError) as error:
        assert "contiguous" in str(error), error
    else:
        for rank, output in enumerate(outputs):
            ref.check_equal(world, output, (torch.arange(6.0).reshape(2, 3).t() + 100 * rank).contiguous())
    dist.barrier()


@on_ranks(*WORLDS)
def test_barrier(world):
    for _ in range(20):
        dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.is_completed()


@on_ranks(2, 3, 4)
def test_barrier_holds_everyone_until_the_last(world):
    """Nobody leaves before the last rank has come: seen through the clock, which all ranks share."""
    import time

    times = torch.zeros(world.size, dtype=torch.float64)
    for late in range(world.size):
        dist.barrier()
        if world.rank == late:
            time.sleep(0.1)
        came = torch.tensor([time.monotonic()], dtype=torch.float64)
        dist.barrier()
        left = time.monotonic()
        dist.all_gather_into_tensor(times, came)
        assert left >= times.max().item(), f"left {times.max().item() - left:.6f} s before the last rank came"


@on_ranks(1, 2, 3)
def test_single_names_of_newer_torch(world):
    """torch 2.14 gives the *_single functions; they are the same operations."""
    if not hasattr(dist, "all_gather_single"):
        pytest.skip("this torch has no all_gather_single")
    inputs = inputs_of(world, torch.float32, 5)
    output = torch.empty(5 * world.size)
    dist.all_gather_single(output, inputs[world.rank].clone())
    ref.check_equal(world, output, torch.cat(inputs))
    inputs = inputs_of(world, torch.float32, 5 * world.size)
    output = torch.empty(5)
    dist.reduce_scatter_single(output, inputs[world.rank].clone())
    ref.check_reduced(world, output, [tensor.split(5)[world.rank] for tensor in inputs], "SUM")


@on_ranks(1, 2, 3)
@BY_TYPE
def test_gather_single(world, dtype):
    if not hasattr(dist, "gather_single"):
        pytest.skip("new in torch 2.15")
    if not world.is_al:
        pytest.skip("Gloo has none")
    for size in (0, 1, 17, 5000):
        for root in range(world.size):
            for asynchronous in (False, True):
                world.case = f"gather_single {ref.name_of(dtype)} {size} to {root}"
                mine = ref.random_tensor(world, dtype, size)
                got = torch.empty(world.size * size, dtype=dtype) if world.rank == root else None
                finish(dist.gather_single(mine, got, root, async_op=asynchronous))
                if got is not None:
                    want = torch.cat(
                        [ref.random_tensor(world, dtype, size, rank) for rank in range(world.size)]
                    )
                    assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))


@on_ranks(2)
def test_gather_single_refuses_wrong_outputs(world):
    if not hasattr(dist, "gather_single") or not world.is_al:
        pytest.skip("new in torch 2.15, and Gloo has none")
    for output, error, words in (
        (torch.zeros(5), ValueError, r"5 elements, expected 6"),
        (torch.zeros(6, dtype=torch.int32), TypeError, "type"),
    ):
        group = dist.new_group()
        if world.rank == 0:
            backend = group._get_backend(torch.device("cpu"))
            with pytest.raises(error, match=words):
                backend.gather_single(output, torch.ones(3), dist.GatherOptions())
        dist.destroy_process_group(group)
