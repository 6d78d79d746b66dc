# SPDX-License-Identifier: BSD-3-Clause
"""Starts tests/launchers/checks.py under each launcher of this machine, one after another, and prints a table.

    python -m tests.launchers                        # all of them
    python -m tests.launchers --only srun --only flux
    python -m tests.launchers --json build/launchers.json --markdown docs/launchers.md

A launcher that is not here is skipped with the reason. What needs only a Python package is installed into
build/launchers; what needs root is never installed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.launchers.table import REPOSITORY, ROWS, Row, Tool
from tests.ranks.launch import clean_environment
from tests.ranks.page import machine, write_between

COLUMNS = ("launcher", "version", "ranks", "transport", "result", "seconds", "remark")


def environment(row: Row, tool: Tool) -> dict[str, str]:
    """Without what an outer launcher or the caller's own altorch settings would tell the ranks."""
    kept = {name: value for name, value in clean_environment().items() if not name.startswith("ALTORCH_")}
    path = f"{REPOSITORY / 'python'}:{REPOSITORY}"
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONPATH": path, **dict(tool.env), **dict(row.env)}


def kill(process: subprocess.Popen[str], marker: str) -> None:
    """The command's process group, and processes that left it: they have the marker in their environment."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"ALTORCH_LAUNCHERS_RUN={marker}".encode() in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)


def rows_of(output: str) -> list[dict[str, Any]]:
    found = []
    for line in output.splitlines():
        with suppress(json.JSONDecodeError):
            each = json.loads(line)
            if isinstance(each, dict) and "transport" in each:
                found.append(each)
    return sorted(found, key=lambda each: int(each["rank"]))


def wrong(row: Row, code: int | None, found: list[dict[str, Any]]) -> str:
    """What differs from what the row expects, or ""."""
    if code is None:
        return f"not done after {row.deadline} s"
    if code != 0:
        return f"ended with status {code}"
    if [(each["rank"], each["size"]) for each in found] != [(rank, row.ranks) for rank in range(row.ranks)]:
        return f"expected {row.ranks} ranks, {len(found)} reported: {found}"
    for key in ("launcher", "transport"):
        values = {each[key] for each in found}
        if len(values) != 1 or not values <= set(getattr(row, key).split("|")):
            return f"{key}: expected {getattr(row, key)}, found {', '.join(sorted(values))}"
    other = {each["mpi"] for each in found if not each["mpi"].startswith(row.mpi)}
    if other:
        return f"expected {row.mpi} as MPI, found {', '.join(sorted(other))}"
    if max(each["restart"] for each in found) < row.restarts:
        return "no worker was started again"
    return ""


def run(row: Row, show: bool) -> dict[str, Any]:
    tool = row.find()
    result: dict[str, Any] = {"launcher": row.name, "version": tool.version, "ranks": row.ranks,
                              "transport": "", "result": "skipped", "seconds": 0.0,
                              "remark": tool.reason}  # fmt: skip
    if tool.reason:
        return result
    marker = f"{os.getpid()}.{time.monotonic_ns()}"
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            row.command(tool, Path(folder)),
            cwd=REPOSITORY,
            env={**environment(row, tool), "ALTORCH_LAUNCHERS_RUN": marker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        code: int | None = None
        try:
            output, errors = process.communicate(timeout=row.deadline)
            code = process.returncode
        except subprocess.TimeoutExpired:
            kill(process, marker)
            output, errors = process.communicate()
        finally:
            kill(process, marker)
    found = rows_of(output)
    difference = wrong(row, code, found)
    result["seconds"] = round(time.monotonic() - begin, 1)
    result["result"] = "failed" if difference else "simulated" if row.simulated else "passed"
    result["remark"] = difference or row.simulated
    result["altorch names it"] = found[0]["launcher"] if found else ""
    result["altorch's MPI"] = found[0]["mpi"] if found else ""
    result["transport"] = found[0]["transport"] if found else ""
    if difference or show:
        print(output, errors[-6000:], sep="\n", file=sys.stderr)
    return result


BEGIN, END = (
    "<!-- python -m tests.launchers --markdown writes this table -->\n",
    "<!-- end of the table -->\n",
)


def markdown(results: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|--:|---|---|--:|---|"]
    lines += ["| " + " | ".join(str(result[column]) for column in COLUMNS) + " |" for result in results]
    return f"{machine()}.\n\n" + "\n".join(lines) + "\n"


def text(results: list[dict[str, Any]]) -> str:
    cells = [COLUMNS, *(tuple(str(result[column]) for column in COLUMNS) for result in results)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="rows whose name contains TEXT"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the table, and what altorch named each launcher"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table into FILE")
    parser.add_argument(
        "--show", action="store_true", help="print what the ranks print, also of rows that pass"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is killed
    results = []
    for row in ROWS:
        if options.only and not any(words.lower() in row.name.lower() for words in options.only):
            continue
        print(f"--- {row.name} ({row.transport})", flush=True)
        results.append(run(row, options.show))
    if not results:
        parser.error("no row has such a name")
    print("", machine(), "", text(results), sep="\n")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": results}, indent=1) + "\n")
    if options.markdown:
        write_between(options.markdown, BEGIN, END, markdown(results))
    return 1 if any(result["result"] == "failed" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
