"""What csrc/bindings/module.cpp offers to the Python side. Not an interface for users: take `altorch` itself."""

from collections.abc import Callable
from typing import Any

from torch.distributed import Backend as _Backend
from torch.distributed import Store

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
    ) -> None: ...
    @property
    def is_high_priority_stream(self) -> bool: ...

class Backend(_Backend):  # type: ignore[misc]
    @property
    def options(self) -> Options: ...
    def perform_nocolor_split(self, device: Any) -> None: ...
    def comm_split_count(self) -> int: ...
    @property
    def mem_allocator(self) -> Any: ...
    def register_mem_pool(self, pool: Any, symm: bool = False) -> None: ...
    def deregister_mem_pool(self, pool: Any) -> None: ...
    def add_buffer(self, address: int, bytes: int, symmetric: bool) -> None: ...
    def remove_buffer(self, address: int) -> None: ...

class GlooBackend(Backend): ...

def create_backend(
    store: Store,
    rank: int,
    size: int,
    name: str,
    key_prefix: str,
    job_ranks: list[int],
    timeout_seconds: float,
    options: Options,
    first_group: bool,
    mpi_library: str,
    shim_directory: str,
    job_id: str,
    master_address: str,
) -> Backend: ...
def create_gloo_backend(
    store: Store,
    rank: int,
    size: int,
    name: str,
    key_prefix: str,
    job_ranks: list[int],
    timeout_seconds: float,
    options: Options,
    whole_job: bool,
    factory: Callable[[Store, int, int, float], Any],
) -> GlooBackend: ...
def statistics(backend: Any) -> list[Any]: ...
def algorithms() -> list[dict[str, Any]]: ...
def explain(
    operation: str,
    dtype: str,
    bytes: int,
    ranks: int,
    rank: int = 0,
    algorithm: str | None = None,
) -> dict[str, Any]: ...
def explain_on_gpus(
    operation: str, dtype: str, bytes: int, ranks: int, nodes: int = 1, share_gpus: bool = False
) -> dict[str, Any]: ...
def gpu_routes(device: int) -> dict[str, str]: ...
def compile_reduction(dtype: str, op: str, architecture: int) -> int | None: ...
def nccl_allocator_obstacle() -> str: ...
def settings() -> list[dict[str, str]]: ...
def unknown_settings() -> list[str]: ...
def describe_job() -> str: ...
def finalize_mpi() -> None: ...
def join_launched_job(library: str, shim_directory: str) -> tuple[int, int]: ...
def exchange_texts(text: str) -> list[str]: ...
