# SPDX-License-Identifier: BSD-3-Clause
"""No file uses a word of our own that a term of the field has replaced."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("csrc", "python", "tests", "docs", "cmake", "examples", "benchmarks")
SUFFIXES = {".cpp", ".h", ".cuh", ".cu", ".inc", ".py", ".pyi", ".md", ".cmake", ".sh", ".txt"}
REPLACED = {
    r"hurried|LeftBehind": "fast exit, detached thread",
    r"fork_closed|close_in_forks|close_unforked": "close on fork",
    r"mark_hurt|lost_much": "tainted",
    r"(patient|watched|attended)_store|(Patient|Watched|Attended)Store": "retrying store, store with liveness checks",
    r"[Ss]urvey": "survivor agreement",
    r"[Vv]erdict": "commit decision, result",
    r"[Mm]eetings?_?\b|\bmeet\((store|checked|\*store)|\bGathering\b|meet_able": "store allgather, barrier",
    r"[Ww]hole_?[Cc]ollectives|[Ww]hole collectives|WholeRow": "native collectives",
    r"keep_for_ever": "leak intentionally",
    r"\b(own_)?seats?(_|_of)?\b|\benroll\b|\bretire\(": "mesh rank, append to the history, drain",
    r"[Pp]ersona\b|[Tt]raveller|\b[Jj]ourneys?\b|[Uu]pheavals?\b(?!-)": "impersonated backend, stress run, churn",
    r"\bLine(Places|Fold|Mail|Peer|Case)\b|_in_lines\b|go(es)? in lines": "LL128",
    r"\bBulk(Places|Fold|Mail|Reduction)\b|\bletters_|(bulk|fold)_(fold|bulk|mail)": "one-shot, two-shot, exchange",
    r"obstacle|why_not": "unsupported reason",
    r"\bhomes\b|[Hh]ome_?([Ll]inks|[Nn]ews)|_home\(|\b[Hh]ub\b|HubPlace": "node, coordinator",
}

# A sentence of the source names its actor: the caller, a peer, all ranks, no rank.
NAMELESS = re.compile(r"\b(nobody|somebody|everybody|whoever|anybody)\b", re.IGNORECASE)


def lines():
    for path in sources():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            yield path.relative_to(ROOT), number, line


def sources():
    yield from ROOT.glob("*.md")
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and path != Path(__file__) and path.is_file():
                yield path


def test_replaced_words_stay_away():
    pattern = re.compile("|".join(f"(?P<w{number}>{words})" for number, words in enumerate(REPLACED)))
    terms = list(REPLACED.values())
    found = []
    for path, number, line in lines():
        if match := pattern.search(line):
            kind = next(name for name, text in match.groupdict().items() if text is not None)
            found.append(f"{path}:{number}: {match[0]}: say {terms[int(kind[1:])]}")
    assert not found, "\n".join(found)


def test_comments_name_the_actor():
    found = [
        f"{path}:{number}: {match[0]}"
        for path, number, line in lines()
        if path.parts[0] == "csrc" and (match := NAMELESS.search(line))
    ]
    assert not found, "\n".join(found)
