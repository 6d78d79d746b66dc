# SPDX-License-Identifier: BSD-3-Clause
"""A backend of ray.util.collective: groups of Ray actors communicate CPU tensors and NumPy arrays over altorch.

Register it in the driver and in each actor, then name it when the group is made:

    import ray_altorch
    ray_altorch.register()
    collective.init_collective_group(world_size, rank, backend="AL", group_name="replicas")

`altorch.make_backend()` makes each group. The ranks exchange addresses in a TCPStore, which rank 0 hosts. Rank 0
publishes the address of the store in Ray's key-value store until all ranks have connected.
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
REDUCE_OPS = {
    ReduceOp.SUM: dist.ReduceOp.SUM,
    ReduceOp.PRODUCT: dist.ReduceOp.PRODUCT,
    ReduceOp.MIN: dist.ReduceOp.MIN,
    ReduceOp.MAX: dist.ReduceOp.MAX,
}


def register() -> None:
    """Registers "AL" in this process. Ray requires this of the driver and of each actor."""
    if not _global_registry.is_registered("AL"):
        register_collective_backend("AL", AlGroup)


def _address_key(group_name: str) -> str:
    return f"altorch_group_{group_name}"


def _host_store(world_size: int, group_name: str) -> dist.Store:
    address = ray.util.get_node_ip_address()
    store = dist.TCPStore(address, 0, world_size, is_master=True, wait_for_workers=False)
    _internal_kv_put(_address_key(group_name), f"{address} {store.port}", overwrite=True)
    return store


def _connect_to_store(world_size: int, rank: int, group_name: str) -> dist.Store:
    deadline = time.monotonic() + RENDEZVOUS_SECONDS
    while (value := _internal_kv_get(_address_key(group_name))) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"altorch: group {group_name!r}: rank {rank} of {world_size}: init_collective_group: rank 0 has not "
                f"published its address within {RENDEZVOUS_SECONDS} s; check that an actor calls "
                "init_collective_group with rank 0 and this group name, and look for an error in its log"
            )
        time.sleep(0.05)
    address, port = value.decode().split()
    return dist.TCPStore(address, int(port), world_size, is_master=False)


def _tensors(values: Any) -> list[torch.Tensor]:
    """Tensors that share memory with the values. Ray passes one tensor or array in a list."""
    return [torch.as_tensor(value) for value in values]


class AlGroup(BaseGroup):
    """A group of ray.util.collective. Every call returns when it has completed on this rank."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        # Rank 0 hosts the store, so the store lives as long as the group.
        if rank == 0:
            self._store = _host_store(world_size, group_name)
        else:
            self._store = _connect_to_store(world_size, rank, group_name)
        self._backend = altorch.make_backend(self._store, rank, world_size, name=group_name)
        if rank == 0:  # make_backend() returns after all ranks have connected
            _internal_kv_del(_address_key(group_name))

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
        options.reduceOp = REDUCE_OPS[allreduce_options.reduceOp]
        self._backend.allreduce(_tensors(tensor), options).wait()

    def barrier(self, barrier_options: Any = None) -> None:
        self._backend.barrier().wait()

    def reduce(self, tensor: Any, reduce_options: Any) -> None:
        options = dist.ReduceOptions()
        options.reduceOp = REDUCE_OPS[reduce_options.reduceOp]
        options.rootRank = reduce_options.root_rank
        values = _tensors(tensor)
        if self.rank != options.rootRank:  # Ray leaves the tensors of the other ranks as they are
            values = [value.clone() for value in values]
        self._backend.reduce(values, options).wait()

    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any) -> None:
        outputs = [_tensors(each) for each in tensor_list]
        self._backend.allgather(outputs, _tensors(tensor)).wait()

    def broadcast(self, tensor: Any, broadcast_options: Any) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = broadcast_options.root_rank
        self._backend.broadcast(_tensors(tensor), options).wait()

    def reducescatter(self, tensor: Any, tensor_list: Any, reducescatter_options: Any) -> None:
        options = dist.ReduceScatterOptions()
        options.reduceOp = REDUCE_OPS[reducescatter_options.reduceOp]
        inputs = [_tensors(each) for each in tensor_list]
        self._backend.reduce_scatter(_tensors(tensor), inputs, options).wait()

    def send(self, tensor: Any, send_options: Any) -> None:
        self._backend.send(_tensors(tensor), send_options.dst_rank, 0).wait()

    def recv(self, tensor: Any, recv_options: Any) -> None:
        self._backend.recv(_tensors(tensor), recv_options.src_rank, 0).wait()
