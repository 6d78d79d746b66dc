# SPDX-License-Identifier: BSD-3-Clause
"""Why a job is slow, on one HTML page: flight records, traces, statistics and benchmark rows of its ranks.

files.py, records.py, traces.py, fields.py, plain_pickle.py   read files, and refuse what they do not know
waits.py, clocks.py, totals.py, timeline.py                   compute rows; pure functions
document.py, sentences.py                                     all rows in one dictionary, and what they say
figures.py, sections.py, page.py, page.css, page.js           the page
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_page(file: Path, rows: dict[str, Any]) -> None:
    """Raises ImportError if plotly is not installed, OSError if the file cannot be written."""
    from altorch.report import page

    file.write_text(page.html(rows), encoding="utf-8", errors="replace")
