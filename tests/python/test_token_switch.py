# SPDX-License-Identifier: BSD-3-Clause
"""altorch.TokenSwitch against loops over the inputs of all ranks, in float64: every layout, type and error."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import switch_reference as ref
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster, on_ranks

import altorch
from altorch.token_switch import _exchange, _reference, _switch
from tests.ranks.launch import backend_under_test

WIDTH = 24
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Tokens of rank r, and experts of each token.
UNEVEN = lambda rank: 3 * rank + 2  # noqa: E731
ROUTINGS = {
    "random": (UNEVEN, 3, lambda experts, shape, g: torch.randint(-1, experts, shape, generator=g)),
    "one_expert": (lambda rank: 5, 2, lambda experts, shape, g: torch.full(shape, experts - 1)),
    "none": (lambda rank: 4, 2, lambda experts, shape, g: torch.full(shape, -1)),
    "duplicates": (
        lambda rank: 4,
        4,
        lambda experts, shape, g: (
            torch.randint(0, experts, (*shape[:1], 1), generator=g).expand(shape).clone()
        ),
    ),
    "rank_without_tokens": (
        lambda rank: 6 * (rank % 2),
        2,
        lambda experts, shape, g: torch.randint(0, experts, shape, generator=g),
    ),
    "no_tokens": (lambda rank: 0, 2, lambda experts, shape, g: torch.empty(shape, dtype=torch.int64)),
    "top_1": (UNEVEN, 1, lambda experts, shape, g: torch.randint(0, experts, shape, generator=g)),
}


class Case:
    """The inputs of all ranks, and what each rank is to receive."""

    def __init__(
        self, world, name, experts, dtype=torch.float32, layout="expert_major", capacity=0, size=None
    ):
        size = size or world.size
        count, columns, draw = ROUTINGS[name]
        self.indices, self.tokens, self.weights = [], [], []
        for rank in range(size):
            generator = world.generator(rank)
            self.indices.append(draw(experts, (count(rank), columns), generator))
            self.tokens.append(torch.randn(count(rank), WIDTH, generator=generator).to(dtype))
            self.weights.append(torch.rand(count(rank), columns, generator=generator))
        tables = [[each.numpy() for each in given] for given in (self.indices, self.weights)]
        self.received = [ref.received(*tables, rank, experts, layout, capacity) for rank in range(size)]

    def rows(self, rank):
        """What dispatch gives this rank."""
        zeros = torch.zeros(WIDTH, dtype=self.tokens[0].dtype)
        rows = [zeros if at is None else self.tokens[at[0]][at[1]] for at in self.received[rank].rows]
        return torch.stack(rows) if rows else self.tokens[0].new_zeros(0, WIDTH)

    def sums(self, rank, outputs):
        outputs = [output.double().numpy() for output in outputs]
        return torch.from_numpy(ref.combined(self.received, outputs, rank, len(self.tokens[rank])))


def output_of(rows, rank):
    """What the experts of this rank make of their rows: different for each row."""
    place = torch.arange(1, len(rows) + 1, device=rows.device, dtype=torch.float64)[:, None]
    return (rows.double() * (rank + 1) + torch.sin(place)).to(rows.dtype)


def check(world, switch, case, layout, room=None, device="cpu", group=None):
    rank = dist.get_rank(group)
    mine = case.received[rank]
    counts = torch.full((len(mine.counts) + 1,), 77, dtype=torch.int32, device=device)
    indices = case.indices[rank].to(device)
    routing = switch.create_routing(indices.int() if rank % 2 else indices, counts, layout=layout)
    assert counts.tolist() == [*mine.counts, 77]
    tokens, weights = case.tokens[rank].to(device), case.weights[rank].to(device)
    got, got_weights, got_indices = switch.dispatch(routing, tokens, weights, room)
    want, used = case.rows(rank), len(mine.rows)
    assert len(got) == (used if room is None else room)
    assert got[:used].cpu().equal(want) and not got[used:].any()
    assert np.array_equal(got_weights[:used].cpu(), mine.weights.astype(np.float32))
    assert not got_weights[used:].any()
    if layout == "flat":
        assert np.array_equal(got_indices[:used].cpu(), mine.indices) and got_indices[used:].eq(-1).all()
        assert got_indices.dtype == torch.int64
    else:
        assert got_indices is None
    outputs = [output_of(case.rows(each), each) for each in range(len(case.tokens))]
    made = torch.cat((outputs[rank].to(device), torch.full_like(got[used:], float("nan"))))
    total = switch.combine(routing, made)
    sums = case.sums(rank, outputs)
    # A rank rounds its part once, and so does each addition of a part of another rank.
    error = torch.finfo(tokens.dtype).eps * len(outputs)
    size = float(sums.abs().max()) if sums.numel() else 0.0
    assert total.dtype == tokens.dtype and total.shape == tokens.shape
    torch.testing.assert_close(total.cpu().double(), sums, rtol=error, atol=error * max(1.0, 2 * size))
    out = torch.empty_like(total)
    assert switch.combine(routing, made, out=out) is out and out.equal(total)
    given = (torch.full_like(got, 7), torch.full_like(got_weights, 7))
    given = (*given, torch.full_like(got_indices, 7) if layout == "flat" else None)
    assert switch.dispatch(routing, tokens, weights, out=given) is given
    assert given[0].equal(got) and given[1].equal(got_weights)
    assert got_indices is None or given[2].equal(got_indices)


@on_ranks(1, 3)
@pytest.mark.parametrize("layout", ["expert_major", "flat"])
def test_routings(world, layout):
    for name in ROUTINGS:
        world.case = name
        experts = 4 * world.size
        switch = altorch.TokenSwitch(num_experts=experts, max_dispatch_tokens_per_rank=16)
        check(world, switch, Case(world, name, experts, layout=layout), layout)


@on_ranks(3)
@pytest.mark.parametrize("layout", ["expert_major", "flat"])
def test_types_and_rows_behind_the_last(world, layout):
    switch = altorch.TokenSwitch(num_experts=6, max_dispatch_tokens_per_rank=8)
    for dtype in TYPES:
        world.case = str(dtype)
        check(world, switch, Case(world, "random", 6, dtype, layout=layout), layout)
        check(world, switch, Case(world, "random", 6, dtype, layout=layout), layout, room=40)


@on_ranks(3)
def test_capacity_drops_what_exceeds_it(world):
    for capacity in (1, 3, 50):
        world.case = f"capacity {capacity}"
        switch = altorch.TokenSwitch(num_experts=6, max_dispatch_tokens_per_rank=9, capacity=float(capacity))
        for name in ("random", "one_expert", "none"):
            case = Case(world, name, 6, capacity=capacity)
            check(world, switch, case, "expert_major", room=2 * capacity)


@on_ranks(3)
@pytest.mark.parametrize("captured", [False, True])
def test_the_local_steps_of_gpus_without_kernels(world, captured):
    """On CPU tensors, whose switch takes other ones. In a capture the host knows no lengths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_exchange, "local_steps", lambda tensor: _reference)
        for module in (_exchange, _switch):
            patch.setattr(module, "capturing", lambda tensor: captured)
        for layout in ("expert_major", "flat"):
            switch = altorch.TokenSwitch(num_experts=6, max_dispatch_tokens_per_rank=9)
            for name in ROUTINGS:
                world.case = f"{layout} {name}"
                case = Case(world, name, 6, layout=layout)
                check(world, switch, case, layout, room=50)
                if not captured:
                    check(world, switch, case, layout)
        switch = altorch.TokenSwitch(num_experts=6, max_dispatch_tokens_per_rank=9, capacity=2)
        case = Case(world, "random", 6, torch.bfloat16, capacity=2)
        check(world, switch, case, "expert_major", room=4)


@on_ranks(3)
def test_large_rows_are_gathered_apart(world):
    switch = altorch.TokenSwitch(num_experts=3, max_dispatch_tokens_per_rank=40)
    tokens = torch.randn(20 + world.rank, 30_000, generator=world.generator())
    indices = torch.tensor([[2, 0]]).expand(len(tokens), 2)
    routing = switch.create_routing(indices)
    rows, weights, _ = switch.dispatch(routing, tokens, torch.rand(len(tokens), 2))
    assert len(rows) == len(weights) == (0 if world.rank == 1 else 63)
    if world.rank != 1:
        begin = (0, 20, 41)[world.rank]
        assert rows[begin : begin + len(tokens)].equal(tokens)
    assert switch.combine(routing, rows).equal(2 * tokens)


@on_ranks(3)
def test_fp8_with_scales(world):
    switch = altorch.TokenSwitch(num_experts=3, max_dispatch_tokens_per_rank=16)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        world.case = str(dtype)
        case = Case(world, "random", 3)
        scales = [torch.rand(len(each), 5, generator=world.generator(7)) for each in case.tokens]
        routing = switch.create_routing(case.indices[world.rank])
        mine = case.tokens[world.rank].to(dtype)
        rows, _, _, got = switch.dispatch(routing, mine, case.weights[world.rank], scales=scales[world.rank])
        assert rows.dtype == dtype and rows.float().equal(case.rows(world.rank).to(dtype).float())
        places = case.received[world.rank].rows
        assert got.equal(torch.stack([scales[source][token] for source, token in places]))
        with pytest.raises(ValueError, match=r"expert_tokens of torch\.float8"):
            switch.combine(routing, rows)
        dist.barrier()


def dense(tokens, indices, weights, matrices):
    """What one process makes of the same tokens."""
    result = torch.zeros_like(tokens)
    for expert, matrix in enumerate(matrices):
        share = (weights.double() * (indices == expert)).sum(1, keepdim=True)
        result = result + share * torch.tanh(tokens @ matrix)
    return result


def by_switch(switch, layout, tokens, indices, weights, matrices, rank):
    local = len(matrices) // dist.get_world_size()
    counts = torch.empty(local, dtype=torch.int32)
    routing = switch.create_routing(indices, counts, layout=layout)
    rows, got, experts = switch.dispatch(routing, tokens, weights)
    mine = matrices[rank * local : (rank + 1) * local]
    if layout == "flat":
        made = torch.zeros_like(rows)
        for number, matrix in enumerate(mine):
            share = (got.double() * (experts == rank * local + number)).sum(1, keepdim=True)
            made = made + share * torch.tanh(rows @ matrix)
    else:
        parts = [torch.tanh(part @ m) for part, m in zip(rows.split(counts.tolist()), mine, strict=True)]
        made = torch.cat(parts) * got[:, None]
    return switch.combine(routing, made)


@on_ranks(1, 3)
@pytest.mark.parametrize("layout", ["expert_major", "flat"])
def test_gradients_are_those_of_a_dense_model(world, layout):
    experts, width = 2 * world.size, 6
    switch = altorch.TokenSwitch(num_experts=experts, max_dispatch_tokens_per_rank=16)
    shared = world.generator(0)
    matrices = [torch.randn(width, width, dtype=torch.float64, generator=shared) for _ in range(experts)]
    inputs = [
        torch.randn(4 + rank, width, dtype=torch.float64, generator=shared) for rank in range(world.size)
    ]
    indices = [torch.randint(-1, experts, (len(each), 3), generator=shared) for each in inputs]
    weights = [torch.rand(len(each), 3, generator=shared) for each in inputs]
    leaves_of = lambda tensors: [each.clone().requires_grad_() for each in tensors]  # noqa: E731
    wanted = [leaves_of(each) for each in (inputs, weights, matrices)]
    outs = [dense(*each, wanted[2]) for each in zip(wanted[0], indices, wanted[1], strict=True)]
    sum(out.square().sum() for out in outs).backward()
    for of_tokens in (True, False):
        mine, shares = leaves_of((inputs[world.rank], weights[world.rank]))
        leaves = leaves_of(matrices)
        mine.requires_grad_(of_tokens)
        out = by_switch(switch, layout, mine, indices[world.rank], shares, leaves, world.rank)
        torch.testing.assert_close(out, outs[world.rank])
        out.square().sum().backward()
        if of_tokens:
            torch.testing.assert_close(mine.grad, wanted[0][world.rank].grad)
        torch.testing.assert_close(shares.grad, wanted[1][world.rank].grad)
        for expert in range(2 * world.rank, 2 * world.rank + 2):
            torch.testing.assert_close(leaves[expert].grad, wanted[2][expert].grad)


@on_ranks(2)
def test_weights_of_unused_rows_have_no_gradient(world):
    """A capacity drops the second token for each expert, and leaves rows of others unused."""
    switch = altorch.TokenSwitch(num_experts=4, max_dispatch_tokens_per_rank=4, capacity=1)
    indices = torch.tensor([[0, 3], [0, -1]]) if world.rank == 0 else torch.tensor([[1, 3]])
    weights = torch.ones(indices.shape, requires_grad=True)
    routing = switch.create_routing(indices)
    rows, got, _ = switch.dispatch(routing, torch.ones(len(indices), 5), weights)
    assert got.requires_grad and not rows.requires_grad
    grad = torch.autograd.grad(got.square().sum(), weights, create_graph=True)[0]
    assert grad.tolist() == ([[2, 2], [0, 0]] if world.rank == 0 else [[2, 0]])
    assert torch.autograd.grad(grad.sum(), weights)[0].equal(grad)


@on_ranks(3)
def test_gradients_and_rows_with_strides(world):
    """The gradient of a sum is one number for all elements."""
    switch = altorch.TokenSwitch(num_experts=3, max_dispatch_tokens_per_rank=4)
    tokens = torch.ones(4, 3, requires_grad=True)
    indices = torch.tensor([[0, 1], [1, 1], [2, -1], [-1, -1]])
    routing = switch.create_routing(indices)
    rows, _, _ = switch.dispatch(routing, tokens, torch.ones(4, 2))
    rows.sum().backward()
    assert tokens.grad.equal((indices >= 0).sum(1, keepdim=True).expand(4, 3).float())
    wide = torch.arange(8.0 * len(rows)).view(len(rows), 8)
    for made in (wide[:, ::2], wide[:, 4:], wide.T.contiguous().T):
        assert switch.combine(routing, made).equal(switch.combine(routing, made.contiguous()))
        made = made.clone().requires_grad_()
        switch.combine(routing, made).sum().backward()
        assert made.grad.eq(1).all()
    across = torch.empty(3, 4).T
    assert switch.combine(routing, rows.detach(), out=across) is across
    assert across.equal(switch.combine(routing, rows.detach()))
    out = (torch.empty(3, len(rows)).T, torch.empty(2 * len(rows))[::2], None)
    switch.dispatch(routing, tokens.detach().T.contiguous().T, torch.ones(4, 2), out=out)
    assert out[0].equal(rows) and out[1].eq(1).all()


@on_ranks(3)
def test_results_with_gradients_change_in_place(world):
    switch = altorch.TokenSwitch(num_experts=3, max_dispatch_tokens_per_rank=8)
    tokens = torch.randn(4 + world.rank, 5, requires_grad=True)
    routing = switch.create_routing(torch.zeros(len(tokens), 1, dtype=torch.int64))
    rows, weights, _ = switch.dispatch(routing, tokens, torch.ones(len(tokens), 1))
    result = switch.combine(routing, rows.mul_(2)).add_(tokens)
    torch.testing.assert_close(result, 3 * tokens)
    result.sum().backward()
    assert tokens.grad.eq(3).all() and weights.add_(1).eq(2).all()


def raises_everywhere(world, match, switch, indices, **arguments):
    with pytest.raises(ValueError, match=match) as caught:
        switch.create_routing(indices, **arguments)
    told = [None] * world.size
    dist.all_gather_object(told, str(caught.value))
    assert len(set(told)) == 1, told
    check(world, switch, Case(world, "random", switch._config.experts), "expert_major")  # later calls work


@on_ranks(3)
def test_errors_are_the_same_on_all_ranks(world):
    switch = altorch.TokenSwitch(num_experts=6, max_dispatch_tokens_per_rank=9)
    good = torch.zeros(4, 3, dtype=torch.int64)
    odd = world.rank == 1

    def with_index(value):
        bad = good.clone()
        bad[2, 1] = value
        return bad if odd else good

    for value, told in ((6, "6"), (-2, "-2"), (2**40, "2147483647")):
        world.case = f"index {value}"
        raises_everywhere(
            world, rf"rank 1 routes its token 2 to expert {told} \(column 1", switch, with_index(value)
        )
    world.case = "columns"
    raises_everywhere(world, "rank 1 has 2 experts of a token", switch, good[:, :2] if odd else good)
    world.case = "rows"
    many = torch.zeros(10, 3, dtype=torch.int64)
    raises_everywhere(world, "rank 1 passed topk_idx with 10 rows, more than", switch, many if odd else good)
    world.case = "type"
    raises_everywhere(world, "rank 1 passed topk_idx of another type", switch, good.float() if odd else good)
    world.case = "shape"
    raises_everywhere(world, "rank 1 passed topk_idx of another shape", switch, good[0] if odd else good)
    world.case = "counts"
    short = torch.zeros(1 if odd else 2, dtype=torch.int32)
    raises_everywhere(world, "2 local experts", switch, good, per_expert_token_counts=short)
    world.case = "layout"
    raises_everywhere(world, "rank 1 asked for another layout", switch, good, layout="x" if odd else "flat")
    with pytest.raises(
        ValueError, match="num_experts = 7 must be a positive multiple of the group's 3 ranks"
    ):
        altorch.TokenSwitch(num_experts=7, max_dispatch_tokens_per_rank=9)
    with pytest.raises(ValueError, match=r"capacity = 2\.5 must be a positive integer"):
        altorch.TokenSwitch(None, 6, 9, capacity=2.5)
    different = altorch.TokenSwitch(num_experts=6, max_dispatch_tokens_per_rank=9 - odd)
    with pytest.raises(ValueError, match="rank 1 has 8 max_dispatch_tokens_per_rank, and rank 0 has 9"):
        different.create_routing(good)
    different = altorch.TokenSwitch(None, 6, 9, max_recv_tokens_per_rank=40 if odd else None)
    with pytest.raises(ValueError, match="rank 1 has 40 max_recv_tokens_per_rank, and rank 0 has 0"):
        different.create_routing(good)
    few = altorch.TokenSwitch(num_experts=6, max_dispatch_tokens_per_rank=9, capacity=2)
    with pytest.raises(ValueError, match="flat layout of a switch with a capacity"):
        few.create_routing(good, layout="flat")


@on_ranks(2)
def test_a_routing_is_of_its_switch(world):
    switch, other = (altorch.TokenSwitch(None, 2, 4, capacity=each) for each in (None, 1))
    routing = switch.create_routing(torch.zeros(3, 1, dtype=torch.int64))
    tokens = torch.randn(3, 5)
    with pytest.raises(ValueError, match="dispatch: the routing is of another switch"):
        other.dispatch(routing, tokens, torch.ones(3, 1))
    rows, _, _ = switch.dispatch(routing, tokens, torch.ones(3, 1))
    with pytest.raises(ValueError, match="combine: the routing is of another switch"):
        other.combine(routing, rows)
    assert switch.combine(routing, rows).equal(tokens)


@on_ranks(3)
def test_more_rows_than_asked_for_raise_on_all_ranks(world):
    switch = altorch.TokenSwitch(num_experts=3, max_dispatch_tokens_per_rank=9)
    routing = switch.create_routing(torch.ones(5, 2, dtype=torch.int64))
    tokens, weights = torch.ones(5, WIDTH), torch.ones(5, 2)
    with pytest.raises(ValueError, match=r"rank 1 receives 30 rows.*pass max_recv_tokens=30 or more"):
        switch.dispatch(routing, tokens, weights, 29)
    rows, _, _ = switch.dispatch(routing, tokens, weights, 30)
    assert rows.sum() == (30 * WIDTH if world.rank == 1 else 0)
    with pytest.raises(ValueError, match=r"topk_weights of torch\.float64"):
        switch.dispatch(routing, tokens, weights.double())
    with pytest.raises(ValueError, match="tokens of shape"):
        switch.dispatch(routing, tokens[:3], weights)
    if world.rank == 1:
        with pytest.raises(ValueError, match="3 rows, and dispatch has given 30"):
            switch.combine(routing, rows[:3])
    assert switch.combine(routing, rows).eq(2).all()


@on_ranks(2)
def test_tensors_for_results_that_do_not_fit(world):
    """All ranks pass them, and refuse before they exchange anything."""
    switch = altorch.TokenSwitch(num_experts=2, max_dispatch_tokens_per_rank=4)
    routing = switch.create_routing(torch.zeros(4, 1, dtype=torch.int64))
    tokens, weights = torch.randn(4, 8), torch.ones(4, 1)
    rows, found = torch.empty(8, 8), torch.empty(8)
    for out, match in (
        ((rows, found), "out must be"),
        ((rows[:, :4], found, None), "out for tokens is"),
        ((rows, found.double(), None), "out for topk_weights is"),
        ((rows, found, torch.empty(8, dtype=torch.int64)), "no topk_idx in expert_major"),
    ):
        with pytest.raises(ValueError, match=match):
            switch.dispatch(routing, tokens, weights, out=out)
    switch.dispatch(routing, tokens, weights, out=(rows, found, None))
    with pytest.raises(ValueError, match="out for the result is"):
        switch.combine(routing, rows, out=torch.empty(8, 4))
    assert switch.combine(routing, rows).equal(tokens)


@on_ranks(3)
def test_the_number_of_columns_may_change(world):
    switch = altorch.TokenSwitch(num_experts=6, max_dispatch_tokens_per_rank=16)
    for name in ("random", "top_1", "duplicates", "random"):
        world.case = name
        check(world, switch, Case(world, name, 6), "expert_major")


@on_ranks(3)
def test_groups_of_other_backends_and_of_some_ranks(world):
    group = dist.new_group(backend="gloo")
    switch = altorch.TokenSwitch(group, 6, 16)
    for dtype in (torch.float32, torch.bfloat16):
        check(world, switch, Case(world, "random", 6, dtype), "expert_major", group=group)
    some = dist.new_group([0, 2])
    if world.rank != 1:
        switch = altorch.TokenSwitch(process_group=some, num_experts=4, max_dispatch_tokens_per_rank=16)
        case = Case(world, "random", 4, layout="flat", size=2)
        check(world, switch, case, "flat", group=some)
        bad = torch.tensor([[0], [4 if world.rank == 2 else 1]])
        with pytest.raises(ValueError, match="rank 2 routes its token 1 to expert 4"):
            switch.create_routing(bad)
    else:
        with pytest.raises(ValueError, match="not part of the group"):
            altorch.TokenSwitch(some, 4, 16)
    dist.barrier()


@on_ranks(2)
def test_two_threads_have_a_switch_each(world):
    groups = [dist.new_group() for _ in range(2)]

    def train(number):
        generator = world.generator(10 * number + world.rank)
        switch = altorch.TokenSwitch(groups[number], 4, 16)
        for _ in range(20):
            tokens = torch.randn(8 + number, 6, generator=generator, requires_grad=True)
            routing = switch.create_routing(torch.randint(0, 4, (8 + number, 3), generator=generator))
            rows, _, _ = switch.dispatch(routing, tokens, torch.ones(8 + number, 3))
            total = switch.combine(routing, rows**2)
            torch.testing.assert_close(total, 3 * tokens**2)
            total.sum().backward()
            torch.testing.assert_close(tokens.grad, 6 * tokens)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(train, range(2)))


@on_ranks(1)
def test_indices_that_were_not_gathered_are_no_indices(world):
    """On a GPU a call that fails leaves marks, and the next one raises."""
    switch = altorch.TokenSwitch(num_experts=2, max_dispatch_tokens_per_rank=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_gather_into_tensor", lambda to, *_, **__: to.fill_(-(2**31)))
        with pytest.raises(RuntimeError, match="the indices of all ranks were not gathered"):
            switch.create_routing(torch.zeros(4, 1, dtype=torch.int64))


CALLS = ("create_routing", "dispatch", "combine")


def meet_deaths(world):
    """Each call in a group of its own, whose last rank dies before it."""
    groups = {name: [0, 1, victim] for victim, name in enumerate(CALLS, 2)}
    made = {name: dist.new_group(ranks) for name, ranks in groups.items()}
    calls = {name: calls_of(made[name]) for name, ranks in groups.items() if world.rank in ranks}
    dist.barrier()
    if world.rank > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told = []
    for name in CALLS:
        started = time.monotonic()
        with pytest.raises(RuntimeError) as caught:
            calls[name][name]()
        told.append((str(caught.value), time.monotonic() - started))
    return told


def calls_of(group):
    """What works until a rank dies."""
    switch = altorch.TokenSwitch(group, 3, 4)
    tokens, weights = torch.ones(4, 5), torch.ones(4, 2)
    indices = torch.tensor([[0, 2]]).expand(4, 2)
    routing = switch.create_routing(indices)
    rows, _, _ = switch.dispatch(routing, tokens, weights)
    switch.combine(routing, rows)
    return {
        "create_routing": lambda: switch.create_routing(indices),
        "dispatch": lambda: switch.dispatch(routing, tokens, weights),
        "combine": lambda: switch.combine(routing, rows),
    }


def test_a_rank_that_dies_is_named_by_every_call():
    if backend_under_test() != "al":
        pytest.skip("Gloo does not say which rank has died")
    with Cluster(5, launcher="plain") as cluster:
        outcomes = cluster.run(meet_deaths, deadline=60)
    assert [outcome.status for outcome in outcomes] == ["ok"] * 2 + ["died"] * 3, [
        each.report() for each in outcomes
    ]
    for outcome in outcomes[:2]:
        for victim, (message, seconds) in enumerate(outcome.value, 2):
            assert f"rank {victim} is lost" in message and seconds < 5 * PATIENCE, outcome.value


def test_torch_knows_it_as_its_own():
    interface = pytest.importorskip("torch.distributed._token_switch")
    assert issubclass(altorch.TokenSwitch, interface.TokenSwitch)
    assert not altorch.TokenSwitch.__abstractmethods__
