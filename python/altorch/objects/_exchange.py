# SPDX-License-Identifier: BSD-3-Clause
"""Moves pickled objects between the ranks of a group: one collective where all of them are small.

Each call begins with a header of SIZE bytes from each rank (of a broadcast, from the root). It has the sizes of the
object, an error in place of an object, and the object's stream where that fits. Streams that do not fit, and then large
buffers one by one, follow in collectives of exactly their size, through memory of the host.

    magic "ALO1" | operation | status | root | buffers | stream bytes | sizes of buffers | stream
"""

from __future__ import annotations

import itertools
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from altorch._extension import extension
from altorch.objects._pickling import MOST_LARGE, Buffer, Packed, Unsendable, text_of, unpack
from altorch.objects._rebuilding import Allow, names_of

SIZE = 2048  # bytes of a header
_FIXED = struct.Struct("<4sBBHiIQ")
_MAGIC = b"ALO1"
_OPERATIONS = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "send_object_list",
)
_OBJECT, _ERROR = 0, 1
Made = TypeVar("Made")
_LARGEST = 1 << 48


class Blob(NamedTuple):
    """What arrived from a rank."""

    stream: Buffer
    large: list[Buffer]


class Header(NamedTuple):
    operation: str
    root: int
    stream_bytes: int
    sizes: tuple[int, ...]  # of the large buffers
    inline: Buffer | None  # the stream, where it fits
    error: str | None  # why the rank has no object

    @property
    def waits(self) -> int:
        """Bytes of the stream that follow the header."""
        return 0 if self.inline is not None else self.stream_bytes

    @property
    def follow(self) -> list[int]:
        """Bytes of each buffer that follows the header: the stream if it does not fit, then the large ones."""
        return ([self.waits] if self.waits else []) + list(self.sizes)

    def blob(self, arrived: list[Buffer]) -> Blob:
        """What the header and the buffers that followed it hold."""
        return Blob(self.inline, arrived) if self.inline is not None else Blob(arrived[0], arrived[1:])


def _fits(packed: Packed) -> bool:
    return packed.stream.nbytes <= SIZE - _FIXED.size - 8 * len(packed.large)


def following(packed: Packed) -> list[Buffer]:
    """What follows the header, as Header.follow."""
    return ([] if _fits(packed) else [packed.stream]) + packed.large


def encode(operation: str, root: int, packed: Packed | Unsendable) -> bytes:
    """A header of SIZE bytes."""
    code = _OPERATIONS.index(operation)
    if isinstance(packed, Unsendable):
        text = text_of(packed).encode(errors="backslashreplace")[: SIZE - _FIXED.size]
        return (_FIXED.pack(_MAGIC, code, _ERROR, 0, root, 0, len(text)) + text).ljust(SIZE, b"\0")
    sizes = [view.nbytes for view in packed.large]
    data = _FIXED.pack(_MAGIC, code, _OBJECT, 0, root, len(sizes), packed.stream.nbytes)
    data += struct.pack(f"<{len(sizes)}Q", *sizes)
    if _fits(packed):
        data += packed.stream
    return data.ljust(SIZE, b"\0")


def decode(data: Buffer) -> Header:
    """Raises ValueError for what encode() does not write."""
    if data.nbytes != SIZE:
        raise ValueError(f"a header has {SIZE} bytes, not {data.nbytes}")
    magic, code, status, _, root, number, stream = _FIXED.unpack_from(data)
    if (
        magic != _MAGIC
        or code >= len(_OPERATIONS)
        or number > MOST_LARGE
        or stream > _LARGEST
        or status > _ERROR
    ):
        raise ValueError("a peer sent something else than the header of an object")
    end = _FIXED.size + 8 * number
    if status == _ERROR:
        text = bytes(data[end : end + stream]).decode(errors="replace")
        return Header(_OPERATIONS[code], root, 0, (), None, text)
    sizes = struct.unpack_from(f"<{number}Q", data, _FIXED.size)
    if any(size > _LARGEST for size in sizes):
        raise ValueError("a peer sent sizes that no object has")
    inline = data[end : end + stream] if stream <= SIZE - end else None
    return Header(_OPERATIONS[code], root, stream, sizes, inline, None)


def prepare(make: Callable[[], Made]) -> Made | Unsendable:
    """What `make` returns, or why this rank has nothing to send, which the other ranks are told instead."""
    try:
        return make()
    except Unsendable as error:
        return error
    except BaseException as error:
        return Unsendable(text_of(error), error)


class Exchange:
    """One call on a group of the backend `al`. Blocks until it is done on this rank. Raises on all ranks."""

    def __init__(self, backend: Any, group: str, operation: str) -> None:
        self._backend, self._operation, self.root = backend, operation, -1
        self.label = f"altorch: group '{group}': {operation}"
        self._rank, self._size = backend.rank(), backend.size()
        self._allowed: frozenset[str] | None = None

    def permit(self, allow: Allow) -> None:
        """What objects that arrive may consist of. Raises TypeError for what is no list of it."""
        self._allowed = names_of(allow)

    @property
    def is_root(self) -> bool:
        return bool(self._rank == self.root)

    def all_gather(self, mine: Packed | Unsendable) -> list[Blob]:
        return self._collect("all_gather", mine, True)

    def gather(self, mine: Packed | Unsendable) -> list[Blob]:
        """By rank on the root; empty on the others."""
        return self._collect("gather", mine, self.is_root)

    def broadcast(self, mine: Packed | Unsendable | None) -> Blob | None:
        """`mine`: on the root only. Returns None there."""
        data = bytearray(SIZE) if mine is None else encode(self._operation, self.root, mine)
        self._move("broadcast", b"", data, [])
        [header] = self._checked([decode(memoryview(data))], [self.root], mine)
        views = (
            following(mine) if isinstance(mine, Packed) else [self._memory(size) for size in header.follow]
        )
        for view in views:
            self._move("broadcast", b"", view, [])
        return None if isinstance(mine, Packed) else header.blob(views)

    def scatter(self, mine: Sequence[Packed] | Unsendable | None) -> Blob:
        """`mine`: on the root only, an object for each rank. What does not fit into headers goes in messages."""
        data = bytearray(SIZE)
        table = b""
        if isinstance(mine, Unsendable):
            table = encode(self._operation, self.root, mine) * self._size
        elif mine is not None:
            table = b"".join(encode(self._operation, self.root, each) for each in mine)
        self._move("scatter", table, data, [])
        [header] = self._checked([decode(memoryview(data))], [self.root], mine)
        if mine is None:
            arrived = [self._memory(size) for size in header.follow]
            for work in [self._backend.receive_bytes(view, self.root) for view in arrived]:
                work.wait()
            return header.blob(arrived)
        assert not isinstance(mine, Unsendable)  # _checked() has raised
        others = [(rank, each) for rank, each in enumerate(mine) if rank != self.root]
        for work in [
            self._backend.send_bytes(view, rank) for rank, each in others for view in following(each)
        ]:
            work.wait()
        return Blob(mine[self.root].stream, [memoryview(bytearray(view)) for view in mine[self.root].large])

    def send(self, peer: int, mine: Packed | Unsendable) -> None:
        """Messages to a rank: a header, and what does not fit into it."""
        self._post(memoryview(encode(self._operation, self._rank, mine)), peer)
        if isinstance(mine, Unsendable):
            self._reraise(mine)
            raise self._pickling_error(self._rank, text_of(mine))
        for view in following(mine):
            self._post(view, peer)

    def receive(self, peer: int) -> tuple[Blob, int]:
        """What send() has sent, and the sender. `peer` -1: of any rank."""
        data = memoryview(bytearray(SIZE))
        tensors = [_tensor_over(data)]
        work = self._backend.recv_anysource(tensors, 0) if peer < 0 else self._backend.recv(tensors, peer, 0)
        work.wait()
        sender = work._source_rank() if peer < 0 else peer
        header = decode(data)
        if header.error is not None:
            raise self._pickling_error(sender, header.error)
        if (header.operation, header.root) != ("send_object_list", sender):
            raise RuntimeError(
                f"{self.label}: rank {sender} of the group sent something else than a list of objects"
            )
        arrived = [self._memory(size) for size in header.follow]
        for view in arrived:
            self._backend.recv([_tensor_over(view)], sender, 0).wait()
        return header.blob(arrived), sender

    def load(self, rank: int, blob: Blob, by: Callable[..., Any] = unpack) -> Any:
        """The object of that rank: what `by` makes of it, as permit() allows."""
        try:
            return by(blob.stream, blob.large, self._allowed)
        except Exception as error:
            reason = text_of(error) if isinstance(error, pickle.UnpicklingError) else repr(error)
            raise pickle.UnpicklingError(
                f"{self.label}: the object of rank {rank} of the group was refused: {reason}"
            ) from error

    def _post(self, view: Buffer, peer: int) -> None:
        self._backend.send([_tensor_over(view)], peer, 0).wait()

    def _reraise(self, mine: object) -> None:
        """SystemExit and KeyboardInterrupt on the rank where they were raised. The others were told instead."""
        if isinstance(mine, Unsendable) and mine.error is not None and not isinstance(mine.error, Exception):
            raise mine.error

    def _pickling_error(self, rank: int, reason: str) -> pickle.PicklingError:
        return pickle.PicklingError(f"{self.label}: rank {rank} of the group has no object to send: {reason}")

    def _collect(self, kind: str, mine: Packed | Unsendable, receives: bool) -> list[Blob]:
        table = bytearray(SIZE * self._size)
        own = encode(self._operation, self.root, mine)
        self._move("all_gather", own, table, [SIZE] * self._size)
        views = memoryview(table)
        headers = [decode(views[rank * SIZE : (rank + 1) * SIZE]) for rank in range(self._size)]
        self._checked(headers, range(self._size), mine)
        assert isinstance(mine, Packed)  # else _checked() has raised
        streams: list[Buffer] = [header.inline or memoryview(b"") for header in headers]
        if any(header.waits for header in headers):
            counts = [header.waits for header in headers]
            parts = self._round(
                kind, mine.stream if counts[self._rank] else memoryview(b""), counts, receives
            )
            streams = [
                part if header.waits else inline
                for part, header, inline in zip(parts, headers, streams, strict=True)
            ]
        large: list[list[Buffer]] = [[] for _ in headers]
        for place in range(max(len(header.sizes) for header in headers)):
            counts = [header.sizes[place] if place < len(header.sizes) else 0 for header in headers]
            own_part = mine.large[place] if place < len(mine.large) else memoryview(b"")
            for rank, part in enumerate(self._round(kind, own_part, counts, receives)):
                if place < len(headers[rank].sizes):
                    large[rank].append(part)
        return [Blob(stream, rest) for stream, rest in zip(streams, large, strict=True)] if receives else []

    def _round(self, kind: str, own: Buffer, counts: list[int], receives: bool) -> list[Buffer]:
        """What each rank gives, `counts` bytes; empty views where this rank does not receive."""
        into = self._memory(sum(counts) if receives else 0)
        self._move(kind, own, into, counts)
        ends = itertools.accumulate(counts)
        return [into[end - count : end] for end, count in zip(ends, counts, strict=True)]

    def _checked(self, headers: list[Header], ranks: Sequence[int], mine: object) -> list[Header]:
        """Raises on all ranks, if a rank has no object or made another call."""
        self._reraise(mine)
        for header, rank in zip(headers, ranks, strict=True):
            if header.error is not None:
                raise self._pickling_error(rank, header.error)
            if (header.operation, header.root) != (self._operation, self.root):
                theirs = header.operation + (f" with rank {header.root} as root" if header.root >= 0 else "")
                raise RuntimeError(
                    f"{self.label}: rank {rank} of the group called {theirs}; all ranks must make the same calls in "
                    "the same order"
                )
        return headers

    def _memory(self, size: int) -> Buffer:
        return memoryview(extension().HostBytes(size)) if size else memoryview(b"")

    def _move(self, kind: str, own: Any, into: Any, counts: list[int]) -> None:
        self._backend.move_bytes(kind, max(self.root, 0), own, into, counts)


def _tensor_over(view: Buffer) -> Any:
    return extension().tensor_over(view)
