# SPDX-License-Identifier: BSD-3-Clause
"""One HTML page of the rows of document.py: tables, figures, the rows themselves, and plotly.js, which draws them.

Nothing is loaded from elsewhere. Texts of the files are escaped; the rows lie in the JSON script element `rows`.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from altorch.report import figures, sections

_HERE = Path(__file__).parent


def plotly_source() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ImportError("plotly is not installed; pip install 'altorch[report]'") from None
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def html(rows: dict[str, Any]) -> str:
    hues = figures.colours(row["operation"] for row in rows["operations"])
    waited_for = figures.waited_for(rows["waited_for"])
    drawn = [waited_for] if waited_for else []
    first_line = len(drawn)
    drawn += figures.bandwidth(rows["bandwidth"])
    parts = [
        f"<h1>altorch report</h1><p class='answer'>{escape(rows['answer'])}</p>",
        *(f"<p class='note'>{escape(note)}</p>" for note in rows["notes"]),
        _section("Calls that had not completed", sections.incomplete(rows)),
        _section("Who waited for whom", sections.waits(rows, waited_for)),
        _section("Timeline", sections.timeline(rows)),
        _section(sections.longest_title(rows), sections.longest(rows)),
        _section("Operations", sections.operations(rows, hues)),
        _section("Routes", sections.routes(rows)),
        _section("Bandwidth", sections.bandwidth(drawn[first_line:], first_line)),
        _section("Ranks and machines", sections.machines(rows)),
        _section("Files", sections.files(rows)),
    ]
    data = {"figures": drawn, "colours": hues}
    return "\n".join(
        (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>altorch report</title>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<style>{(_HERE / 'page.css').read_text()}</style></head><body>",
            *filter(None, parts),
            f"<script type='application/json' id='rows'>{_json(rows)}</script>",
            f"<script type='application/json' id='figures'>{_json(data)}</script>",
            f"<script>{plotly_source()}</script>",
            f"<script>{(_HERE / 'page.js').read_text()}</script></body></html>\n",
        )
    )


def _json(document: Any) -> str:
    """No `<`, so that no text can end the script element."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""
