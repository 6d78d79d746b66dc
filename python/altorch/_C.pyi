# SPDX-License-Identifier: BSD-3-Clause
"""What csrc/bindings/module.cpp offers to the Python side. Not an interface for users: take `altorch` itself."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, overload

import torch
from torch import Tensor
from torch.distributed import Backend as _Backend
from torch.distributed import ProcessGroup, ReduceOp, Store, Work
from typing_extensions import Buffer

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
        deterministic: str | None = None,
    ) -> None:
        """`timeout_seconds`: of every call. `is_high_priority_stream`: of the group's own stream on CUDA.

        `min_ctas`, `max_ctas` (thread blocks), `cga_cluster_size`, `split_share`: as in ncclConfig_t; None leaves
        them to NCCL. `on_error`: "poison", "teardown" or "continue"; None: what `ALTORCH_ON_ERROR` says.
        `deterministic`: "exact" for sums that are rounded once; None: what `ALTORCH_DETERMINISTIC` says.
        """
    @property
    def deterministic(self) -> str | None: ...
    @property
    def is_high_priority_stream(self) -> bool: ...
    @property
    def served_name(self) -> str: ...
    @served_name.setter
    def served_name(self, value: str) -> None: ...
    def __copy__(self) -> Options: ...

class Window:
    """One-sided access to tensors that the ranks of a group have registered.

    Offsets and strides are in elements of the target's tensor, read as one row.
    """

    def tensor_register(self, tensor: Tensor, owning: bool = True) -> None:
        """Collective: gives the window this rank's tensor, contiguous; on a GPU one of `altorch.empty()`.

        `owning`: the window keeps the tensor alive.
        """
    def tensor_deregister(self) -> None:
        """Collective: when it returns, no rank accesses the tensors any more."""
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
    ) -> Work:
        """Writes `tensor` to the window of `dst_rank`.

        `target_stride`: row i of `tensor` (its first dimension) goes to `target_offset_nelems + i * target_stride`.
        """
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
    ) -> Work:
        """`put()` and then `signal()`, in one call."""
    def get(
        self,
        tensor: Tensor,
        src_rank: int,
        source_offset_nelems: int = 0,
        async_op: bool = False,
        *,
        source_stride: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> Work:
        """Reads the window of `src_rank` into `tensor`."""
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
    ) -> Work:
        """Reduces `tensor` into the window of `dst_rank`.

        Atomic with `fetch_add()`, `compare_swap()` and other accumulates.
        """
    def fetch_add(
        self, rank: int, offset: int, value: int, *, timeout: float | timedelta | None = None
    ) -> int:
        """Adds `value` to an element of int32 or int64, and returns what was there before."""
    def compare_swap(
        self,
        rank: int,
        offset: int,
        expected: int,
        value: int,
        *,
        timeout: float | timedelta | None = None,
    ) -> int:
        """Stores `value` where `expected` is, in an element of int32 or int64; returns what was there before."""
    def signal(
        self,
        peer_rank: int,
        async_op: bool = False,
        opts: Any = None,
        *,
        slot: int = 0,
        timeout: float | timedelta | None = None,
    ) -> Work:
        """Tells `peer_rank` that everything that this rank asked of its window before has taken effect."""
    def wait_signal(
        self,
        peer_rank: int,
        async_op: bool = False,
        opts: Any = None,
        *,
        slot: int = 0,
        timeout: float | timedelta | None = None,
    ) -> Work:
        """Waits for one `signal()` of `peer_rank` in that slot; each is waited for once."""
    def flush(self, rank: int | None = None) -> None:
        """Returns when everything that this rank began at `rank` (default: all) has taken effect.

        Raises what has failed of it since the last time.
        """
    def fence(self) -> None:
        """Collective: `flush()`, and then a barrier of this window."""
    def map_remote_tensor(self, rank: int) -> Tensor:
        """What `rank` has registered, as a row of elements of its own memory."""
    @property
    def route(self) -> str:
        """What carries it: 'shm', 'mpi' or 'messages'; on GPUs 'peer', 'host_staged', 'host_relay' or 'nccl'."""

def window_routes() -> list[dict[str, Any]]: ...
def empty_shareable(sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor: ...

class ReconfigurableBackend(_Backend):  # type: ignore[misc]
    """With torch 2.15 and later."""

    def __init__(
        self,
        rank: int,
        size: int,
        name: str,
        options: Options,
        make: Callable[[int, list[str], list[tuple[str, int]], int, float], tuple[Backend | None, str]],
    ) -> None: ...
    @property
    def now(self) -> Backend | None: ...
    @property
    def options(self) -> Options: ...
    def perform_nocolor_split(self, device: Any) -> None: ...

def set_merge_maker(
    maker: Callable[[Store, Membership, Options], tuple[Backend | None, str]],
) -> None: ...
def set_place_finder(find: Callable[[], str]) -> None: ...

class Backend(_Backend):  # type: ignore[misc]
    def open_window(self, tensor: Tensor | None = None) -> Window: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def memory_stats(self) -> dict[str, int]: ...
    def all_reduce_rms_norm(
        self, part: Tensor, residual: Tensor, weight: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]: ...
    def all_reduce_quantized(self, tensor: Tensor, float8: bool, mean: bool) -> Tensor | None: ...
    def scan(self, tensor: Tensor, op: int, exclusive: bool) -> Tensor: ...
    @property
    def membership(self) -> Membership: ...
    @property
    def callers_store(self) -> Store: ...
    def find_survivors(self, timeout_seconds: float, store: Store | None = None) -> tuple[int, list[int]]: ...
    def all_succeeded(
        self, timeout_seconds: float, left: tuple[int, list[int]], made: bool, store: Store | None = None
    ) -> bool: ...
    def change_timeout(self, seconds: float) -> None: ...
    def move_bytes(
        self, operation: str, root: int, input: Buffer, output: Buffer, counts: list[int]
    ) -> None: ...
    def send_bytes(self, bytes: Buffer, peer: int) -> Work: ...
    def receive_bytes(self, bytes: Buffer, peer: int) -> Work: ...
    def is_lost(self, rank: int) -> bool: ...
    def shrink(
        self, ranks_to_exclude: Sequence[int], shrink_flags: int = 0, opts_override: Options | None = None
    ) -> Backend: ...
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
    """The members of a group."""

    def __init__(
        self,
        *,
        name: str,
        rank: int,
        global_ranks: Sequence[int],
        timeout_seconds: float,
        is_job: bool,
        before: Sequence[int] = (),
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def global_ranks(self) -> list[int]: ...
    @property
    def is_job(self) -> bool: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def key(self) -> str: ...
    @property
    def watch_name(self) -> str: ...
    @property
    def has_one_node(self) -> bool: ...

class Rendezvous:
    """A group whose ranks have met: `words` of each rank, and the `prefix` of the keys that are its own."""

    @property
    def words(self) -> list[list[str]]: ...
    @property
    def prefix(self) -> str: ...
    def exchange(self, key: str, text: str, starts_mpi: bool = False) -> list[str]: ...
    def commit(self, unsupported_reason: str, timeout_seconds: float) -> str: ...
    def fail(self, why: str) -> None: ...
    def settle(self) -> None: ...
    def leave(self) -> None: ...

def gather(
    store: Store,
    group: Membership,
    key: str,
    options: Options,
    agreed: Sequence[str],
    word: Sequence[str],
    processes: Sequence[tuple[str, int]] = (),
) -> Rendezvous: ...
def claim(store: Store, key: str, value: str, timeout_seconds: float) -> str: ...
def mpi_transport(rendezvous: Rendezvous, mpi_ranks: Sequence[int], start: MpiStart | None) -> Transport: ...
def gloo_transport(
    factory: Callable[[Store, int, int, float, list[str]], Any], address: Callable[[], str]
) -> Transport: ...
def create_backend(rendezvous: Rendezvous, transport: Transport, options: Options) -> Backend: ...
def prefixes_of(store: Store) -> str: ...
def set_carries_cuda(value: bool) -> None: ...
def set_broken_window_hook(hook: Callable[[str], None]) -> None: ...
def end_abort_hooks() -> None: ...
def records_for_itself() -> bool: ...
def publish_flight_record() -> None: ...
def stats(backend: Any) -> list[Any]: ...
def transport(backend: Any) -> str: ...
def log_info(message: str) -> None: ...
def fail_thread_starts_after(starts: int) -> None: ...
def algorithms() -> list[dict[str, Any]]: ...

class TokenRouting:
    """For altorch.TokenSwitch: where the tokens of all ranks go on this rank."""

    def __init__(
        self,
        gathered: Tensor,
        ranks: int,
        most: int,
        columns: int,
        first: int,
        local: int,
        experts: int,
        capacity: int,
        flat: bool,
    ) -> None: ...
    @property
    def summary(self) -> Tensor: ...
    def dispatch(
        self,
        group: ProcessGroup,
        rows: int,
        received: int,
        tokens: Tensor,
        weights: Tensor | None,
        scales: Tensor | None,
        out: Tensor,
        out_weights: Tensor | None,
        out_indices: Tensor | None,
        out_scales: Tensor | None,
    ) -> None: ...
    def combine(
        self, group: ProcessGroup, rows: int, count: int, expert_tokens: Tensor, out: Tensor | None
    ) -> Tensor: ...

def pack_indices(indices: Tensor, header: Sequence[int], sent: int, size: int) -> Tensor: ...
def token_kernels_unsupported_reason(device: int) -> str | None: ...

class HostBytes:
    @overload
    def __init__(self, size: int) -> None: ...
    @overload
    def __init__(self, bytes: Tensor) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def tensor_over(buffer: Buffer) -> Tensor: ...
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
    linked: bool = False,
    over_mpi: bool = False,
) -> dict[str, Any]: ...
def simulate(
    operation: str,
    dtype: str,
    bytes: int,
    *,
    nodes: int,
    per_node: int,
    network: dict[str, float],
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]: ...
def write_goal(
    path: str, operation: str, dtype: str, bytes: int, *, nodes: int, per_node: int, network: dict[str, float]
) -> None: ...
def simulated_start_up(*, nodes: int, per_node: int, network: dict[str, float]) -> dict[str, float]: ...
def guard_time_estimates(begins: bool) -> None: ...
def shm_protocols(operation: str) -> list[str]: ...
def gpu_protocols() -> dict[str, list[str]]: ...
def links_rows() -> list[tuple[str, str]]: ...
def set_tuned_costs(rows: list[tuple[bool, str, int, list[tuple[int, float]]]]) -> None: ...
def set_tuned_rules(rules: str) -> None: ...
def gpu_routes(device: int) -> dict[str, str]: ...
def quantize(tensor: Tensor, number: int, float8: bool, mean: bool) -> Tensor: ...
def sum_quantized(chunks: Tensor, result: Tensor, factor: float, float8: bool) -> None: ...
def dequantize(chunks: Tensor, result: Tensor, float8: bool) -> None: ...
def exact_sum(stacked: Tensor, mean: bool) -> Tensor: ...
def compile_reduction(dtype: str, op: str, architecture: int) -> int | None: ...
def nccl_allocator_unsupported_reason() -> str: ...
def settings() -> list[dict[str, Any]]: ...
def unknown_settings() -> list[str]: ...
def shared_memory_unsupported_reason(ranks: int) -> str | None: ...

class Process:
    def __init__(self, pid: int, address: int, number: int) -> None: ...
    @staticmethod
    def own() -> Process: ...
    @property
    def pid(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def number(self) -> int: ...
    def unsupported_reason(self) -> str | None: ...
    def read(self, source: int, target: int, bytes: int) -> str: ...
    def write(self, target: int, source: int, bytes: int) -> str: ...

def shared_memory_node() -> str: ...
def describe_job() -> str: ...
def stop_threads() -> None: ...
def finalize_mpi(after_failure: bool) -> None: ...
def join_launched_job(mpi_library: str, shim_directory: str) -> tuple[int, int]: ...
def exchange_texts(text: str) -> list[str]: ...
