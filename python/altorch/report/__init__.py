# SPDX-License-Identifier: BSD-3-Clause
"""Why a job is slow, on one HTML page: flight records, traces, statistics and benchmark rows of its ranks.

files.py, records.py, traces.py, fields.py, plain_pickle.py   read files, and refuse what they do not know
waits.py, clocks.py, totals.py, timeline.py                   compute rows; pure functions
document.py, sentences.py                                     all rows in one dictionary, and what they say
figures.py, sections.py, page.py, page.css, page.js           the page
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_page(file: Path, rows: dict[str, Any]) -> None:
    """Raises ImportError if plotly is not installed, OSError if the file cannot be written."""
    from altorch.report import page

    file.write_text(page.html(rows), encoding="utf-8", errors="replace")


def write_bench(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    """The page of benchmark rows alone."""
    from altorch.report import document, records

    write_page(file, document.of(records.Inputs(bench=list(rows))))


def write_trace(file: Path, found: dict[str, Any]) -> None:
    """The page of `altorch trace` alone. Raises ValueError if it holds several jobs."""
    from altorch.report import document, records, traces

    inputs = records.Inputs()
    traces.add_trace(inputs, found)
    write_page(file, document.of(inputs))


def unwritable(file: Path) -> str:
    """Why no page can be written, found before anything is measured; empty: one can. Raises ImportError as above."""
    from altorch.report import page

    page.plotly_source()
    if file.is_dir() or not file.absolute().parent.is_dir():
        return f"{file} cannot be written: no such folder, or it is not a regular file"
    return ""
