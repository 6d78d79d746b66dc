# SPDX-License-Identifier: BSD-3-Clause
"""Where this program is, for other ranks that it keeps waiting."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from pathlib import Path


def _folder(file: str) -> str:
    return str(Path(file).parent) + os.sep


def of_main_thread() -> str:
    """The main thread's innermost line that is the program's own, of no installed package: "train.py:88 in load"."""
    innermost = frame = sys._current_frames().get(threading.main_thread().ident or 0)
    torch = getattr(sys.modules.get("torch"), "__file__", None) or __file__
    installed = [sysconfig.get_path(each) + os.sep for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    libraries = (_folder(__file__), _folder(torch), "<frozen ", *installed)
    while frame is not None and frame.f_code.co_filename.startswith(libraries):
        frame = frame.f_back
    frame = frame or innermost
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}" if frame else ""
