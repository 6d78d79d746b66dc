# SPDX-License-Identifier: BSD-3-Clause
"""Which compiled extension serves this torch and this Python: torch changes the layout of the classes that a backend
derives from with every minor, so there is one for each of them in lib/torch<minor>/.

Looked at before the extension is loaded; the loader would only say "undefined symbol".
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

LIBRARIES = Path(__file__).parent / "lib"
ENGINE = LIBRARIES / "libaltorch_engine.so"
# The first torch whose Backend a Python class can implement (altorch.fallback).
FALLBACK_FROM = (2, 15)


def torch_minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def minors() -> list[str]:
    """The torch minors that this altorch was built for, oldest first."""
    names = [re.fullmatch(r"torch(\d+)\.(\d+)", file.parent.name) for file in LIBRARIES.glob("torch*/_C.*")]
    found = sorted({(int(name[1]), int(name[2])) for name in names if name})
    return [f"{major}.{minor}" for major, minor in found]


def extension_path(minor: str) -> Path:
    """Where the extension for `minor` and this Python is, if it was built."""
    return LIBRARIES / f"torch{minor}" / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"


def problem() -> str | None:
    """Why this altorch cannot run under this torch, as a sentence with the remedy; None when it can."""
    import torch

    built = minors()
    if not built:
        return (
            f"altorch is not built: there is no {LIBRARIES.parent.name}/lib/torch*. Build it with `make build` in its "
            "source folder, or install it with `pip install --no-build-isolation .` there."
        )
    served = built[0] if len(built) == 1 else f"{', '.join(built[:-1])} and {built[-1]}"
    minor = torch_minor(torch.__version__)
    if minor not in built:
        return (
            f"This altorch ({LIBRARIES.parent}) was built for torch {served}, and this is torch {torch.__version__}. "
            "Install an altorch that serves it (pip install --upgrade altorch), build it for this torch (in altorch's "
            "source folder: pip install --no-build-isolation --force-reinstall --no-deps .), or install a torch that "
            f"this one serves (pip install 'torch=={built[-1]}.*')."
        )
    if not extension_path(minor).is_file():
        others = ", ".join(path.name for path in extension_path(minor).parent.iterdir())
        return (
            f"This altorch was built for another Python ({others}), and this is Python {sys.version.split()[0]}. "
            "Install it again with this Python's pip."
        )
    return None


def needs_fallback() -> bool:
    """Whether there is no extension for this torch, and a group can be made in Python all the same."""
    import torch

    minor = torch_minor(torch.__version__)
    version = tuple(int(part) for part in minor.split("."))
    return version >= FALLBACK_FROM and ENGINE.is_file() and minor not in minors()


def check() -> None:
    """Raises ImportError when altorch cannot run here."""
    sentence = problem()
    if sentence is not None and not needs_fallback():
        raise ImportError(sentence)
