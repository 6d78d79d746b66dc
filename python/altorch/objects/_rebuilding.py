# SPDX-License-Identifier: BSD-3-Clause
"""What arrives from other ranks: tensors and arrays over the memory they were received in, and restricted pickles.

The functions that pickles name (storage, tensor, array) check what they are given: a peer may send anything.
"""

from __future__ import annotations

import enum
import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

Allow = Iterable["str | type | Callable[..., Any]"] | None
_OURS = ("array", "storage", "tensor", "typed_storage")
_ANY_CODE = "torch.storage._load_from_bytes"  # runs torch.load() without limits
_ALIGNMENT = 16  # bytes


def storage(buffer: Any, device: str) -> torch.UntypedStorage:
    """The memory of tensors."""
    view = memoryview(buffer).cast("B") if memoryview(buffer).nbytes else memoryview(b"")
    if view.nbytes == 0:
        return torch.empty(0, dtype=torch.uint8, device=device).untyped_storage()
    content = torch.frombuffer(bytearray(view) if view.readonly else view, dtype=torch.uint8)
    if device != "cpu":
        content = content.to(device)
    elif content.data_ptr() % _ALIGNMENT:  # it lies behind another rank's bytes
        content = content.clone()
    return content.untyped_storage()


def typed_storage(memory: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    """As torch's own functions want the memory of a tensor that is part of a gradient computation, or quantized."""
    return torch.TypedStorage(wrap_storage=memory, dtype=dtype, _internal=True)


def bytes_reached(dtype: torch.dtype, offset: int, size: Sequence[int], stride: Sequence[int]) -> int:
    """How many bytes of its memory, from the beginning, a tensor needs; 0 without elements."""
    last = offset + sum((each - 1) * step for each, step in zip(size, stride, strict=True))
    return 0 if 0 in size else int((last + 1) * dtype.itemsize)


def tensor(
    memory: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
) -> Tensor:
    """A tensor over `memory`, within which it must lie: torch would make an empty one larger."""
    if min(offset, *size, *stride, 0) < 0:
        raise pickle.UnpicklingError("a tensor has a negative size, stride or offset")
    if bytes_reached(dtype, offset, size, stride) > memory.nbytes():
        raise pickle.UnpicklingError(
            f"a tensor of shape {size!r:.80} does not fit into {memory.nbytes()} bytes"
        )
    made = torch.empty(0, dtype=dtype, device=memory.device).set_(memory, offset, size, stride)  # type: ignore[call-overload]
    return made.requires_grad_(requires_grad)  # type: ignore[no-any-return]


def is_plain_dtype(dtype: Any) -> bool:
    """Whether dtype.str describes the type: not of structures, objects, empty strings, and types of other packages."""
    import numpy as np

    try:
        return dtype.kind in "biufcSUMm" and dtype.itemsize > 0 and np.dtype(dtype.str) == dtype
    except TypeError:  # NumPy does not know the type by that name
        return False


def array(buffer: Any, dtype: str, shape: tuple[int, ...], order: Any) -> Any:
    """A NumPy array over the buffer."""
    import numpy as np

    kind = np.dtype(dtype) if isinstance(dtype, str) else None
    if kind is None or not is_plain_dtype(kind) or order not in ("C", "F"):
        raise pickle.UnpicklingError(f"{dtype!r:.80} is no plain type of an array")
    view = memoryview(buffer)
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != view.nbytes:
        raise pickle.UnpicklingError(f"an array of shape {shape!r:.80} does not fit into {view.nbytes} bytes")
    if view.nbytes == 0:
        return np.empty(shape, kind, order)
    made = np.ndarray(shape, kind, buffer=bytearray(view) if view.readonly else view, order=order)
    return made if made.flags.aligned else made.copy(order="K")


def names_of(allow: Allow) -> frozenset[str] | None:
    """Full names. Raises TypeError for what is no list of classes, functions and names."""
    if allow is None:
        return None
    if isinstance(allow, str):
        raise TypeError("allow= must be a list of classes, functions and full names; it is one string")
    return frozenset(map(_full_name, allow))


def _full_name(each: Any) -> str:
    if isinstance(each, str):
        return each
    if not hasattr(each, "__module__") or not hasattr(each, "__qualname__"):
        raise TypeError(f"allow= names classes, functions and full names, and {each!r:.80} is none of these")
    return f"{each.__module__}.{each.__qualname__}"


class Restricted(pickle._Unpickler):  # type: ignore[name-defined,misc]  # the one in C knows no hook for BUILD
    """Loads what consists of plain values, tensors, arrays and the classes and functions of `allowed`.

    A pickle may call what it names, and set the state of instances of allowed classes. It may change no class, function
    or enum, nor anything else that it names.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, file: Any, buffers: Sequence[Any], allowed: frozenset[str]) -> None:
        super().__init__(file, fix_imports=False, buffers=buffers)  # what is checked is what is imported
        self._allowed = allowed
        self._named: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in _OURS:
            return globals()[name]
        if module == "torch" and isinstance(vars(torch).get(name), torch.dtype):
            return vars(torch)[name]
        full_name = f"{module}.{name}"
        if full_name == _ANY_CODE:
            raise pickle.UnpicklingError(
                f"it needs {full_name}, which runs any code; detach() and clone() the tensor"
            )
        if full_name not in self._allowed:
            raise pickle.UnpicklingError(f"it needs {full_name}, which allow= does not name")
        self._named.append(super().find_class(module, name))
        return self._named[-1]

    def get_extension(self, code: int) -> None:
        raise pickle.UnpicklingError(
            f"it needs extension {code} of copyreg, and allow= takes full names only"
        )

    def load_build(self) -> None:
        instance = self.stack[-2]  # type: ignore[attr-defined]
        kind = type(instance)
        shared = isinstance(instance, (type, enum.Enum)) or any(instance is each for each in self._named)
        if shared or f"{kind.__module__}.{kind.__qualname__}" not in self._allowed:
            raise pickle.UnpicklingError(f"it sets the state of a {kind.__module__}.{kind.__qualname__}")
        super().load_build()  # type: ignore[misc]

    dispatch[pickle.BUILD[0]] = load_build
