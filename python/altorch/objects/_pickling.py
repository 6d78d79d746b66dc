# SPDX-License-Identifier: BSD-3-Clause
"""Objects as a stream and large buffers beside it: pickle protocol 5, with tensors and arrays as buffers.

A large buffer (the memory of an array or a tensor) is sent from where it lies, and an object that arrives uses the
memory into which its buffer was received. _rebuilding.py makes tensors and arrays of what arrived.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from altorch._extension import extension
from altorch.objects import _rebuilding

LARGE = 64 << 10  # bytes; a smaller buffer is copied into the stream
MOST_LARGE = 240  # buffers of an object beside the stream; more are copied into it

Buffer = memoryview
_COUNT = struct.Struct("<I")
_ENTRY = struct.Struct("<QI")  # bytes of the stream and large buffers of one object of a list


@dataclass
class Packed:
    """A pickled object."""

    stream: Buffer
    large: list[Buffer] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)  # what the buffers lie in


class Unsendable(Exception):
    """Why this rank has no object to send. `error`: what was raised."""

    def __init__(self, reason: str, error: BaseException | None = None) -> None:
        super().__init__(reason)
        self.error = error


def pack(value: object) -> Packed:
    """Pickles `value`. Raises Unsendable, which names the path and the type of what cannot be pickled."""
    packed = Packed(memoryview(b""))
    packed.stream = _dump(value, packed)
    return packed


def pack_list(values: Sequence[object]) -> Packed:
    """Pickles each of `values` by itself, so that they share nothing where they arrive."""
    packed = Packed(memoryview(b""))
    streams, entries = [], []
    for value in values:
        before = len(packed.large)
        streams.append(_dump(value, packed))
        entries.append(_ENTRY.pack(streams[-1].nbytes, len(packed.large) - before))
    packed.stream = memoryview(bytearray().join([_COUNT.pack(len(entries)), *entries, *streams]))
    return packed


def unpack_list(stream: Buffer, large: Sequence[Buffer], allowed: frozenset[str] | None) -> list[Any]:
    """The objects of pack_list()."""
    [count] = _COUNT.unpack_from(stream)
    at, taken, values = _COUNT.size + count * _ENTRY.size, 0, []
    for place in range(count):
        size, buffers = _ENTRY.unpack_from(stream, _COUNT.size + place * _ENTRY.size)
        values.append(unpack(stream[at : at + size], large[taken : taken + buffers], allowed))
        at, taken = at + size, taken + buffers
    return values


def unpack(stream: Buffer, large: Sequence[Buffer], allowed: frozenset[str] | None) -> Any:
    """The object. `allowed`: the full names of what it may consist of beside plain values; None: anything."""
    if allowed is None:
        return pickle.loads(stream, buffers=large)
    return _rebuilding.Restricted(io.BytesIO(stream), large, allowed).load()


def _dump(value: object, packed: Packed) -> Buffer:
    file = io.BytesIO()
    try:
        _Pickler(file, packed).dump(value)
    except BaseException as error:
        path, culprit = "obj", value
        if isinstance(error, Exception):
            with contextlib.suppress(Exception):  # what is being looked at may raise, too
                path, culprit = _find(value, path, 0)
        kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}"
        path = path if len(path) <= 300 else f"{path[:140]} ... {path[-140:]}"
        raise Unsendable(f"{text_of(error)[:600]}; it is {path}, of type {kind}", error) from error
    return file.getbuffer()


def text_of(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _goes_into_stream(packed: Packed, buffer: pickle.PickleBuffer) -> bool:
    raw = buffer.raw()
    if raw.nbytes < LARGE or len(packed.large) == MOST_LARGE:
        return True
    packed.large.append(raw)
    return False


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, packed: Packed) -> None:
        # No method: the pickler would hold itself, and its memo would wait for the garbage
        # collector.
        super().__init__(file, protocol=5, buffer_callback=functools.partial(_goes_into_stream, packed))
        self._packed = packed
        self._storages: dict[int, _Storage] = {}

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and _is_plain(value):
            shared = self._shared(value.untyped_storage())
            place = (value.storage_offset(), tuple(value.size()), value.stride())
            return _rebuilding.tensor, (shared, value.dtype, *place, value.requires_grad)
        if type(value) is torch.UntypedStorage and value.device.type in ("cpu", "cuda"):
            return _Storage(value).__reduce_ex__(5)
        if type(value) is torch.TypedStorage and value._untyped_storage.device.type in ("cpu", "cuda"):
            return _rebuilding.typed_storage, (self._shared(value._untyped_storage), value.dtype)
        numpy = sys.modules.get("numpy")
        if numpy is not None and type(value) is numpy.ndarray and _rebuilding.is_plain_dtype(value.dtype):
            order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
            flat = numpy.ascontiguousarray(value.T if order == "F" else value)
            buffer = pickle.PickleBuffer(flat.reshape(-1).view(numpy.uint8) if flat.nbytes else b"")
            return _rebuilding.array, (buffer, value.dtype.str, value.shape, order)
        return NotImplemented

    def _shared(self, storage: torch.UntypedStorage) -> _Storage:
        shared = self._storages.setdefault(storage._cdata, _Storage(storage))
        self._packed.keep.append(shared)
        return shared


class _Storage:
    """The memory of tensors, once for all tensors of an object that share it."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage = storage

    def __reduce_ex__(self, protocol: object) -> Any:
        device = self._storage.device
        content = torch.empty(0, dtype=torch.uint8, device=device).set_(self._storage)  # type: ignore[call-overload]
        if device.type == "cuda":
            content = torch.empty(content.numel(), dtype=torch.uint8, pin_memory=True).copy_(content)
        return _rebuilding.storage, (pickle.PickleBuffer(extension().HostBytes(content)), str(device))


def _is_plain(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.device.type not in ("cpu", "cuda") or tensor.__dict__:
        return False
    if (
        tensor.is_nested
        or tensor.is_quantized
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor._backward_hooks
    ):
        return False
    if getattr(tensor, "has_names", bool)():
        return False
    if (tensor.requires_grad and not tensor.is_leaf) or torch._C._functorch.is_functorch_wrapped_tensor(
        tensor
    ):
        return False
    reached = _rebuilding.bytes_reached(tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride())
    return bool(reached <= tensor.untyped_storage().nbytes())


def _find(value: object, path: str, depth: int) -> tuple[str, object]:
    """The innermost part of `value` that cannot be pickled."""
    for step, part in _parts(value) if depth < 32 else ():
        try:
            _Pickler(io.BytesIO(), Packed(memoryview(b""))).dump(part)
        except Exception:
            return _find(part, path + step, depth + 1)
    return path, value


def _shown(key: object) -> str:
    try:
        return f"{key!r:.80}"
    except Exception:
        return f"a {type(key).__qualname__}"


def _parts(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, dict):
        for key, part in value.items():
            shown = _shown(key)
            yield f"[{shown}]", part
            yield f".keys()[{shown}]", key
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((f".{name}", part) for name, part in vars(value).items())
