# SPDX-License-Identifier: BSD-3-Clause
"""altorch.objects: torch's calls for objects, in one collective where they are small."""

from __future__ import annotations

import enum
import functools
import math
import pickle
import random
import time
import warnings
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Cluster, on_ranks
from test_nodes import CARRIERS, env_of

from altorch import objects
from altorch.objects import _exchange, _pickling, _rebuilding

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "objects"


@dataclass
class Plan:
    """An object of a class of ours."""

    name: str
    sizes: list[int]
    weight: torch.Tensor


def things(rank, size):
    """Objects of many kinds, small and large, by rank: equal on all ranks that build them."""
    draw = random.Random(size)
    state = torch.Generator().manual_seed(size)
    shared = torch.randn(40_000, generator=state)
    return {
        "none": None,
        "number": rank * 7,
        "text": "x" * draw.randrange(5000),
        "empty": [],
        "nested": {"deep": [{"er": (rank, [rank] * 3)}]},
        "entries": {f"key {i}": i * rank for i in range(10_000)},
        "array": np.arange(100_000 + rank, dtype=np.float64),
        "strided": np.arange(1000).reshape(50, 20).T[::2],
        "small tensor": torch.full((3, 5), float(rank)),
        "large tensor": torch.full((300, 333 + rank), rank + 0.5, dtype=torch.bfloat16),
        "views": [shared[:30_000], shared[10_000:]],
        "transposed": torch.arange(100_000).reshape(1000, 100).t(),
        "no elements": torch.empty(0, 4),
        "parameter": torch.nn.Parameter(torch.full((70_000,), float(rank))),
        "bytes": bytes([rank % 256]) * 100_000,
        "plan": Plan("p", [rank] * 5, torch.full((20_000,), rank, dtype=torch.int16)),
        "ordered": OrderedDict(a=rank, b=torch.ones(2)),
    }


def same(one, other):
    """Whether they are equal, of the same types, with the same bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == other.dtype and one.requires_grad == other.requires_grad and torch.equal(one, other)
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Plan):
        return same(vars(one), vars(other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@on_ranks(1, 2, 3, 4)
def test_all_gather(world):
    for name in things(0, world.size):
        world.case = name
        found = [None] * world.size
        objects.all_gather_object(found, things(world.rank, world.size)[name])
        assert same(found, [things(rank, world.size)[name] for rank in range(world.size)])


@on_ranks(1, 3)
def test_gather_to_each_rank(world):
    for root in range(world.size):
        for name in ("number", "array", "views", "large tensor", "bytes"):
            found = [None] * world.size if world.rank == root else None
            objects.gather_object(things(world.rank, world.size)[name], found, dst=root)
            if world.rank == root:
                assert same(found, [things(rank, world.size)[name] for rank in range(world.size)])


@on_ranks(1, 3)
def test_broadcast_and_scatter_from_each_rank(world):
    for root in range(world.size):
        whole = things(root, world.size)
        found = list(whole.values()) if world.rank == root else [None] * len(whole)
        objects.broadcast_object_list(found, src=root)
        assert same(found, list(whole.values()))
        for name in ("number", "array", "views", "bytes", "entries"):
            out = ["not yet", "untouched"]
            sent = (
                [things(rank, world.size)[name] for rank in range(world.size)] if world.rank == root else None
            )
            objects.scatter_object_list(out, sent, src=root)
            assert same(out, [things(world.rank, world.size)[name], "untouched"])


@on_ranks(2, 3)
def test_send_and_receive(world):
    following, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    whole = list(things(world.rank, world.size).values())
    for source in (before, None):
        found = [None] * len(whole)
        if world.rank == 0:
            objects.send_object_list(whole, dst=following)
            sender = objects.recv_object_list(found, src=source)
        else:
            sender = objects.recv_object_list(found, src=source)
            objects.send_object_list(whole, dst=following)
        assert sender == before and same(found, list(things(before, world.size).values()))
        dist.barrier()


@on_ranks(4)
def test_a_group_of_some_ranks(world):
    group = dist.new_group([3, 1])
    if world.rank in (1, 3):
        found = [None] * 2
        objects.all_gather_object(found, f"rank {world.rank}", group=group)
        assert found == [f"rank {rank}" for rank in dist.get_process_group_ranks(group)]
        gathered = [None] * 2 if world.rank == 1 else None
        objects.gather_object(world.rank, gathered, dst=1, group=group)
        assert gathered in (None, dist.get_process_group_ranks(group))
        one = [world.rank] if world.rank == 3 else [None]
        objects.broadcast_object_list(one, group=group, group_src=dist.get_group_rank(group, 3))
        assert one == [3]
    else:
        objects.all_gather_object([], 0, group=group)  # torch warns, and returns


@on_ranks(3)
def test_views_share_memory_where_they_arrive(world):
    found = [None] * world.size
    whole = torch.arange(100_000, dtype=torch.float32)
    objects.all_gather_object(found, {"first": whole[:60_000], "last": whole[50_000:], "all": whole})
    for each in found:
        each["all"][55_000] = -1
        assert each["first"][55_000] == -1 and each["last"][5_000] == -1
    assert whole[55_000] == 55_000  # a rank's own object is a copy, too


class Unpicklable:
    def __reduce__(self):
        raise TypeError("this cannot travel")


@on_ranks(3)
def test_what_cannot_be_pickled_raises_on_all_ranks(world):
    odd = world.rank == 1
    bad = {"model": [1, {"hook": Unpicklable()}]}
    calls = [
        lambda: objects.all_gather_object([None] * 3, bad if odd else "fine"),
        lambda: objects.gather_object(bad if odd else 1, [None] * 3 if world.rank == 2 else None, dst=2),
        lambda: objects.broadcast_object_list(["a", bad] if odd else [None] * 2, src=1),
        lambda: objects.scatter_object_list([None], ["a", bad, "c"] if odd else None, src=1),
    ]
    for call in calls:
        with pytest.raises(pickle.PicklingError) as raised:
            call()
        text = str(raised.value)
        assert "rank 1 of the group" in text and "Unpicklable" in text and "this cannot travel" in text, text
        assert "['model'][1]['hook']" in text, text
        found = [None] * 3
        objects.all_gather_object(found, world.rank)  # the group goes on
        assert found == [0, 1, 2]
    if odd:
        with pytest.raises(pickle.PicklingError):
            objects.send_object_list([bad], dst=0)
    elif world.rank == 0:
        with pytest.raises(pickle.PicklingError, match="rank 1"):
            objects.recv_object_list([None], src=1)


class Leaves:
    def __reduce__(self):
        raise KeyboardInterrupt


@on_ranks(2)
def test_what_is_no_exception_raises_as_it_is_on_its_rank(world):
    with pytest.raises(KeyboardInterrupt if world.rank == 1 else pickle.PicklingError):
        objects.all_gather_object([None] * 2, [Leaves()] if world.rank == 1 else 1)
    with pytest.raises(pickle.PicklingError, match="udcff"):
        objects.broadcast_object_list([None, Unnamed()] if world.rank == 1 else [None] * 2, src=1)


class Unnamed:
    def __reduce__(self):
        raise OSError(2, "a lone surrogate", "\udcff")


@on_ranks(3)
def test_bad_lists_raise_on_all_ranks(world):
    odd = world.rank == 2
    for bad in ([None] * 2, None, 5):
        with pytest.raises(pickle.PicklingError, match="rank 2 of the group"):
            objects.all_gather_object(bad if odd else [None] * 3, 1)
        with pytest.raises(pickle.PicklingError, match="rank 2 of the group"):
            objects.gather_object(1, bad if odd else None, dst=2)
    with pytest.raises(pickle.PicklingError, match=r"rank 0 of the group .*has 4 entries"):
        objects.scatter_object_list([None], [1, 2, 3, 4] if world.rank == 0 else None)
    with pytest.raises(RuntimeError, match="called"):
        if odd:
            objects.gather_object(1, None, dst=0)
        else:
            objects.all_gather_object([None] * 3, 1)
    if world.rank == 0:
        objects.broadcast_object_list([1, 2])
    else:
        with pytest.raises(ValueError, match="sent 2"):
            objects.broadcast_object_list([None])
    for bad in (-1, 3):
        with pytest.raises(ValueError, match="is no rank of the group"):
            objects.gather_object(1, None, group_dst=bad)
    with pytest.raises(ValueError, match="itself"):
        objects.send_object_list([1], dst=world.rank)
    with pytest.raises(ValueError, match="give the rank"):
        objects.send_object_list([1])
    found = [None] * 5  # more than enough is enough, as for torch
    objects.all_gather_object(found, world.rank)
    assert found == [0, 1, 2, None, None]


@on_ranks(3)
def test_what_arrives_is_independent_where_it_was(world):
    shared = [1, 2]
    found = [shared, shared] if world.rank == 0 else [None] * 2
    objects.broadcast_object_list(found)
    found[0].append(3)
    assert found[1] == ([1, 2, 3] if world.rank == 0 else [1, 2])  # torch sends each entry by itself
    gathered = [None] * 3
    objects.all_gather_object(gathered, [torch.empty(0), torch.empty(0), torch.empty(4, 0)])
    first, second, third = gathered[1]
    first.resize_(3).fill_(1)
    second.resize_(3).fill_(2)
    assert first.tolist() == [1, 1, 1] and third.shape == (4, 0)


@on_ranks(3)
def test_many_buffers_and_odd_sizes(world):
    """More arrays than a header has places for, and sizes that leave what follows them unaligned."""
    found = [None] * 3
    mine = [np.full(70_001 + place + world.rank, place, np.uint8) for place in range(250)]
    mine += [np.arange(70_000, dtype=np.float64) * world.rank, torch.arange(80_001, dtype=torch.float64)]
    objects.all_gather_object(found, mine, allow=[])
    for rank, arrived in enumerate(found):
        assert [len(each) for each in arrived[:250]] == [70_001 + place + rank for place in range(250)]
        assert all(each[0] == each[-1] == place for place, each in enumerate(arrived[:250]))
        assert np.array_equal(arrived[250], np.arange(70_000) * rank) and arrived[250].flags.aligned
        assert arrived[251].data_ptr() % 8 == 0 and arrived[251][-1] == 80_000
        arrived[250][0] = 5  # writable
    readonly = np.arange(20_000)
    readonly.flags.writeable = False
    odd = [np.array(3.5), np.zeros((0, 3)), np.asfortranarray(np.arange(40_000).reshape(200, 200)), readonly]
    odd += [
        np.array(["a", "bc"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.arange(9_000, dtype=">i8"),
        np.float32(2),
    ]
    odd += [np.array([1, "x"], object), np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])]
    objects.all_gather_object(found, odd)
    assert all(same(one, other) for each in found for one, other in zip(each, odd, strict=True))


@on_ranks(2)
def test_allow_names_what_may_arrive(world):
    plain = {
        "a": [1, 2.5, "x", b"y", None, True, (1, {2})],
        "t": torch.ones(3, dtype=torch.int8),
        "l": torch.ones(70_000),
    }
    found = [None] * 2
    objects.all_gather_object(found, plain, allow=[])
    assert same(found[1 - world.rank], plain)
    objects.all_gather_object(found, Plan("p", [1], torch.ones(2)), allow=[Plan])
    assert isinstance(found[1 - world.rank], Plan)
    for value, name in (
        (Plan("p", [], torch.ones(1)), "Plan"),
        (math.sqrt, "sqrt"),
        (OrderedDict(), "OrderedDict"),
    ):
        with pytest.raises(pickle.UnpicklingError, match=rf"rank 0 of the group was refused.*{name}"):
            objects.all_gather_object(found, value, allow=["builtins.print"])
    for allow in ("builtins.print", 5):
        with pytest.raises(pickle.PicklingError, match=r"allow=|iterable"):
            objects.all_gather_object(found, 1, allow=allow)
    objects.all_gather_object(found, Plan("p", [1], torch.ones(2)), allow=(each for each in [Plan]))
    assert all(isinstance(each, Plan) for each in found)
    objects.broadcast_object_list(found := [plain, 1], allow=[])
    assert same(found, [plain, 1])
    with pytest.raises(ValueError, match="not both"):
        objects.all_gather_object(found, 1, weights_only=True, allow=[])


def test_a_pickle_changes_no_class_that_allow_names():
    name = f"{Plan.__module__}.{Plan.__qualname__}"
    hostile = f"c{Plan.__module__}\n{Plan.__qualname__}\n".encode() + b"(N}S'sizes'\nI1\nstb."
    with pytest.raises(pickle.UnpicklingError, match="state"):
        _pickling.unpack(memoryview(hostile), [], frozenset([name]))


class Colour(enum.Enum):
    RED = 1


def give(value):
    return value


def through(value, allow=None):
    packed = _pickling.pack(value)
    buffers = [memoryview(bytearray(each)) for each in packed.large]
    return _pickling.unpack(packed.stream, buffers, _rebuilding.names_of(allow))


HOSTILE = {
    "the name that is checked is imported": (
        b"ccommands\ngetoutput\n(Vecho\ntR.",
        ["commands.getoutput"],
        "commands",
    ),
    "no extension of copyreg": (b"\x80\x02\x82\x77.", [], "copyreg"),
    "no change of an enum": (
        f"c{__name__}\nColour\n(I1\ntR}}S'_value_'\nI99\nsb.".encode(),
        [Colour],
        "state",
    ),
    "no change of what it names": (
        f"c{__name__}\ngive\n}}S'x'\nI5\nsb.".encode(),
        [give, "builtins.function"],
        "state",
    ),
    "no torch.load without limits": (
        b"ctorch.storage\n_load_from_bytes\n(Vx\ntR.",
        ["torch.storage._load_from_bytes"],
        "any code",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused(name):
    stream, allow, reason = HOSTILE[name]
    with pytest.raises((pickle.UnpicklingError, ModuleNotFoundError), match=reason):
        _pickling.unpack(memoryview(stream), [], _rebuilding.names_of(allow))
    assert Colour.RED.value == 1 and not hasattr(give, "x")


def test_what_allow_names_arrives_as_it_is():
    assert through([give], [give])[0] is give
    functions = ["torch._utils._rebuild_tensor_v2", OrderedDict]
    part = torch.full((20_000,), 2.0, requires_grad=True) * 3
    arrived = through(part, functions)
    assert torch.equal(arrived, part) and arrived.requires_grad
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated
        quantized = torch.quantize_per_tensor(torch.ones(70_000), 0.1, 3, torch.qint8)
    names = ["torch._utils._rebuild_qtensor", "torch.per_tensor_affine", OrderedDict]
    assert torch.equal(through(quantized, names).int_repr(), quantized.int_repr())
    for wrong in (5, None, functools.partial(int)):
        with pytest.raises(TypeError, match="allow= names"):
            _rebuilding.names_of([wrong])


def test_types_that_no_name_describes_go_as_pickles():
    field = through(np.zeros(4, [("name", "S0"), ("v", "i4")])["name"])
    assert field.dtype.itemsize == 0 and field.tolist() == [b""] * 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a prototype
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert [each.tolist() for each in through(nested).unbind()] == [[1.0] * 2, [1.0] * 3]


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no repr")


def test_the_reason_survives_a_key_that_cannot_be_shown():
    with pytest.raises(_pickling.Unsendable, match=r"lambda.*obj\[a Unshowable\]"):
        _pickling.pack({Unshowable(): lambda: 0})


def installed_is_torchs(world):
    assert dist.all_gather_object is objects.all_gather_object
    found = [None] * world.size
    dist.all_gather_object(found, {"rank": world.rank})
    assert found == [{"rank": rank} for rank in range(world.size)]
    routes = {(row["operation"], row["count"]) for row in __import__("altorch").stats()}
    assert ("all_gather", 1) in routes, routes  # torch's own makes two calls
    other = dist.new_group(backend="gloo")
    dist.all_gather_object(found, world.rank, group=other)
    assert found == list(range(world.size))
    objects.uninstall()
    assert dist.all_gather_object is not objects.all_gather_object
    objects.install()


def test_the_setting_puts_them_behind_torchs_names():
    with Cluster(2, launcher="plain", env={"ALTORCH_OBJECTS": "1"}) as cluster:
        cluster.check(installed_is_torchs)


def move_many(world):
    for name in ("number", "entries", "array", "views", "plan"):
        found = [None] * world.size
        objects.all_gather_object(found, things(world.rank, world.size)[name])
        assert same(found, [things(rank, world.size)[name] for rank in range(world.size)])
        objects.scatter_object_list(found, found if world.rank == 1 else None, src=1)
        assert same(found[0], things(world.rank, world.size)[name])
        objects.gather_object(found[0], found if world.rank == 2 else None, dst=2)
        one = found[:1] if world.rank == 2 else [None]
        objects.broadcast_object_list(one, src=2)
        assert same(one, [things(0, world.size)[name]])


@CARRIERS
@pytest.mark.parametrize("nodes", [1, 2])
def test_by_messages_and_between_nodes(carrier, nodes):
    env = env_of(carrier, nodes) | ({"ALTORCH_SHM_BYTES": "0"} if nodes == 1 else {})
    with Cluster(4, launcher="plain", env=env) as cluster:
        cluster.check(move_many, deadline=60)


def more_than_two_gib(world):
    size = (1 << 31) + 17
    mine = np.full(size, world.rank + 1, np.uint8) if world.rank == 1 else "small"
    found = [None] * 2
    objects.all_gather_object(found, mine)
    assert found[0] == "small" and len(found[1]) == size and found[1][0] == found[1][-1] == 2
    whole = [found[1]] if world.rank == 1 else [None]
    found = None
    objects.broadcast_object_list(whole, src=1)
    assert len(whole[0]) == size and whole[0][-1] == 2
    out = [None]
    objects.scatter_object_list(out, [whole[0], b"x" * size] if world.rank == 1 else None, src=1)
    assert len(out[0]) == size and out[0][-1] == (2 if world.rank == 0 else ord("x"))


@pytest.mark.large
def test_sizes_beyond_two_gib():
    with Cluster(2, launcher="plain") as cluster:
        cluster.check(more_than_two_gib, deadline=200)


def meet(world):
    objects.all_gather_object([None] * world.size, "here")


def until_a_peer_dies(world):
    found = [None] * world.size
    while True:
        began = time.monotonic()
        try:
            objects.all_gather_object(found, np.zeros(1 << 20))
        except Exception as error:
            return time.monotonic() - began, str(error)


def test_a_dead_rank_raises_within_seconds():
    with Cluster(3, launcher="plain") as cluster:
        cluster.check(meet)

        def kill():
            time.sleep(1)
            cluster.kill(1)

        outcomes = cluster.run(until_a_peer_dies, before_wait=kill)
        for rank in (0, 2):
            assert outcomes[rank].status == "ok", outcomes[rank].report()
            seconds, text = outcomes[rank].value
            assert seconds < 5 * PATIENCE and "1" in text, (seconds, text)


def test_headers_refuse_what_no_rank_writes():
    packed = _pickling.pack({"a": torch.ones(50_000)})
    good = bytearray(_exchange.encode("gather_object", 1, packed))
    assert _exchange.decode(memoryview(good)).sizes == (200_000,)
    draw = random.Random(1)
    for _ in range(3000):
        bad = bytearray(good)
        for _ in range(draw.randrange(1, 6)):
            bad[draw.randrange(64)] = draw.randrange(256)
        with suppress(ValueError):
            header = _exchange.decode(memoryview(bad))
            assert sum(header.sizes) <= 64 << 48
    with pytest.raises(ValueError):
        _exchange.decode(memoryview(good)[:-1])


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_a_hostile_pickle_runs_nothing(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as raised:
        _pickling.unpack(memoryview(path.read_bytes()), [], frozenset())
    assert not isinstance(raised.value, (SystemExit, KeyboardInterrupt, MemoryError))
    assert not list(tmp_path.iterdir()), "it wrote a file"


def gather_cuda_tensors(world):
    here = torch.device("cuda", world.rank % torch.cuda.device_count())
    torch.cuda.set_device(here)
    generator = torch.Generator(here).manual_seed(world.rank)
    shared = torch.randn(300_001, device=here, generator=generator)
    given = {
        "large": shared,
        "view": shared[1:1000:3],
        "half": torch.full((3, 7), float(world.rank), dtype=torch.bfloat16, device=here),
        "empty": torch.empty(0, 3, device=here),
        "cpu": torch.full((5,), world.rank),
    }
    found = [None] * world.size
    objects.all_gather_object(found, given)
    for rank, entries in enumerate(found):
        there = torch.device("cuda", rank % torch.cuda.device_count())
        again = torch.randn(300_001, device=there, generator=torch.Generator(there).manual_seed(rank))
        assert {name: value.device.type for name, value in entries.items()} == {
            name: value.device.type for name, value in given.items()
        }
        assert entries["large"].device == there and torch.equal(entries["large"], again)
        assert torch.equal(entries["view"], again[1:1000:3])
        assert entries["view"].untyped_storage().data_ptr() == entries["large"].untyped_storage().data_ptr()
        assert entries["half"].eq(rank).all() and entries["half"].dtype == torch.bfloat16
        assert entries["empty"].shape == (0, 3) and entries["cpu"].eq(rank).all()


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="no GPU is visible")
def test_cuda_tensors_arrive_on_the_gpu_of_the_same_index():
    with Cluster(2) as cluster:
        cluster.check(gather_cuda_tensors, deadline=60)
