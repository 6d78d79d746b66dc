# SPDX-License-Identifier: BSD-3-Clause
"""The compiled half, loaded when first needed."""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import altorch_hooks

from altorch import _place, _version_check, _windows

_loaded: ModuleType | None = None
_owner = os.getpid()


def extension() -> ModuleType:
    """altorch._C; raises ImportError with a sentence when it cannot be loaded."""
    global _loaded, _owner
    if _loaded is None:
        if (sentence := _version_check.problem()) is not None:
            raise ImportError(sentence)
        import torch
        import torch.distributed

        try:
            _C = _load(_version_check.extension_path(_version_check.torch_minor(torch.__version__)))
        except ImportError as error:
            raise ImportError(
                f"altorch's extension could not be loaded: {error}. Install altorch again, or build it for this "
                "environment: `make build` in its source folder."
            ) from error
        _C.set_carries_cuda("cuda" in altorch_hooks.devices())
        _C.set_broken_window_hook(_windows.forget)
        _C.set_merge_maker(_merged)
        _C.set_place_finder(_place.of_main_thread)
        _windows.mend_torch()
        _loaded, _owner = _C, os.getpid()
        atexit.register(finalize)
    return _loaded


def _load(path: Path) -> ModuleType:
    """`path` as the module altorch._C."""
    name = "altorch._C"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def own_process() -> None:
    """This process has groups of its own from now on: in a forked child too, what ends them at exit runs."""
    global _owner
    _owner = os.getpid()


def _merged(store: Any, membership: Any, options: Any) -> tuple[Any, str]:
    from altorch import _backend

    return _backend.merged(store, membership, options)


def finalize() -> None:
    """Ends MPI once. A forked child inherits this function with the interpreter and must not touch its parent's MPI."""
    if _loaded is not None and os.getpid() == _owner:
        _loaded.end_abort_hooks()
        _loaded.stop_threads()
        _loaded.finalize_mpi(_ends_with_an_exception())


def _ends_with_an_exception() -> bool:
    """Whether an uncaught exception ends this program: its peers wait for it somewhere else than in MPI_Finalize."""
    if hasattr(sys, "ps1"):  # a session: the last exception may be long ago
        return False
    return getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None
