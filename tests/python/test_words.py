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
    r"\bg[ai]ven?_up|\bgives_up|\bgave (it )?up\b|(is|are|was|were|been) given up\b|GivenUp|GivesUp": "aborted",
    r"whatever_is_asked|comes_first": "forced, preferred",
    r"kernels_meet|\b(Host|Device)Card\b": "co-resident, handle",
    r"\bAwaited\b|\bawaited\(\)|\bbells?_\b|kLongestDoze|\bdoze": "wait target, doorbell, sleep",
    r"LinkWords|words_of_(process|late_ranks)|last_word\b": "message, text, reported reason",
    r"\b(struct |Mail::)Letter\b": "message, received frame",
    r"PlaceShape|SmallExchange|\bpair_(posts|areas)\b|small\.cuh": "LL, send slot, receive slot",
    r"csrc/(engine|observe|common)/|\"(engine|observe|common)/": "the rooms of ARCHITECTURE.md",
    r"[Ss]tall_?[Bb]oard|stall board|\b[Ii]nquir(y|ies)\b": "desync board, desync query",
    r"\bhomes\b|[Hh]ome_?([Ll]inks|[Nn]ews)|_home\(|\b[Hh]ub\b|HubPlace": "node, coordinator",
}

# A sentence names its actor: the caller, a peer, all ranks, no rank.
NAMELESS = re.compile(r"\b(nobody|somebody|everybody|whoever|anybody)\b", re.IGNORECASE)


def lines_with(pattern):
    for path in sources():
        text = path.read_text(errors="replace")
        for match in pattern.finditer(text):
            yield f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}", match


def sources():
    yield from ROOT.glob("*.md")
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            written = ".egg-info" not in str(path)  # those are what setuptools found
            if written and path.suffix in SUFFIXES and path != Path(__file__) and path.is_file():
                yield path


def test_replaced_words_stay_away():
    pattern = re.compile("|".join(f"(?P<w{number}>{words})" for number, words in enumerate(REPLACED)))
    terms = list(REPLACED.values())
    found = []
    for where, match in lines_with(pattern):
        kind = next(name for name, text in match.groupdict().items() if text is not None)
        found.append(f"{where}: {match[0]}: say {terms[int(kind[1:])]}")
    assert not found, "\n".join(found)


def test_sentences_name_the_actor():
    found = [f"{where}: {match[0]}" for where, match in lines_with(NAMELESS)]
    assert not found, "\n".join(found)


def test_comments_end_within_100_columns():
    """A table or a drawing, which has two spaces in a line, and a ruled line may be wider."""
    comment = re.compile(r"\s*(//|#) (?!NOLINT|noqa|type:|clang-format|-----)\S.*")
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources()
        if path.suffix in SUFFIXES - {".md", ".txt"}
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if len(line) > 100 and comment.fullmatch(line) and "  " not in line.strip()
    ]
    assert not wide, "comments of more than 100 columns:\n" + "\n".join(wide)
