# SPDX-License-Identifier: BSD-3-Clause
"""One-sided copies of CPU tensors between processes of one node that are in no common group: torch's transport "al".

    from torch.distributed._transport import new_transport    # torch 2.15

    transport = new_transport("al", "cpu")
    url = transport.bind()                                     # to the peer, by whatever way the program has
    transport.connect(peers_url)
    memory = transport.register_memory(tensor)
    transport.read(memory.to_mutable_view(), peers_buffer)

The system copies (process_vm_readv, process_vm_writev), at once and in the calling thread, or in one of the transport's
with async_op=True: the peer takes no part. What torch.distributed._transport documents about deadlines,
overlapping copies, and which side may end what, holds here. Any thread.
"""

from __future__ import annotations

import ctypes
import json
import math
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal, cast

import torch
from torch.distributed import Work
from torch.distributed._transport import Memory, MemoryView, MutableMemoryView, RemoteBuffer, Transport

from altorch._extension import extension

_VERSION = 1
_WORD = 8  # bytes
_kept: list[Any] = []  # words that peers may look at as long as this process lives
_live: set[AlTransport] = set()  # with registered memory, which peers may access until it is unregistered


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and (not math.isfinite(timeout) or timeout < 0):
        raise ValueError(f"a timeout is a number of seconds, not {timeout}")


def _texts(data: bytes, what: str, fields: dict[str, type]) -> dict[str, Any]:
    """The fields of a message of a peer's. Raises ValueError on anything else."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ValueError(f"this is no {what} of transport 'al'") from error
    right = isinstance(found, dict) and set(found) == {*fields, "al"} and found["al"] == _VERSION
    if not right or any(
        type(found[name]) is not kind or (kind is int and not 0 <= found[name] < 1 << 64)
        for name, kind in fields.items()
    ):
        raise ValueError(f"this is no {what} of transport 'al' of this version of altorch")
    return {name: found[name] for name in fields}


def _message(**fields: Any) -> bytes:
    return json.dumps({"al": _VERSION, **fields}).encode()


@dataclass(frozen=True)
class AlRemoteBuffer:
    """Where a peer's registered memory is. A process that has it may read and write there."""

    endpoint: str
    word: int  # address of a number there ...
    number: int  # ... which is this one while the memory is registered
    address: int
    length: int

    _FIELDS: ClassVar[dict[str, type]] = {
        "endpoint": str,
        "word": int,
        "number": int,
        "address": int,
        "length": int,
    }

    def serialize(self) -> bytes:
        return _message(**{name: getattr(self, name) for name in self._FIELDS})

    @classmethod
    def deserialize(cls, data: bytes) -> AlRemoteBuffer:
        return cls(**_texts(data, "remote buffer", cls._FIELDS))


@dataclass(eq=False)
class AlMemory:
    """A registered tensor."""

    transport: AlTransport
    tensor: torch.Tensor
    address: int
    length: int
    word: Any = field(default_factory=lambda: ctypes.c_uint64(secrets.randbits(63) | 1))

    def to_view(self, offset: int | None = None, length: int | None = None) -> AlView:
        return AlView(self, *self._range(offset, length))

    def to_mutable_view(self, offset: int | None = None, length: int | None = None) -> AlMutableView:
        return AlMutableView(self, *self._range(offset, length))

    def to_remote_buffer(self, *, timeout: float | None = None) -> AlRemoteBuffer:
        _check_timeout(timeout)
        self.check()
        return AlRemoteBuffer(
            self.transport.name, ctypes.addressof(self.word), self.word.value, self.address, self.length
        )

    def check(self) -> None:
        if self.word.value == 0:
            raise RuntimeError("the memory is not registered any more")
        if (self.tensor.data_ptr(), self.tensor.nbytes) != (self.address, self.length):
            raise RuntimeError("the registered tensor was resized, or given other memory")

    def _range(self, offset: int | None, length: int | None) -> tuple[int, int]:
        begin = 0 if offset is None else offset
        count = self.length - begin if length is None else length
        if begin < 0 or count < 0 or begin + count > self.length:
            raise ValueError(f"bytes {begin} to {begin + count} are not in the {self.length} of this memory")
        return begin, count


@dataclass(frozen=True)
class AlView:
    memory: AlMemory
    offset: int
    length: int

    def size(self) -> int:
        return self.length

    @property
    def address(self) -> int:
        return self.memory.address + self.offset


@dataclass(frozen=True)
class AlMutableView(AlView):
    @property
    def writable(self) -> Literal[True]:
        return True


class _Copy(Work):  # type: ignore[misc]
    """A copy that a thread of the transport makes. Keeps its view, and so the tensor, until it is done."""

    def __init__(self, view: AlView, timeout: float | None) -> None:
        super().__init__()
        self.view, self._timeout = view, timeout
        self._error: Exception | None = None
        self._over = threading.Event()
        self._future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()

    def finish(self, error: Exception | None) -> None:
        self._error = error
        self._over.set()
        if error is None:
            self._future.set_result([])
        else:
            self._future.set_exception(error)

    def is_completed(self) -> bool:
        return self._over.is_set()

    def is_success(self) -> bool:
        return self._over.is_set() and self._error is None

    def exception(self) -> Exception | None:  # type: ignore[override]
        return self._error

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if not self._over.wait(timeout.total_seconds() or self._timeout):
            raise TimeoutError("transport 'al': not done in time; the copy goes on, and uses its tensor")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return []

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:  # type: ignore[override]
        return self._future


class AlTransport(Transport):  # type: ignore[misc]
    """`timeout`: seconds that wait() of a Work has by itself; None: for ever. `threads`: for async_op=True."""

    def __init__(
        self, device: torch.device | str | None = None, *, timeout: float | None = None, threads: int = 1
    ) -> None:
        super().__init__(device)
        if self.device is not None and self.device.type != "cpu":
            raise ValueError(
                f"transport 'al' copies CPU tensors; tensors on {self.device} have altorch.new_window()"
            )
        _check_timeout(timeout)
        self.name = secrets.token_hex(16)
        self._default_timeout = timeout
        self._threads = threads
        self._lock = threading.Lock()  # guards what follows
        self._peer: Any = None
        self._peer_name = ""
        self._memories: dict[tuple[int, int], AlMemory] = {}
        self._works: set[_Copy] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    @staticmethod
    def supported() -> bool:
        process = extension().Process
        return process.own().unsupported_reason() is None

    def bind(self, *, timeout: float | None = None) -> bytes:
        _check_timeout(timeout)
        self._check_open()
        own = extension().Process.own()
        node = extension().shared_memory_node()
        return _message(endpoint=self.name, node=node, pid=own.pid, address=own.address, number=own.number)

    def connect(self, peer_url: bytes, *, timeout: float | None = None) -> int:
        _check_timeout(timeout)
        fields = {"endpoint": str, "node": str, "pid": int, "address": int, "number": int}
        url = _texts(peer_url, "address", fields)
        if url["node"] != extension().shared_memory_node():
            raise RuntimeError(
                "transport 'al' copies between processes of one node that see each other, and the peer is elsewhere; "
                "transport 'nixl' crosses the network"
            )
        peer = extension().Process(url["pid"], url["address"], url["number"])
        if (why := peer.unsupported_reason()) is not None:
            raise RuntimeError(f"transport 'al' cannot copy from the peer: {why}")
        with self._lock:
            self._check_open()
            if self._peer is not None:
                raise RuntimeError("the transport is connected already; a peer has one of its own")
            self._peer, self._peer_name = peer, url["endpoint"]
        return 0

    def connected(self) -> bool:
        return self._peer is not None and not self._closed

    def register_memory(self, tensor: torch.Tensor, *, timeout: float | None = None) -> AlMemory:
        _check_timeout(timeout)
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"a tensor is registered, not a {type(tensor).__name__}")
        self._check_device(tensor.device)
        if tensor.device.type != "cpu":
            raise ValueError(f"transport 'al' copies CPU tensors, and this one is on {tensor.device}")
        if not tensor.is_contiguous() or tensor.nbytes == 0:
            raise ValueError("the tensor must be contiguous and not empty")
        if tensor.is_conj() or tensor.is_neg():
            raise ValueError(
                "the tensor's bytes are not its values: register tensor.resolve_conj().resolve_neg()"
            )
        key = tensor.data_ptr(), tensor.nbytes
        with self._lock:
            self._check_open()
            if key not in self._memories:
                self._memories[key] = AlMemory(self, tensor, *key)
                _kept.append(self._memories[key].word)
                _live.add(self)
            return self._memories[key]

    def unregister_memory(self, memory: Memory, *, timeout: float | None = None) -> None:
        _check_timeout(timeout)
        if not isinstance(memory, AlMemory) or memory.transport is not self:
            raise TypeError("the memory was not registered with this transport")
        with self._lock:
            self._check_open()
            if any(work.view.memory is memory for work in self._works):
                raise RuntimeError("a copy uses the memory; wait for it first")
            memory.word.value = 0
            if self._memories.get(key := (memory.address, memory.length)) is memory:
                del self._memories[key]  # which may be registered anew, with another handle
            if not self._memories:
                _live.discard(self)

    def write(
        self,
        local_buffer: MemoryView,
        remote_buffer: RemoteBuffer,
        *,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> int | Work:
        return self._start("write", local_buffer, remote_buffer, async_op, timeout)

    def read(
        self,
        local_buffer: MutableMemoryView,
        remote_buffer: RemoteBuffer,
        *,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> int | Work:
        if not isinstance(local_buffer, AlMutableView):
            raise TypeError("read() writes to its view: to_mutable_view() gives one that may be")
        return self._start("read", local_buffer, remote_buffer, async_op, timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """Waits for what is under way; raises TimeoutError where that takes longer, and may be called again then."""
        _check_timeout(timeout)
        self._close_cuda_streams()
        with self._lock:
            self._closed = True
            works, pool = list(self._works), self._pool
        for work in works:
            if not work._over.wait(timeout):
                raise TimeoutError("transport 'al': a copy is under way; close() again later")
        if pool is not None:
            pool.shutdown()
        with self._lock:
            for memory in self._memories.values():
                memory.word.value = 0
            self._memories.clear()
            self._peer = None
        _live.discard(self)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the transport is closed")

    def _check_transfer(
        self, local_buffer: MemoryView, remote_buffer: RemoteBuffer, *, mutable: bool
    ) -> None:
        if not isinstance(local_buffer, AlMutableView if mutable else AlView):
            raise TypeError("the view was not made by memory of this transport")
        if local_buffer.memory.transport is not self:
            raise TypeError("the view is of memory of another transport")
        if not isinstance(remote_buffer, AlRemoteBuffer):
            raise TypeError("the remote buffer is of another kind of transport")
        if not self.connected():
            raise RuntimeError(
                "the transport is not connected" if not self._closed else "the transport is closed"
            )
        if remote_buffer.endpoint != self._peer_name:
            raise ValueError("the remote buffer is not the connected peer's")
        if local_buffer.size() > remote_buffer.length:
            raise ValueError(
                f"{local_buffer.size()} bytes do not fit into the {remote_buffer.length} of the remote buffer"
            )
        local_buffer.memory.check()

    def _start(
        self, kind: str, view: MemoryView, remote: RemoteBuffer, async_op: bool, timeout: float | None
    ) -> int | Work:
        _check_timeout(timeout)
        self._check_transfer(view, remote, mutable=kind == "read")
        local, there, peer = cast(AlView, view), cast(AlRemoteBuffer, remote), self._peer
        if not async_op:
            self._copy(kind, peer, local, there)
            return 0
        work = _Copy(local, self._default_timeout if timeout is None else timeout)

        def run() -> None:
            error: Exception | None = None
            try:
                self._copy(kind, peer, local, there)
            except Exception as problem:
                error = problem
            with self._lock:
                self._works.discard(work)
            work.finish(error)

        with self._lock:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="al-transport")
            self._works.add(work)
            self._pool.submit(run)
        return work

    def _copy(self, kind: str, peer: Any, local: AlView, remote: AlRemoteBuffer) -> None:
        word = ctypes.c_uint64()
        trouble = peer.read(remote.word, ctypes.addressof(word), _WORD)
        if not trouble and word.value != remote.number:
            raise RuntimeError("transport 'al': the peer does not have this memory registered any more")
        if not trouble and local.length > 0:
            here, bytes_ = local.address, local.length
            trouble = (
                peer.read(remote.address, here, bytes_)
                if kind == "read"
                else peer.write(remote.address, here, bytes_)
            )
        if trouble:
            raise RuntimeError(
                f"transport 'al': {kind} of {local.length} bytes: {trouble}; process {peer.pid} has ended, or its "
                "memory is gone"
            )
