# SPDX-License-Identifier: BSD-3-Clause
"""altorch as a backend of ray.util.collective, for CPU tensors and arrays of actors.

In the driver and in each actor:

    import ray_altorch
    ray_altorch.register()
    collective.init_collective_group(world_size, rank, backend="AL", group_name="replicas")

Each group is one of `altorch.make_backend()`. Rank 0 of it has the store, whose address Ray's key-value store holds.
"""

from __future__ import annotations

import time
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put
from ray.util.collective.backend_registry import _global_registry, register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import ReduceOp

import altorch

RENDEZVOUS_SECONDS = 60
OPS = {
    ReduceOp.SUM: dist.ReduceOp.SUM,
    ReduceOp.PRODUCT: dist.ReduceOp.PRODUCT,
    ReduceOp.MIN: dist.ReduceOp.MIN,
    ReduceOp.MAX: dist.ReduceOp.MAX,
}


def register() -> None:
    """Makes "AL" known to this process; Ray wants that of the driver and of each actor."""
    if not _global_registry.is_registered("AL"):
        register_collective_backend("AL", AlGroup)


def _store(world_size: int, rank: int, name: str) -> dist.Store:
    key = f"altorch_group_{name}"
    if rank == 0:
        address = ray.util.get_node_ip_address()
        store = dist.TCPStore(address, 0, world_size, is_master=True, wait_for_workers=False)
        _internal_kv_put(key, f"{address} {store.port}", overwrite=True)
        return store
    end = time.monotonic() + RENDEZVOUS_SECONDS
    while (value := _internal_kv_get(key)) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"rank 0 of the collective group {name!r} did not come")
        time.sleep(0.05)
    address, port = value.decode().split()
    return dist.TCPStore(address, int(port), world_size, is_master=False)


def _tensors(values: Any) -> list[torch.Tensor]:
    """Ray passes one tensor or array in a list; an array and its tensor have the same memory."""
    return [torch.as_tensor(each) for each in values]


class AlGroup(BaseGroup):
    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self._kept = _store(world_size, rank, group_name)
        self._backend = altorch.make_backend(self._kept, rank, world_size, name=group_name)
        if rank == 0:  # all ranks have the address now
            _internal_kv_del(f"altorch_group_{group_name}")

    @classmethod
    def backend(cls) -> str:
        return "AL"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        self._backend.shutdown()

    def allreduce(self, tensor: Any, allreduce_options: Any) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = OPS[allreduce_options.reduceOp]
        self._backend.allreduce(_tensors(tensor), options).wait()

    def barrier(self, barrier_options: Any = None) -> None:
        self._backend.barrier().wait()

    def reduce(self, tensor: Any, reduce_options: Any) -> None:
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank = OPS[reduce_options.reduceOp], reduce_options.root_rank
        values = _tensors(tensor)
        if self.rank != options.rootRank:  # whose tensors stay as they are
            values = [each.clone() for each in values]
        self._backend.reduce(values, options).wait()

    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any) -> None:
        self._backend.allgather([_tensors(each) for each in tensor_list], _tensors(tensor)).wait()

    def broadcast(self, tensor: Any, broadcast_options: Any) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = broadcast_options.root_rank
        self._backend.broadcast(_tensors(tensor), options).wait()

    def reducescatter(self, tensor: Any, tensor_list: Any, reducescatter_options: Any) -> None:
        options = dist.ReduceScatterOptions()
        options.reduceOp = OPS[reducescatter_options.reduceOp]
        self._backend.reduce_scatter(
            _tensors(tensor), [_tensors(each) for each in tensor_list], options
        ).wait()

    def send(self, tensor: Any, send_options: Any) -> None:
        self._backend.send(_tensors(tensor), send_options.dst_rank, 0).wait()

    def recv(self, tensor: Any, recv_options: Any) -> None:
        self._backend.recv(_tensors(tensor), recv_options.src_rank, 0).wait()
