# SPDX-License-Identifier: BSD-3-Clause
"""Bad input: an error on the ranks concerned, within seconds, that names group, operation, rank, cause and remedy.

No case may hang or corrupt anything. What all ranks refuse leaves a group as it was; what only some do closes it
(docs/errors.md), so that those cases have groups of their own. The default group works on after every one of them.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
import torch
import torch.distributed as dist
from harness import on_ranks

WITHIN = 10.0  # seconds


def al_only(world):
    if not world.is_al:
        pytest.skip("what Gloo says and does here is Gloo's affair")


def expect_error(call, *patterns):
    """The error of call(), which must come soon and match every pattern; "" in patterns matches anything."""
    started = time.monotonic()
    try:
        result = call()
        if result is not None:
            result.wait()
    except Exception as error:
        text = str(error)
        seconds = time.monotonic() - started
        assert seconds < WITHIN, f"the error took {seconds:.1f} s: {text}"
        missing = [pattern for pattern in patterns if not re.search(pattern, text, re.IGNORECASE)]
        assert not missing, f"the message lacks {missing}: {text}"
        return text
    raise AssertionError("no error was raised")


def check_world(world):
    tensor = torch.ones(5)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((5,), float(world.size)))


def check_usable_or_closed(world, group):
    """After an error a group works on, or says that it is closed and what to do about it."""
    tensor = torch.ones(3)
    try:
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        assert re.search(r"destroy|new (one|group)|make a", str(error)), error
        return False
    assert torch.equal(tensor, torch.full((3,), float(world.size))), tensor
    return True


# ------------------------------------------------------------------------------ one caller alone is wrong


@on_ranks(1, 2)
def test_wrong_device(world):
    """Asked of the backend itself: torch answers for meta tensors before it reaches one."""
    al_only(world)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    tensor = torch.empty(3, device="meta")
    expect_error(lambda: backend.allreduce([tensor]), "all_reduce", "meta", r"\.cpu\(\)")
    expect_error(lambda: backend.broadcast([tensor], dist.BroadcastOptions()), "broadcast", "meta")
    check_world(world)


@on_ranks(1, 2)
@pytest.mark.parametrize("kind", ["quantized", "bits", "sparse"])
def test_types_and_layouts_that_cannot_move(world, kind):
    al_only(world)
    tensor = {
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        "bits": lambda: torch.empty(3, dtype=torch.bits8) if hasattr(torch, "bits8") else None,
        "sparse": lambda: torch.eye(3).to_sparse(),
    }[kind]()
    if tensor is None:
        pytest.skip("this torch has no such type")
    expect_error(lambda: dist.broadcast(tensor, 0), "broadcast", "sparse|type", r"convert|view|to_dense")
    check_world(world)


@on_ranks(2, 3)
def test_messages_name_group_operation_and_rank(world):
    al_only(world)
    text = expect_error(
        lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND),
        r"group '",
        "all_reduce",
        rf"rank {world.rank}",
        "BAND",
        "float32",
        "convert|another",
    )
    assert "\n" not in text.strip(), "a message is a sentence, not a stack"
    check_world(world)


@on_ranks(2)
def test_shapes_within_one_call(world):
    al_only(world)
    calls = {
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.empty(5), torch.ones(3)),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(torch.empty(3), torch.ones(5)),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4), [1, 1], [2, 2]),
    }
    for world.case, call in calls.items():
        expect_error(call, r"\d")
        check_world(world)


@on_ranks(2, 3)
def test_what_the_root_alone_can_see_closes_the_group_on_every_rank(world):
    """The others learn that their part will never come, and the root, in the next call, that they have aborted."""
    al_only(world)
    group = dist.new_group()
    blocks = [torch.ones(4)] * world.size if world.rank == 0 else None
    expect_error(lambda: dist.scatter(torch.empty(3), blocks, group=group, group_src=0), r"\d")
    for _ in range(3):
        expect_error(lambda: dist.all_reduce(torch.ones(5), group=group), "scatter", "make a new one|aborted")
    check_world(world)


@on_ranks(2)
def test_different_types_within_one_call(world):
    al_only(world)
    with pytest.raises((RuntimeError, ValueError, TypeError), match=r"(?i)type"):
        dist.all_gather_into_tensor(torch.empty(6, dtype=torch.int64), torch.ones(3))
    with pytest.raises((RuntimeError, ValueError, TypeError), match=r"(?i)type"):
        dist.all_to_all_single(torch.empty(4, dtype=torch.int32), torch.ones(4))
    check_world(world)


@on_ranks(2, 3)
def test_roots_and_peers_that_do_not_exist(world):
    al_only(world)
    for call in (
        lambda: dist.broadcast(torch.ones(2), 99),
        lambda: dist.reduce(torch.ones(2), 99),
        lambda: dist.send(torch.ones(2), 99),
        lambda: dist.recv(torch.ones(2), 99),
        lambda: dist.broadcast(torch.ones(2), group_src=99),
        lambda: dist.broadcast(torch.ones(2), group_src=-5),
        lambda: dist.send(torch.ones(2), group_dst=world.size),
    ):
        with pytest.raises((RuntimeError, ValueError), match=r"-?\d"):
            call()
    check_world(world)


@on_ranks(2)
def test_tags_out_of_range(world):
    al_only(world)
    for tag in (-7, 2**40):
        world.case = f"tag {tag}"
        with pytest.raises((RuntimeError, ValueError, OverflowError, TypeError)):
            dist.isend(torch.ones(2), 1 - world.rank, tag=tag)
    check_world(world)


@on_ranks(2)
def test_a_destroyed_group(world):
    al_only(world)
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    dist.barrier(group)
    dist.destroy_process_group(group)
    with pytest.raises((RuntimeError, ValueError, AssertionError)):
        dist.all_reduce(torch.ones(2), group=group)
    del group
    options = dist.BarrierOptions()
    with pytest.raises(RuntimeError, match=r"(?i)destroyed|closed"):
        backend.barrier(options).wait()
    check_world(world)


@on_ranks(2, 3)
def test_one_rank_refuses_and_the_others_learn_why(world):
    """A caller-side error on one rank must not leave the others waiting until the timeout."""
    al_only(world)
    group = dist.new_group()
    if world.rank == 0:
        bad = lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BXOR, group=group)  # noqa: E731
        expect_error(bad, "BXOR")
    else:
        expect_error(lambda: dist.all_reduce(torch.ones(3), group=group), "all_reduce", "rank 0")
    dist.barrier()
    check_usable_or_closed(world, group)
    check_world(world)


# ------------------------------------------------------------------------------ ranks disagree


def different(world, a, b):
    """The last rank does `b`, the others `a`."""
    return b if world.rank == world.size - 1 else a


MISMATCHES = {
    "all_reduce size": lambda w, g: dist.all_reduce(torch.ones(8 + different(w, 0, 1)), group=g),
    "all_reduce large size": lambda w, g: dist.all_reduce(
        torch.ones(2_000_000 + different(w, 0, 1)), group=g
    ),
    "all_reduce size, async": lambda w, g: dist.all_reduce(
        torch.ones(8 + different(w, 0, 1)), group=g, async_op=True
    ),
    "all_reduce zero against some": lambda w, g: dist.all_reduce(torch.ones(different(w, 0, 4)), group=g),
    "all_reduce type": lambda w, g: dist.all_reduce(
        torch.ones(8, dtype=different(w, torch.float32, torch.int32)), group=g
    ),
    "all_reduce operator": lambda w, g: dist.all_reduce(
        torch.ones(8), different(w, dist.ReduceOp.SUM, dist.ReduceOp.MAX), group=g
    ),
    "broadcast root": lambda w, g: dist.broadcast(torch.ones(8), different(w, 0, 1), group=g),
    "broadcast size": lambda w, g: dist.broadcast(torch.ones(8 + different(w, 0, 1)), 0, group=g),
    "reduce root": lambda w, g: dist.reduce(torch.ones(8), different(w, 0, 1), group=g),
    "all_gather_into_tensor size": lambda w, g: dist.all_gather_into_tensor(
        torch.empty(w.size * (8 + different(w, 0, 1))), torch.ones(8 + different(w, 0, 1)), group=g
    ),
    "reduce_scatter_tensor size": lambda w, g: dist.reduce_scatter_tensor(
        torch.empty(8 + different(w, 0, 1)), torch.ones(w.size * (8 + different(w, 0, 1))), group=g
    ),
    "all_to_all_single even size": lambda w, g: dist.all_to_all_single(
        torch.empty(w.size * (8 + different(w, 0, 1))), torch.ones(w.size * (8 + different(w, 0, 1))), group=g
    ),
    "another operation": lambda w, g: different(
        w, lambda: dist.all_reduce(torch.ones(8), group=g), lambda: dist.broadcast(torch.ones(8), 0, group=g)
    )(),
    "barrier against all_reduce": lambda w, g: different(
        w, lambda: dist.barrier(g), lambda: dist.all_reduce(torch.ones(8), group=g)
    )(),
}


def concerned(case, size):
    """The ranks that cannot get what they asked for. Senders of one-way operations may be done long before."""
    if case == "broadcast root":
        return range(size)[2:]  # with two ranks both are roots, and neither waits
    if case == "broadcast size":
        return [size - 1]
    if case == "reduce root":
        return [0]
    return range(size)


ONE_WAY = ("broadcast root", "broadcast size", "reduce root")


@on_ranks(2, 3, deadline=25)
@pytest.mark.parametrize(
    ("case", "goes_on_in"),
    [*((case, "another group") for case in MISMATCHES), *((case, "the group") for case in ONE_WAY)],
)
def test_ranks_that_disagree(world, case, goes_on_in):
    """Every rank that waits in vain gets an error that says what the others did; the job goes on.

    A rank that was done with its part (a sender) meanwhile waits in the next call, of this group or of another.
    """
    al_only(world)
    world.case = f"{case}, then {goes_on_in}"
    group = dist.new_group()
    operation = case.split()[0].replace("_into_tensor", "").replace("_tensor", "").replace("_single", "")
    wanted = [r"group '", rf"rank {world.rank}\b"]
    if case not in ("another operation", "barrier against all_reduce"):
        wanted.append(operation)
    if world.rank in concerned(case, world.size):
        expect_error(lambda: MISMATCHES[case](world, group), *wanted)
    else:
        with suppress(RuntimeError):
            if work := MISMATCHES[case](world, group):
                work.wait()
    if goes_on_in == "the group":
        with suppress(RuntimeError):  # works, or says that it cannot: the next test looks closer
            dist.all_reduce(torch.ones(4), group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    check_world(world)


@on_ranks(2, 3, deadline=25)
@pytest.mark.parametrize("case", ["all_reduce size", "all_reduce large size", "all_reduce type"])
def test_a_group_after_ranks_disagreed(world, case):
    """It works on, or every rank is told that it does not: never some waiting for the others."""
    al_only(world)
    world.case = case
    group = dist.new_group()
    expect_error(lambda: MISMATCHES[case](world, group))
    dist.barrier()
    usable = torch.tensor([float(check_usable_or_closed(world, group))])
    dist.all_reduce(usable)
    assert usable.item() in (0, world.size), "the ranks do not agree whether the group is usable"
    dist.destroy_process_group(group)


@on_ranks(2)
def test_all_to_all_splits_that_disagree(world):
    """Rank 0 sends 3 where rank 1 expects 2."""
    al_only(world)
    group = dist.new_group()
    errors = 0
    sends, takes = ([2, 3], [2, 2]) if world.rank == 0 else ([2, 2], [2, 2])
    try:
        dist.all_to_all_single(torch.empty(sum(takes)), torch.ones(sum(sends)), takes, sends, group=group)
    except RuntimeError as error:
        errors = 1
        assert "all_to_all" in str(error) and re.search(r"\d", str(error)), error
    total = torch.tensor([errors])
    dist.all_reduce(total)
    assert total.item() >= 1, "no rank noticed"
    check_usable_or_closed(world, group) if total.item() == 2 else None
    check_world(world)


@on_ranks(2, 3)
def test_a_message_larger_than_the_buffer(world):
    """The receiver is told both sizes; nothing is written beyond its buffer."""
    al_only(world)
    for small, large in ((4, 6), (4, 100_000), (30_000, 300_000)):
        world.case = f"receive {small} of {large}"
        group = dist.new_group()
        if world.rank == 0:
            guard = torch.full((small + 64,), -7.0)
            buffer = guard[:small]
            expect_error(
                lambda buffer=buffer, group=group: dist.recv(buffer, 1, group=group),
                "recv",
                "larger|long|trunc|bytes",
            )
            assert (guard[small:] == -7.0).all(), "wrote beyond the buffer"
        elif world.rank == 1:
            try:
                dist.send(torch.ones(large), 0, group=group)
            except RuntimeError as error:
                assert "send" in str(error), error
        dist.barrier()
        dist.destroy_process_group(group)
    check_world(world)


@on_ranks(2)
def test_a_message_of_another_type(world):
    """As many bytes, and other numbers; from any source too, small and large."""
    al_only(world)
    for count, source in ((2, 1), (2, None), (500_000, 1), (500_000, None)):
        world.case = f"{count} from {source}"
        group = dist.new_group()
        if world.rank == 0:
            expect_error(
                lambda count=count, source=source, group=group: dist.recv(
                    torch.zeros(count, dtype=torch.float64), source, group=group
                ),
                "recv",
                "rank 1 .*is of int64 where this rank expects float64",
            )
        else:
            try:
                dist.send(torch.ones(count, dtype=torch.int64), 0, group=group)
            except RuntimeError as error:
                assert "send" in str(error), error
        dist.barrier()
        dist.destroy_process_group(group)
    check_world(world)


@on_ranks(2)
def test_a_message_smaller_than_the_buffer(world):
    """Silently half-filled buffers are corruption: refused too."""
    al_only(world)
    group = dist.new_group()
    if world.rank == 0:
        expect_error(lambda: dist.recv(torch.zeros(10), 1, group=group), "recv", r"\d")
    else:
        dist.send(torch.ones(4), 0, group=group)
    dist.barrier()
    check_world(world)


@on_ranks(1, 2)
def test_wrong_options_type(world):
    al_only(world)
    with pytest.raises((TypeError, RuntimeError), match=r"altorch\.Options"):
        dist.new_group(pg_options=object())


@on_ranks(1, 2)
def test_classes_of_errors(world):
    """As torch's own backends have them: a wrong element type is a TypeError, a wrong root or size a ValueError."""
    al_only(world)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    wrong_root = dist.BroadcastOptions()
    wrong_root.rootRank = 99
    average = dist.AllreduceOptions()
    average.reduceOp = dist.ReduceOp.AVG
    n = world.size
    for error, call in (
        (TypeError, lambda: backend.allreduce([torch.empty(3, dtype=torch.bits8)])),
        (TypeError, lambda: backend.allreduce([torch.ones(3, dtype=torch.bool)], average)),
        (TypeError, lambda: backend._allgather_base(torch.empty(3 * n, dtype=torch.int32), torch.ones(3))),
        (
            TypeError,
            lambda: backend._reduce_scatter_base(torch.empty(3), torch.ones(3 * n, dtype=torch.int32)),
        ),
        (ValueError, lambda: backend._allgather_base(torch.empty(3 * n + 1), torch.ones(3))),
        (ValueError, lambda: backend.broadcast([torch.ones(3)], wrong_root)),
        (ValueError, lambda: backend.allreduce([torch.ones(3), torch.ones(3)])),
    ):
        with pytest.raises(error):
            call()
    check_world(world)
