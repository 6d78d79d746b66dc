"""What csrc/bindings/module.cpp offers to the Python side. Not an interface for users: take `altorch` itself."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Backend as _Backend
from torch.distributed import ReduceOp, Store, Work

class Options(_Backend.Options):  # type: ignore[name-defined,misc]
    """What `pg_options` of a group with backend "al" may say."""

    def __init__(
        self,
        timeout_seconds: float = 1800.0,
        *,
        is_high_priority_stream: bool = True,
        min_ctas: int | None = None,
        max_ctas: int | None = None,
        cga_cluster_size: int | None = None,
        split_share: bool | None = None,
        on_error: str | None = None,
    ) -> None: ...
    @property
    def is_high_priority_stream(self) -> bool: ...

class Window:
    """One-sided access to tensors that the ranks of a group have registered."""

    def tensor_register(self, tensor: Tensor, owning: bool = True) -> None: ...
    def tensor_deregister(self) -> None: ...
    def put(
        self,
        tensor: Tensor,
        dst_rank: int,
        target_offset_nelems: int = 0,
        async_op: bool = False,
        opts: Any = None,
        *,
        target_stride: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> Work: ...
    def put_signal(
        self,
        tensor: Tensor,
        dst_rank: int,
        target_offset_nelems: int = 0,
        async_op: bool = False,
        *,
        slot: int = 0,
        target_stride: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> Work: ...
    def get(
        self,
        tensor: Tensor,
        src_rank: int,
        source_offset_nelems: int = 0,
        async_op: bool = False,
        *,
        source_stride: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> Work: ...
    def accumulate(
        self,
        tensor: Tensor,
        dst_rank: int,
        target_offset_nelems: int = 0,
        op: str | ReduceOp.RedOpType = "SUM",
        async_op: bool = False,
        *,
        target_stride: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> Work: ...
    def fetch_add(
        self, rank: int, offset: int, value: int, *, timeout: float | timedelta | None = None
    ) -> int: ...
    def compare_swap(
        self,
        rank: int,
        offset: int,
        expected: int,
        value: int,
        *,
        timeout: float | timedelta | None = None,
    ) -> int: ...
    def signal(
        self,
        peer_rank: int,
        async_op: bool = False,
        opts: Any = None,
        *,
        slot: int = 0,
        timeout: float | timedelta | None = None,
    ) -> Work: ...
    def wait_signal(
        self,
        peer_rank: int,
        async_op: bool = False,
        opts: Any = None,
        *,
        slot: int = 0,
        timeout: float | timedelta | None = None,
    ) -> Work: ...
    def flush(self, rank: int | None = None) -> None: ...
    def fence(self) -> None: ...
    def map_remote_tensor(self, rank: int) -> Tensor: ...
    @property
    def route(self) -> str: ...

def window_routes() -> list[dict[str, Any]]: ...
def empty_shareable(sizes: Sequence[int], dtype: torch.dtype) -> Tensor: ...

class Backend(_Backend):  # type: ignore[misc]
    def open_window(self, tensor: Tensor | None = None) -> Window: ...
    @property
    def options(self) -> Options: ...
    def abandon_window(self) -> None: ...
    def perform_nocolor_split(self, device: Any) -> None: ...
    def comm_split_count(self) -> int: ...
    @property
    def mem_allocator(self) -> Any: ...
    def register_mem_pool(self, pool: Any, symm: bool = False) -> None: ...
    def deregister_mem_pool(self, pool: Any) -> None: ...
    def add_buffer(self, address: int, bytes: int, symmetric: bool) -> None: ...
    def remove_buffer(self, address: int) -> None: ...

class Transport:
    """What links the ranks of groups."""

class MpiStart:
    """How MPI is to be started, by the ranks of a job together."""

    def __init__(self, *, library: str, shim_directory: str, job: str, master_address: str) -> None: ...

class Membership:
    """Who is in a group."""

    def __init__(
        self, *, name: str, rank: int, global_ranks: Sequence[int], timeout_seconds: float, is_job: bool
    ) -> None: ...

class Rendezvous:
    """A group whose ranks have met: `words` of each rank, and the `prefix` of the keys that are its own."""

    @property
    def words(self) -> list[list[str]]: ...
    @property
    def prefix(self) -> str: ...
    def exchange(self, key: str, text: str) -> list[str]: ...
    def settle(self) -> None: ...
    def leave(self) -> None: ...

def gather(
    store: Store,
    group: Membership,
    key: str,
    options: Options,
    agreed: Sequence[str],
    word: Sequence[str],
) -> Rendezvous: ...
def mpi_transport(rendezvous: Rendezvous, mpi_ranks: Sequence[int], start: MpiStart | None) -> Transport: ...
def gloo_transport(
    factory: Callable[[Store, int, int, float, list[str]], Any], address: Callable[[], str]
) -> Transport: ...
def create_backend(rendezvous: Rendezvous, transport: Transport, options: Options) -> Backend: ...
def set_carries_cuda(value: bool) -> None: ...
def set_broken_window_hook(hook: Callable[[str], None]) -> None: ...
def records_for_itself() -> bool: ...
def publish_flight_record() -> None: ...
def statistics(backend: Any) -> list[Any]: ...
def algorithms() -> list[dict[str, Any]]: ...
def explain(
    operation: str,
    dtype: str,
    bytes: int,
    ranks: int,
    *,
    rank: int = 0,
    algorithm: str | None = None,
    on_gpus: bool = False,
    nodes: int = 1,
    share_gpus: bool = False,
) -> dict[str, Any]: ...
def gpu_routes(device: int) -> dict[str, str]: ...
def compile_reduction(dtype: str, op: str, architecture: int) -> int | None: ...
def nccl_allocator_obstacle() -> str: ...
def settings() -> list[dict[str, Any]]: ...
def unknown_settings() -> list[str]: ...
def shared_memory_obstacle(ranks: int) -> str | None: ...
def shared_memory_home() -> str: ...
def describe_job() -> str: ...
def stop_threads() -> None: ...
def finalize_mpi(after_failure: bool) -> None: ...
def join_launched_job(mpi_library: str, shim_directory: str) -> tuple[int, int]: ...
def exchange_texts(text: str) -> list[str]: ...
