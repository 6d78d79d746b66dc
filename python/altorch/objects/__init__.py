# SPDX-License-Identifier: BSD-3-Clause
"""Python objects between ranks: torch's calls and arguments, in one collective where the objects are small.

    import altorch.objects as objects

    everyone = [None] * dist.get_world_size()
    objects.all_gather_object(everyone, {"rank": dist.get_rank()})

Each rank pickles its object once. Memory of arrays and tensors is sent from where it lies, and received where the
object that arrives uses it. All of it goes through memory of the host, CUDA tensors too. The calls serve groups of
every backend: where a group's CPU tensors do not go over "al", they call torch's own function.

`allow=`: pickles of peers are code. With it, an object that arrives may consist of containers, numbers, strings,
tensors, and what the argument names (classes, functions, or their full names); anything else raises
pickle.UnpicklingError.

An object that cannot be pickled raises pickle.PicklingError on all ranks of a collective. It names the rank, the path
inside the object, and the type. docs/objects.md has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from altorch.objects import _exchange
from altorch.objects._exchange import Exchange, prepare
from altorch.objects._pickling import Packed, pack, pack_list, unpack_list
from altorch.objects._rebuilding import Allow

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "install",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
    "uninstall",
]

_NAMES = [name for name in __all__ if "object" in name]
_torchs = {name: getattr(c10d, name) for name in _NAMES}
_pickled_by = (c10d._pickler, c10d._unpickler)


def all_gather_object(
    object_list: list[Any],
    obj: Any,
    group: ProcessGroup | None = None,
    weights_only: bool = False,
    *,
    allow: Allow = None,
) -> None:
    """torch.distributed.all_gather_object: object_list[r] becomes the `obj` of rank r of the group."""
    call = _call("all_gather_object", group, allow, weights_only)
    if call is None:
        _torch("all_gather_object", weights_only, object_list, obj, group=group)
        return

    def make() -> Packed:
        call.permit(allow)
        _check_entries("object_list", object_list, dist.get_world_size(group))
        return pack(obj)

    for rank, blob in enumerate(call.all_gather(prepare(make))):
        object_list[rank] = call.load(rank, blob)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
    weights_only: bool = False,
    *,
    allow: Allow = None,
) -> None:
    """torch.distributed.gather_object: object_gather_list[r] becomes the `obj` of rank r, on the destination rank."""
    call = _call("gather_object", group, allow, weights_only)
    if call is None:
        options = {"dst": dst, "group": group, "group_dst": group_dst}
        _torch("gather_object", weights_only, obj, object_gather_list, **options)
        return
    call.root = _rank_in(group, dst, group_dst, 0)

    def make() -> Packed:
        call.permit(allow)
        if call.is_root:
            _check_entries("object_gather_list", object_gather_list, dist.get_world_size(group))
        elif object_gather_list is not None and len(object_gather_list) > 0:
            raise ValueError("its object_gather_list must be None or empty: it is not the destination")
        return pack(obj)

    for rank, blob in enumerate(call.gather(prepare(make))):
        assert object_gather_list is not None
        object_gather_list[rank] = call.load(rank, blob)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: torch.device | None = None,
    group_src: int | None = None,
    weights_only: bool = False,
    *,
    allow: Allow = None,
) -> None:
    """torch.distributed.broadcast_object_list: the objects of the source rank. `device` has no effect."""
    call = _call("broadcast_object_list", group, allow, weights_only)
    if call is None:
        options = {"src": src, "group": group, "device": device, "group_src": group_src}
        _torch("broadcast_object_list", weights_only, object_list, **options)
        return
    call.root = _rank_in(group, src, group_src, 0)
    if call.is_root:
        call.broadcast(prepare(lambda: pack_list(object_list)))
        return
    blob = call.broadcast(None)
    assert blob is not None
    _assign(call, call.root, blob, object_list, allow)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
    weights_only: bool = False,
    *,
    allow: Allow = None,
) -> None:
    """torch.distributed.scatter_object_list: this rank's entry of the source's list becomes the first of its own."""
    call = _call("scatter_object_list", group, allow, weights_only)
    if call is None:
        lists = (scatter_object_output_list, scatter_object_input_list)
        _torch("scatter_object_list", weights_only, *lists, src=src, group=group, group_src=group_src)
        return
    call.root = _rank_in(group, src, group_src, 0)

    def make() -> list[Packed]:
        entries = [] if scatter_object_input_list is None else list(scatter_object_input_list)
        _check_entries("scatter_object_input_list", entries, dist.get_world_size(group), exactly=True)
        return [pack(each) for each in entries]

    blob = call.scatter(prepare(make) if call.is_root else None)
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "altorch: scatter_object_list: scatter_object_output_list must be a list of one entry or more"
        )
    call.permit(allow)
    scatter_object_output_list[0] = call.load(call.root, blob)


def send_object_list(
    object_list: Sequence[Any],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: torch.device | None = None,
    group_dst: int | None = None,
    use_batch: bool = False,
    weights_only: bool = False,
) -> None:
    """torch.distributed.send_object_list. `device` and `use_batch` have no effect."""
    call = _call("send_object_list", group, None, weights_only)
    if call is None:
        options = {
            "dst": dst,
            "group": group,
            "device": device,
            "group_dst": group_dst,
            "use_batch": use_batch,
        }
        _torch("send_object_list", weights_only, object_list, **options)
        return
    call.send(_rank_in(group, dst, group_dst, None), prepare(lambda: pack_list(object_list)))


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: torch.device | None = None,
    group_src: int | None = None,
    use_batch: bool = False,
    weights_only: bool = False,
    *,
    allow: Allow = None,
) -> int:
    """torch.distributed.recv_object_list: returns the global rank of the sender. Without a source, any rank."""
    call = _call("recv_object_list", group, allow, weights_only)
    if call is None:
        options = {
            "src": src,
            "group": group,
            "device": device,
            "group_src": group_src,
            "use_batch": use_batch,
        }
        return int(_torch("recv_object_list", weights_only, object_list, **options))
    peer = -1 if src is None and group_src is None else _rank_in(group, src, group_src, None)
    blob, sender = call.receive(peer)
    _assign(call, sender, blob, object_list, allow)
    return int(dist.get_global_rank(_group(group), sender))


def install() -> None:
    """Puts these functions in the place of torch.distributed's, for groups of every backend. Idempotent."""
    for name in _NAMES:
        for module in (c10d, dist):
            setattr(module, name, globals()[name])


def uninstall() -> None:
    """Puts torch's own functions back."""
    for name, function in _torchs.items():
        for module in (c10d, dist):
            setattr(module, name, function)


def _group(group: ProcessGroup | None) -> ProcessGroup:
    return group if group is not None else c10d._get_default_group()


def _call(operation: str, group: ProcessGroup | None, allow: Allow, weights_only: bool) -> Exchange | None:
    """The call on the backend `al` of the group's CPU tensors; None: torch's own function serves it."""
    from altorch import _backend
    from altorch._extension import extension

    chosen = _group(group)
    if c10d._rank_not_in_group(chosen):
        return None  # torch warns of it
    if weights_only and allow is not None:
        raise ValueError(f"altorch.objects.{operation}: give allow=, or weights_only=True, and not both")
    if not weights_only and (c10d._pickler, c10d._unpickler) == _pickled_by:
        try:
            backend = _backend.carrying(chosen._get_backend(torch.device("cpu")))
        except RuntimeError:  # the group has no backend for CPU tensors
            backend = None
        if isinstance(backend, extension().Backend):
            return Exchange(backend, chosen.group_name, operation)
    if allow is not None:
        raise NotImplementedError(
            f"altorch.objects.{operation}: allow= needs a group whose CPU tensors go over 'al'"
        )
    return None


def _torch(name: str, weights_only: bool, *arguments: Any, **options: Any) -> Any:
    if weights_only:
        options["weights_only"] = True  # torch before 2.15 does not know it
    return _torchs[name](*arguments, **options)


def _rank_in(
    group: ProcessGroup | None, rank: int | None, group_rank: int | None, default: int | None
) -> int:
    """The root as a rank of the group; without a `default`: a peer, which is another rank."""
    if rank is not None and group_rank is not None:
        raise ValueError("altorch.objects: give the rank, or the rank in the group, and not both")
    chosen = _group(group)
    if rank is None and group_rank is None:
        if default is None:
            raise ValueError("altorch.objects: give the rank, or the rank in the group")
        rank = default
    found = int(dist.get_group_rank(chosen, rank)) if group_rank is None else group_rank
    size = dist.get_world_size(chosen)
    if not 0 <= found < size:
        raise ValueError(f"altorch.objects: {found} is no rank of the group, which has ranks 0 to {size - 1}")
    if default is None and found == dist.get_rank(chosen):
        raise ValueError("altorch.objects: a rank sends nothing to itself")
    return found


def _check_entries(what: str, entries: Any, ranks: int, exactly: bool = False) -> None:
    count = 0 if entries is None else len(entries)
    if count < ranks or (exactly and count > ranks):
        raise ValueError(f"its {what} has {count} entries, and the group {ranks} ranks")


def _assign(call: Exchange, rank: int, blob: _exchange.Blob, object_list: list[Any], allow: Allow) -> None:
    call.permit(allow)
    arrived = call.load(rank, blob, unpack_list)
    if len(arrived) != len(object_list):
        raise ValueError(
            f"{call.label}: object_list has {len(object_list)} entries, and rank {rank} of the group sent "
            f"{len(arrived)}"
        )
    for place, each in enumerate(arrived):  # a deque takes no slice
        object_list[place] = each
