# SPDX-License-Identifier: BSD-3-Clause
"""One binary serves one torch minor: torch changes the layout of the classes we derive from with every minor.

Checked before the extension is loaded; the loader would only say "undefined symbol".
"""

from __future__ import annotations

import importlib


def torch_minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def problem() -> str | None:
    """Why this altorch cannot run under this torch, as a sentence with the remedy; None when it can."""
    import torch

    try:
        build = importlib.import_module("altorch._build_info")
    except ModuleNotFoundError:
        return (
            "altorch is not built: there is no altorch/_build_info.py. Build it with `make build` in its source "
            "folder, or install it with `pip install --no-build-isolation .` there."
        )
    if torch_minor(torch.__version__) == build.torch_minor:
        return None
    return (
        f"This altorch was built for torch {build.torch_minor}, and this is torch {torch.__version__}. "
        f"Build it again for this torch (in altorch's source folder: pip install --no-build-isolation "
        f"--force-reinstall --no-deps .), or install the torch it was built for "
        f"(pip install 'torch=={build.torch_minor}.*')."
    )


def check() -> None:
    """Raises ImportError when altorch cannot run here."""
    sentence = problem()
    if sentence is not None:
        raise ImportError(sentence)
