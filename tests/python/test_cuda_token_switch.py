# SPDX-License-Identifier: BSD-3-Clause
"""altorch.TokenSwitch on CUDA tensors, by kernels and by torch's operators; in graphs that other routings replay."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks
from test_cuda import can_be_captured, device
from test_token_switch import ROUTINGS, TYPES, WIDTH, Case, check

import altorch

pytestmark = pytest.mark.gpu


def choose_steps(steps, monkeypatch):
    """ "torch": as where no kernel can run."""
    from altorch.token_switch import _exchange, _native, _reference

    if steps == "torch":
        monkeypatch.setattr(_exchange, "local_steps", lambda tensor: _reference)
    elif reason := _native.unsupported_reason(torch.cuda.current_device()):
        pytest.skip(reason)


@on_ranks(1, 2)
@pytest.mark.parametrize("steps", ["kernels", "torch"])
@pytest.mark.parametrize("layout", ["expert_major", "flat"])
def test_routings(world, layout, steps):
    here = device(world)
    with pytest.MonkeyPatch.context() as patch:
        choose_steps(steps, patch)
        experts = 4 * world.size
        switch = altorch.TokenSwitch(num_experts=experts, max_dispatch_tokens_per_rank=16)
        for name in ROUTINGS:
            world.case = name
            case = Case(world, name, experts, layout=layout)
            check(world, switch, case, layout, device=here)
            if steps == "torch":
                check(world, switch, case, layout, room=80, device=here)
        for dtype in TYPES:
            world.case = str(dtype)
            check(world, switch, Case(world, "random", experts, dtype, layout=layout), layout, 80, here)


@on_ranks(2)
@pytest.mark.parametrize("steps", ["kernels", "torch"])
def test_capacity(world, steps):
    here = device(world)
    with pytest.MonkeyPatch.context() as patch:
        choose_steps(steps, patch)
        switch = altorch.TokenSwitch(num_experts=4, max_dispatch_tokens_per_rank=9, capacity=3)
        for name in ("random", "one_expert", "none"):
            world.case = name
            check(world, switch, Case(world, name, 4, capacity=3), "expert_major", 6, here)


def graph_of(switch, layout, room, tokens, indices, weights, counts):
    """A captured layer, whose experts multiply by the weights, or by the number of the rank in the flat layout."""

    def layer():
        routing = switch.create_routing(indices, counts, layout=layout)
        rows, got, experts = switch.dispatch(routing, tokens, weights, room)
        made = rows * (got[:, None] if experts is None else got.sum(1, keepdim=True))
        return rows, got, switch.combine(routing, made)

    layer()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = layer()
    return graph, results


@on_ranks(2)
@pytest.mark.parametrize("steps", ["kernels", "torch"])
@pytest.mark.parametrize("layout", ["expert_major", "flat", "capacity"])
def test_a_graph_takes_other_routings(world, layout, steps):
    here, rank, room = device(world), world.rank, 40
    if not can_be_captured(world):
        pytest.skip("ranks share a GPU, on which no kernel can wait for another")
    capacity = 0 if layout != "capacity" else 3
    layout = "expert_major" if capacity else layout
    with pytest.MonkeyPatch.context() as patch:
        choose_steps(steps, patch)
        switch = altorch.TokenSwitch(num_experts=4, max_dispatch_tokens_per_rank=8, capacity=capacity or None)
        room = 2 * capacity or room
        tokens = torch.zeros(5 - rank, WIDTH, device=here)
        indices = torch.zeros(5 - rank, 2, dtype=torch.int64, device=here)
        weights = torch.zeros(5 - rank, 2, device=here)
        counts = torch.zeros(2, dtype=torch.int32, device=here)
        graph, (rows, got, total) = graph_of(switch, layout, room, tokens, indices, weights, counts)
        for turn in range(4):
            world.case = f"turn {turn}"
            if turn == 3:  # out of range: dropped
                indices.fill_(9)
                graph.replay()
                torch.cuda.synchronize()
                assert not rows.any() and not total.any() and not counts.any()
                continue
            draw = lambda experts, shape, g: torch.randint(-1, experts, shape, generator=g)  # noqa: E731
            ROUTINGS["graph"] = (lambda each: 5 - each, 2, draw)
            case = Case(world, "graph", 4, layout=layout, capacity=capacity)
            del ROUTINGS["graph"]
            for to, source in ((tokens, case.tokens), (indices, case.indices), (weights, case.weights)):
                to.copy_(source[rank])
            graph.replay()
            torch.cuda.synchronize()
            used = len(case.received[rank].rows)
            assert counts.tolist() == case.received[rank].counts
            assert rows[:used].cpu().equal(case.rows(rank)) and not rows[used:].any() and not got[used:].any()
            made = []
            for each in range(2):
                share = torch.from_numpy(case.received[each].weights).float()
                share = share if layout == "flat" else share[:, None]
                made.append(case.rows(each) * share.sum(1, keepdim=True))
            torch.testing.assert_close(total.cpu().double(), case.sums(rank, made), rtol=1e-5, atol=1e-5)


@on_ranks(2)
@pytest.mark.parametrize("steps", ["kernels", "torch"])
def test_a_graph_dispatches_by_an_eager_routing(world, steps):
    here = device(world)
    if not can_be_captured(world):
        pytest.skip("ranks share a GPU, on which no kernel can wait for another")
    with pytest.MonkeyPatch.context() as patch:
        choose_steps(steps, patch)
        switch = altorch.TokenSwitch(num_experts=4, max_dispatch_tokens_per_rank=8)
        indices = torch.tensor([[0, 3], [1, 2], [2, -1]] * (2 - world.rank), device=here)
        routing = switch.create_routing(indices)
        tokens, weights = torch.ones(len(indices), WIDTH, device=here), torch.ones(indices.shape, device=here)

        def layer():
            rows, got, _ = switch.dispatch(routing, tokens, weights, 40)
            return rows, got, switch.combine(routing, rows * got[:, None])

        layer()
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = layer()
        for turn in range(3):
            world.case = f"turn {turn}"
            tokens.normal_()
            weights.uniform_()
            graph.replay()
            torch.cuda.synchronize()
            share = (weights * (indices >= 0)).sum(1, keepdim=True)
            torch.testing.assert_close(captured[2], share * tokens, rtol=1e-5, atol=1e-5)
            for ours, eager in zip(captured, layer(), strict=True):
                assert ours.equal(eager)


@on_ranks(2)
@pytest.mark.parametrize("steps", ["kernels", "torch"])
@pytest.mark.parametrize("layout", ["expert_major", "flat"])
def test_gradients(world, layout, steps):
    """Of tokens and weights; the rows of the ranks differ in number, and results change in place."""
    here = device(world)
    with pytest.MonkeyPatch.context() as patch:
        choose_steps(steps, patch)
        switch = altorch.TokenSwitch(num_experts=2, max_dispatch_tokens_per_rank=8)
        indices = torch.tensor([[0, 1], [1, 1], [0, -1]] * (2 - world.rank), device=here)
        tokens = torch.randn(len(indices), WIDTH, device=here, requires_grad=True)
        weights = torch.rand(indices.shape, device=here, requires_grad=True)
        routing = switch.create_routing(indices, layout=layout)
        rows, got, _ = switch.dispatch(routing, tokens, weights, 40)
        share = got[:, None] if layout == "expert_major" else got.sum(1, keepdim=True)
        total = switch.combine(routing, 3 * rows * share)
        named = indices >= 0
        times = (weights * named).sum(1, keepdim=True).detach()
        torch.testing.assert_close(total, 3 * times * tokens)
        total.mul_(2).sum().backward()
        torch.testing.assert_close(tokens.grad, (6 * times).expand_as(tokens))
        torch.testing.assert_close(weights.grad, 6 * tokens.detach().sum(1, keepdim=True) * named)


@on_ranks(2)
def test_fp8(world):
    here = device(world)
    switch = altorch.TokenSwitch(num_experts=2, max_dispatch_tokens_per_rank=8)
    tokens = torch.randn(6, 256, device=here).to(torch.float8_e4m3fn)
    scales = torch.rand(6, 2, device=here)
    routing = switch.create_routing(torch.full((6, 1), world.rank, device=here))
    rows, _, _, got = switch.dispatch(routing, tokens, torch.ones(6, 1, device=here), scales=scales)
    assert rows.dtype == tokens.dtype and rows.float().equal(tokens.float()) and got.equal(scales)


@on_ranks(2)
def test_an_index_out_of_range(world):
    here = device(world)
    switch = altorch.TokenSwitch(num_experts=4, max_dispatch_tokens_per_rank=8)
    bad = torch.tensor([[0, 1], [3, 4 if world.rank else 2]], device=here)
    with pytest.raises(ValueError, match="rank 1 routes its token 1 to expert 4"):
        switch.create_routing(bad)
    check(world, switch, Case(world, "random", 4), "expert_major", device=here)


@on_ranks(1, 2)
@pytest.mark.parametrize("layout", ["expert_major", "flat"])
def test_kernels_beside_torch(world, layout):
    """Of many tokens, which are gathered part by part, and rows that are not aligned."""
    here, local = device(world), 8
    switch = altorch.TokenSwitch(num_experts=local * world.size, max_dispatch_tokens_per_rank=2048)
    for count, width, dtype in ((2048 - world.rank, 4096, torch.bfloat16), (700, 333, torch.float16)):
        world.case = f"{count} {width}"
        generator = world.generator(world.rank)
        tokens = torch.randn(count, width, generator=generator).to(here, dtype)
        indices = torch.randint(-1, local * world.size, (count, 8), generator=generator).to(here)
        weights = torch.rand(count, 8, generator=generator).to(here)
        results = []
        for steps in ("kernels", "torch"):
            with pytest.MonkeyPatch.context() as patch:
                choose_steps(steps, patch)
                counts = torch.zeros(local, dtype=torch.int32, device=here)
                routing = switch.create_routing(indices, counts, layout=layout)
                rows, got, experts = switch.dispatch(routing, tokens, weights)
                results.append((counts, rows, got, experts, switch.combine(routing, rows)))
        for ours, want in zip(*results, strict=True):
            assert (ours is None) == (want is None)
            assert ours is None or ours.equal(want)
