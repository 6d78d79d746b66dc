# SPDX-License-Identifier: BSD-3-Clause
"""torch's time estimates: collectives are estimated and not run, and inductor's overlap pass follows."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from harness import on_ranks

from altorch import _tuned
from altorch._extension import extension
from altorch.bench import tuning

pytestmark = pytest.mark.skipif(
    not hasattr(dist.Backend, "_start_time_estimate") and torch.__version__ < "2.15",
    reason=f"torch {torch.__version__} has time estimates for NCCL alone",
)
CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]


def microseconds(call):
    with dist._time_estimator(device=CPU) as estimate:
        call()
    return estimate.estimated_time


def works():
    """That calls run again, right."""
    x = torch.full((5,), float(dist.get_rank() + 1))
    dist.all_reduce(x)
    size = dist.get_world_size()
    assert x.tolist() == [size * (size + 1) / 2] * 5


@on_ranks(2, 3)
def test_collectives_are_estimated_and_not_run(world):
    size, n = world.size, 6 * 1024
    x, y = torch.ones(n), torch.zeros(n)
    estimates = [
        microseconds(call)
        for call in (
            lambda: dist.all_reduce(x),
            lambda: dist.broadcast(y, 1),
            lambda: dist.all_gather_into_tensor(y, x[: n // size]),
            lambda: dist.reduce_scatter_tensor(y[: n // size], x),
            lambda: dist.all_to_all_single(y, x),
            lambda: dist.gather(x[: n // size], list(y.chunk(size)) if world.rank == 0 else None, 0),
            lambda: dist.barrier(),
            lambda: dist.all_reduce(x, async_op=True).wait(),
            lambda: functional.all_reduce(x, "sum", dist.group.WORLD).sum(),
        )
    ]
    assert all(0 < each < 1e6 for each in estimates), estimates
    assert torch.equal(x, torch.ones(n)) and not y.any()
    both = microseconds(lambda: (dist.all_reduce(x), dist.barrier()))
    assert both == pytest.approx(estimates[0] + estimates[6])
    assert microseconds(lambda: dist.all_reduce(torch.ones(1 << 22))) > 10 * estimates[0]
    assert microseconds(lambda: None) == 0
    works()


@on_ranks(2)
def test_what_goes_wrong_within_an_estimate_leaves_the_group_as_it_was(world):
    class OwnError(Exception):
        pass

    def fails():
        dist.all_reduce(torch.ones(3))
        raise OwnError

    for wrong, error in (
        (fails, OwnError),
        (lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(4)), (ValueError, RuntimeError)),
        (lambda: dist.send(torch.ones(1), 1 - world.rank), NotImplementedError),
        (lambda: microseconds(fails), (ValueError, RuntimeError)),
    ):
        with pytest.raises(error):
            microseconds(wrong)
        works()
    backend = dist.group.WORLD._get_backend(CPU)
    with pytest.raises((ValueError, RuntimeError), match="start one first"):
        backend._end_time_estimate()
    works()


@on_ranks(2)
def test_times_of_a_tuned_file_come_first(world):
    default = microseconds(lambda: dist.all_reduce(torch.ones(1024)))
    extension().set_tuned_costs([(False, "all_reduce", 2, [(4096, 77.0), (8192, 99.0)])])
    try:
        assert microseconds(lambda: dist.all_reduce(torch.ones(1024))) == pytest.approx(77)
        assert microseconds(lambda: dist.all_reduce(torch.ones(2048))) == pytest.approx(99)
        assert 77 < microseconds(lambda: dist.all_reduce(torch.ones(1500))) < 99
    finally:
        extension().set_tuned_costs([])
    assert microseconds(lambda: dist.all_reduce(torch.ones(1024))) == pytest.approx(default)


@on_ranks(2)
def test_calls_of_other_threads_run(world):
    right = []

    def other():
        x = torch.full((3,), float(world.rank + 1))
        dist.all_reduce(x)
        right.append(x.tolist() == [3.0] * 3)

    thread = threading.Thread(target=other)

    def call():
        thread.start()
        thread.join()
        dist.all_reduce(torch.ones(5))

    assert microseconds(call) > 0
    assert right == [True]
    works()


@on_ranks(2)
def test_what_is_refused_outside_is_refused_within(world):
    backend = dist.group.WORLD._get_backend(CPU)
    for wrong, error, says in (
        (lambda: dist.all_reduce(torch.ones(1).expand(4)), ValueError, "all_reduce"),
        (lambda: dist.broadcast(torch.ones(1), 0, group=dist.new_group([0, 1])), None, ""),
        (lambda: dist.monitored_barrier(), NotImplementedError, "monitored_barrier"),
        (lambda: backend._start_time_estimate(), (ValueError, RuntimeError), "under way"),
    ):
        if error is None:
            wrong()
            continue
        with pytest.raises(error, match=says):
            microseconds(wrong)
        works()
    with pytest.raises((ValueError, RuntimeError), match="_time_estimator"):
        backend._start_time_estimate()
    group = dist.new_group()
    with pytest.raises(KeyError), dist._time_estimator(group, CPU):
        dist.destroy_process_group(group)
        raise KeyError
    works()


def scheduled(group, us):
    """What inductor's overlap pass makes of a graph, where an all_reduce takes so long, beside products of 1 ms."""
    from torch._inductor.fx_passes.overlap_scheduling import schedule_overlap_bucketing
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(a, b):
        total = torch.ops._c10d_functional.all_reduce(a, "sum", group)
        total = torch.ops._c10d_functional.wait_tensor(total)
        first = b @ b
        return total + 1, (first @ b) @ b

    def of_products(node, size):
        return 1.0 if node.target is torch.ops.aten.mm.default else None

    extension().set_tuned_costs([(False, "all_reduce", 2, [(8, us), (1 << 24, us)])])
    try:
        graph = make_fx(step, tracing_mode="fake")(torch.ones(64, 64), torch.ones(64, 64))
        made = schedule_overlap_bucketing(graph, custom_runtime_estimation=of_products)
    finally:
        extension().set_tuned_costs([])
    names = [str(node.target) for node in made.graph.nodes if node.op == "call_function"]
    begun = next(place for place, name in enumerate(names) if "all_reduce" in name)
    awaited = next(place for place, name in enumerate(names) if "wait_tensor" in name)
    return sum("mm" in name for name in names[begun:awaited])


@on_ranks(2)
def test_a_graph_is_scheduled_by_the_estimates(world):
    # The pass asks the group's backend of CUDA tensors; ours is the same one.
    group = dist.new_group(backend="cpu:al,cuda:al")
    overlapped = [scheduled(group.group_name, us) for us in (1.0, 1_500.0, 100_000.0)]
    assert overlapped[0] < overlapped[1] < overlapped[2], overlapped
    dist.destroy_process_group(group)


def test_the_defaults_are_those_of_the_rows(capsys):
    from benchmarks import costs

    costs.main([])
    assert capsys.readouterr().out == (ROOT / "csrc" / "select" / "default_costs.inc").read_text()


def test_a_file_has_what_was_measured():
    passes = [
        [
            {"operation": "all_reduce", "bytes": size, "contender": "al", "median_us": took}
            for size, took in ((8, first), (64, second))
        ]
        for first, second in ((4.0, 9.0), (5.0, 7.0))
    ]
    costs = tuning.costs_of(passes, {}, 2, "cpu")
    assert costs == [{"operation": "all_reduce", "device": "cpu", "ranks": 2, "us": [[8, 4.0], [64, 7.0]]}]
    engine = _tuned.costs_of(json.loads(json.dumps({"costs": costs})))
    assert engine == [(False, "all_reduce", 2, [(8, 4.0), (64, 7.0)])]
    taken = [[row | {"contender": "al:shm/areas", "median_us": 1.0} for row in passes[0]], *passes]
    assert tuning.costs_of(taken, {}, 2, "cpu") == costs
    chosen = {("all_reduce", 8): ("shm/areas", 2.0)}
    assert tuning.costs_of(taken, chosen, 2, "cpu")[0]["us"] == [[8, 1.0], [64, 7.0]]
    rows = (
        {"us": [[1]]},
        {"us": [["a", 1]]},
        {"us": [[10**30, 1]]},
        {"us": [[8, True]]},
        {"us": {"81": 1}},
        {"ranks": 10**12},
        {"operation": "\ud800"},
        {"device": []},
    )
    for wrong in (7, [7], [{}], [{"us": 7}], *([costs[0] | row] for row in rows)):
        with pytest.raises(ValueError, match=r"costs"):
            _tuned.costs_of({"costs": wrong})
    for row in (
        (False, "all_reduce", 1, [(8, 4.0)]),
        (False, "all_reduce", 2, []),
        (False, "all_reduce", 2, [(8, 4.0), (8, 5.0)]),
        (False, "all_reduce", 2, [(8, 0.0)]),
        (False, "all_reduce", 2, [(8, float("nan"))]),
        (False, "fastest", 2, [(8, 4.0)]),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            extension().set_tuned_costs([row])
