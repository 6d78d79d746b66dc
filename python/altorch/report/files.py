# SPDX-License-Identifier: BSD-3-Clause
"""Reads the files of a report. The content says what a file is, not its name; but a flight record knows no rank.

What cannot be read raises ValueError or OSError with the file and the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from altorch.report import plain_pickle, records, traces
from altorch.report.records import Inputs

MOST_BYTES = 64 << 20
# Files that hold what one rank did: kind, whether a document is one, and its reader.
_OF_A_RANK = (
    ("flight record", records.is_flight_record, records.add_flight_record),
    ("statistics", traces.is_statistics, traces.add_statistics),
)
_EXPECTED = (
    "it is none of: a flight record of torch (pickle or JSON), `altorch trace --json`, rows of `altorch bench` or "
    "of altorch.stats()"
)


def read(files: Iterable[Path]) -> Inputs:
    inputs = Inputs()
    documents = []
    for file in files:
        try:
            documents.append((file, _document(_content(file))))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
    # A trace comes last: it adds only the calls that no flight record has.
    for file, document in sorted(documents, key=lambda each: traces.is_trace(each[1])):
        try:
            inputs.files.append({"file": str(file)} | _add(inputs, document, file))
        except KeyError as error:
            raise ValueError(f"{file}: it has an entry without {error}") from None
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
    return inputs


def _content(file: Path) -> bytes:
    if file.exists() and not file.is_file():
        raise ValueError("it is not a regular file")
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"it has {size} bytes, and a report reads up to {MOST_BYTES}")
    return file.read_bytes()


def _document(data: bytes) -> Any:
    if not data.strip():
        raise ValueError("it is empty")
    if data[:1] == b"\x80":
        return plain_pickle.loads(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError(_EXPECTED) from None
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None
    except ValueError as error:
        lines = text.splitlines()
        if len(lines) == 1 or not lines[0].rstrip().endswith("}"):
            raise ValueError(f"it is not valid JSON, or it is truncated: {error}") from None
    return {"rows": [_line(number, line) for number, line in enumerate(lines, 1) if line.strip()]}


def _line(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError(f"line {number} has brackets that are nested too deep") from None
    except ValueError as error:
        raise ValueError(f"line {number} is not valid JSON, or it is truncated: {error}") from None


def _add(inputs: Inputs, document: Any, file: Path) -> dict[str, Any]:
    """What the file is."""
    for kind, is_one, add in _OF_A_RANK:
        if is_one(document):
            rank = _rank(inputs, file, kind)
            return {"kind": kind, "rank": rank, "count": add(inputs, document, rank)}
    if traces.is_trace(document):
        return {"kind": "trace", "rank": None, "count": traces.add_trace(inputs, document)}
    rows = document.get("rows", [document]) if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(_EXPECTED)
    if not any({"benchmark", "contender"} & row.keys() for row in rows):
        raise ValueError(_EXPECTED)
    inputs.bench += rows
    return {"kind": "benchmark rows", "rank": None, "count": len(rows)}


def _rank(inputs: Inputs, file: Path, kind: str) -> int:
    """As torch's own tools take it: the number that the name ends in."""
    number = re.search(r"(\d{1,9})(?:\.\w+)*$", file.name)
    if not number:
        raise ValueError(f"its name does not end in a rank; name it rank_0 for the {kind} of rank 0")
    rank = int(number[1])
    if other := next((each for each in inputs.files if (each["kind"], each["rank"]) == (kind, rank)), None):
        raise ValueError(f"rank {rank} is in {other['file']}, too")
    return rank
