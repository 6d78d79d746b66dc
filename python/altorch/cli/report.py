# SPDX-License-Identifier: BSD-3-Clause
"""`altorch report`: who waited for whom in a job, from the flight records of its ranks, on one HTML page.

    altorch trace --dump                       has every rank write its record (TORCH_FR_DUMP_TEMP_FILE=flight/rank_)
    altorch trace --json > trace.json          hosts, routes and what a hung job is at
    altorch report flight/rank_* trace.json -o report.html

Files are recognised by their content: flight records (pickle or JSON), `altorch trace --json`, rows of `altorch bench`,
rows of altorch.stats() as JSON. The rank of a record is the number that the file's name ends in, as torch writes it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from altorch.cli._output import print_json

SUMMARY = "Write an HTML page of a job's flight records: a timeline, and who waited for whom."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from altorch.report.document import CALLS

    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="records, traces, rows")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="the page (default: report.html; with --json none)"
    )
    parser.add_argument(
        "--calls",
        type=int,
        default=CALLS,
        metavar="N",
        help="the timeline holds the latest N calls of each rank (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    from altorch import report
    from altorch.report import document, files

    if arguments.calls < 1:
        print("altorch report: --calls must be at least 1", file=sys.stderr)
        return 2
    out = arguments.out or (None if arguments.json else Path("report.html"))
    try:
        rows = document.of(files.read(arguments.files), arguments.calls)
        if out:
            report.write_page(out, rows)
    except OSError as error:
        print(f"altorch report: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"altorch report: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print_json(rows)
    else:
        print(f"{out}: {rows['answer']}")
    return 0
