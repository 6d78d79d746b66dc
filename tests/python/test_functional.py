# SPDX-License-Identifier: BSD-3-Clause
"""Functional collectives, torch.compile, DTensor: what reaches the backend through torch's dispatcher."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import reference as ref
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from harness import on_ranks

WORLDS = (1, 2, 3)
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=ref.name_of)


def inputs_of(world, dtype, shape):
    return [ref.random_tensor(world, dtype, shape, rank) for rank in range(world.size)]


@on_ranks(*WORLDS)
@TYPES
def test_functional_all_reduce(world, dtype):
    world.case = f"functional all_reduce {ref.name_of(dtype)}"
    inputs = inputs_of(world, dtype, (4, 3))
    source = inputs[world.rank].clone()
    output = funcol.wait_tensor(funcol.all_reduce(source, "sum", dist.group.WORLD))
    ref.check_reduced(world, output, inputs, "SUM")
    ref.check_equal(world, source, inputs[world.rank])  # functional: the input stays


@on_ranks(*WORLDS)
@TYPES
def test_functional_coalesced(world, dtype):
    world.case = f"functional all_reduce_coalesced {ref.name_of(dtype)}"
    first, second = inputs_of(world, dtype, 5), inputs_of(world, dtype, (2, 2))
    outputs = funcol.all_reduce_coalesced([first[world.rank], second[world.rank]], "sum", dist.group.WORLD)
    ref.check_reduced(world, funcol.wait_tensor(outputs[0]), first, "SUM")
    ref.check_reduced(world, funcol.wait_tensor(outputs[1]), second, "SUM")

    world.case = f"functional all_gather_into_tensor_coalesced {ref.name_of(dtype)}"
    group = dist.group.WORLD
    outputs = funcol.all_gather_into_tensor_coalesced([first[world.rank], second[world.rank]], group)
    ref.check_equal(world, funcol.wait_tensor(outputs[0]), torch.cat(first))
    ref.check_equal(world, funcol.wait_tensor(outputs[1]), torch.cat(second))

    world.case = f"functional reduce_scatter_tensor_coalesced {ref.name_of(dtype)}"
    wide = inputs_of(world, dtype, (2 * world.size, 3))
    outputs = funcol.reduce_scatter_tensor_coalesced([wide[world.rank]], "sum", [0], group)
    mine = [tensor.chunk(world.size)[world.rank] for tensor in wide]
    ref.check_reduced(world, funcol.wait_tensor(outputs[0]), mine, "SUM")


@on_ranks(*WORLDS)
@TYPES
def test_functional_gather_and_scatter(world, dtype):
    group = dist.group.WORLD
    inputs = inputs_of(world, dtype, (2 * world.size, 3))
    world.case = f"functional all_gather_tensor {ref.name_of(dtype)}"
    for dim in (0, 1):
        output = funcol.wait_tensor(funcol.all_gather_tensor(inputs[world.rank], dim, group))
        ref.check_equal(world, output.contiguous(), torch.cat(inputs, dim))
    world.case = f"functional reduce_scatter_tensor {ref.name_of(dtype)}"
    output = funcol.wait_tensor(funcol.reduce_scatter_tensor(inputs[world.rank], "sum", 0, group))
    ref.check_reduced(world, output, [tensor.chunk(world.size)[world.rank] for tensor in inputs], "SUM")
    world.case = f"functional all_to_all_single {ref.name_of(dtype)}"
    output = funcol.wait_tensor(funcol.all_to_all_single(inputs[world.rank], None, None, group))
    ref.check_equal(world, output, torch.cat([tensor.chunk(world.size)[world.rank] for tensor in inputs]))
    world.case = f"functional broadcast {ref.name_of(dtype)}"
    output = funcol.wait_tensor(funcol.broadcast(inputs[world.rank], world.size - 1, group))
    ref.check_equal(world, output, inputs[-1])


@on_ranks(2, 3)
def test_autograd_through_functional_collectives(world):
    group = dist.group.WORLD
    source = torch.full((4,), float(world.rank + 1), requires_grad=True)
    output = funcol.all_gather_tensor_autograd(source, 0, group)
    (funcol.wait_tensor(output) * torch.arange(4.0 * world.size)).sum().backward()
    want = torch.arange(4.0 * world.size).reshape(world.size, 4)[world.rank] * world.size
    torch.testing.assert_close(source.grad, want)


@on_ranks(2)
def test_autograd_of_torch_distributed_nn(world):
    """all_gather's backward is a list all_to_all in some versions: Gloo lacks it there."""
    import torch.distributed.nn as distnn

    source = torch.full((3,), float(world.rank), requires_grad=True)
    try:
        parts = distnn.functional.all_gather(source)
        (sum(part.sum() * (index + 1) for index, part in enumerate(parts))).backward()
    except RuntimeError as error:
        if world.is_al:
            raise
        pytest.skip(f"{world.backend}: {error}")
    torch.testing.assert_close(source.grad, torch.full((3,), float(world.size * (world.rank + 1))))
    source.grad = None
    distnn.functional.all_reduce(source * 2).sum().backward()
    torch.testing.assert_close(source.grad, torch.full((3,), 2.0 * world.size))


@on_ranks(2, deadline=180)
def test_compiled_collectives(world):
    """torch.compile traces the functional collectives; aot_eager runs them without a C++ compiler."""

    def step(x):
        total = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
        gathered = funcol.all_gather_tensor(total + 1, 0, dist.group.WORLD)
        return gathered.sum() + funcol.reduce_scatter_tensor(gathered, "sum", 0, dist.group.WORLD).sum()

    x = torch.arange(4.0) + world.rank
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), step(x))


@on_ranks(2, deadline=180)
def test_compiled_legacy_collectives(world):
    """dynamo rewrites dist.all_reduce and friends to the functional ones."""

    def step(x):
        y = x * 2
        dist.all_reduce(y)
        out = torch.empty(y.numel() * world.size)
        dist.all_gather_into_tensor(out, y)
        return out + 1

    x = torch.arange(3.0) + world.rank
    want = step(x.clone())
    torch.testing.assert_close(torch.compile(step, backend="aot_eager")(x.clone()), want)


@on_ranks(2, 3)
def test_dtensor(world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world.size,))
    full = torch.arange(4.0 * 3 * world.size).reshape(4 * world.size, 3)
    sharded = distribute_tensor(full, mesh, [Shard(0)])
    assert sharded.to_local().shape == (4, 3)
    torch.testing.assert_close(sharded.full_tensor(), full)
    torch.testing.assert_close(sharded.redistribute(mesh, [Replicate()]).to_local(), full)
    columns = sharded.redistribute(mesh, [Shard(1)])  # an all_to_all
    torch.testing.assert_close(columns.full_tensor(), full)
    weight = distribute_tensor(torch.ones(3, 5), mesh, [Replicate()])
    torch.testing.assert_close((sharded @ weight).full_tensor(), full @ torch.ones(3, 5))
    partial = distribute_tensor(full, mesh, [Shard(1)]) @ distribute_tensor(
        torch.ones(3, 5), mesh, [Shard(0)]
    )
    torch.testing.assert_close(partial.full_tensor(), full @ torch.ones(3, 5))
    # Sizes that the ranks do not divide.
    uneven = distribute_tensor(torch.arange(7.0), mesh, [Shard(0)])
    torch.testing.assert_close(uneven.full_tensor(), torch.arange(7.0))


@on_ranks(2)
def test_the_profiler_shows_the_calls(world):
    from torch.profiler import profile

    x = torch.ones(4)
    with profile() as profiler:
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
        dist.send(x, 1) if world.rank == 0 else dist.recv(x, 0)
    counts = {event.key: event.count for event in profiler.key_averages()}
    assert counts["al:all_reduce"] == 2
    assert counts["al:send" if world.rank == 0 else "al:recv"] == 1


def communicated(profiler):
    """What the trace says of each call, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        trace = json.loads(file.read_text())
    return [event["args"] for event in trace["traceEvents"] if event.get("name") == "record_param_comms"]


@on_ranks(2, 3)
def test_the_profiler_shows_uneven_blocks(world):
    from torch.profiler import profile

    blocks = [torch.empty(rank + 2) for rank in range(world.size)]
    with profile() as profiler:
        dist.all_gather(blocks, torch.ones(world.rank + 2))
    (args,) = communicated(profiler)
    assert (args["In msg nelems"], args["Out msg nelems"]) == (world.rank + 2, sum(map(len, blocks)))


@on_ranks(2, 3)
def test_the_profiler_shows_what_is_communicated(world):
    """In the words that torch's own backends have for it, which tools read."""
    from torch.profiler import profile

    size = world.size
    group = dist.new_group()
    with profile() as profiler:
        dist.all_reduce(torch.ones(4), group=group)
        dist.all_gather_into_tensor(
            torch.empty(5 * size, dtype=torch.float64), torch.ones(5).double(), group=group
        )
        dist.reduce_scatter_tensor(torch.empty(6), torch.ones(6 * size), group=group)
        splits = [world.rank + 1] * size
        dist.all_to_all_single(
            torch.empty(sum(range(1, size + 1))),
            torch.ones(sum(splits)),
            list(range(1, size + 1)),
            splits,
            group=group,
        )
        if world.rank < 2:
            dist.send(torch.ones(7), 1, group=group) if world.rank == 0 else dist.recv(
                torch.ones(7), 0, group=group
            )
        dist.barrier(group)
    told = {}
    for args in communicated(profiler):
        name = args["Collective name"]
        told[name] = args["In msg nelems"], args["Out msg nelems"], args["dtype"]
        assert args["Group size"] == size and group.group_name in args["Process Group Name"], args
        if name == "all_to_all":
            assert args["In split size"] == str(splits), args
    assert told == {
        "all_reduce": (4, 4, "Float"),
        "all_gather": (5, 5 * size, "Double"),
        "reduce_scatter": (6 * size, 6, "Float"),
        "all_to_all": ((world.rank + 1) * size, size * (size + 1) // 2, "Float"),
        "barrier": told["barrier"],
        **{0: {"send": (7, 0, "Float")}, 1: {"recv": (0, 7, "Float")}}.get(world.rank, {}),
    }
