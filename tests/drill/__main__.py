# SPDX-License-Identifier: BSD-3-Clause
"""The drill as a command: `python -m tests.drill`, or `make drill`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

from altorch.cli._output import Progress
from tests.drill.cells import CELLS, Cell
from tests.drill.report import markdown, print_results, summary, versions, write_json
from tests.drill.routes import ROUTES
from tests.drill.runner import Result, Runner


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.drill",
        description="Lets ranks fail in every way at every moment, and compares what becomes of the others with what "
        "is expected. Exit code 1 when a cell of backend al does not end as expected; other backends are recorded.",
    )
    parser.add_argument(
        "--backend", default="al", help="backends, with commas: al, gloo, nccl, nccl2 (default: %(default)s)"
    )
    parser.add_argument(
        "--route", default="", help=f"routes, with commas, of {', '.join(ROUTES)} (default: all)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="tensors of one kind only")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="cells whose name this regular expression finds"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2 * (os.cpu_count() or 1),
        metavar="N",
        help="cells at a time (default: %(default)s, two a core)",
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="every cell N times")
    parser.add_argument(
        "--again",
        action="store_true",
        help="cells that do not end as expected once more, one at a time: on a busy machine. Both are shown, and what "
        "fails both times fails",
    )
    parser.add_argument(
        "--within",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="begin no cell later than so many seconds after the start: what is left is skipped",
    )
    parser.add_argument("--list", action="store_true", help="name the cells, run none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was seen")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write a table with a column for each route"
    )
    return parser.parse_args(words)


def choose(arguments: argparse.Namespace) -> list[Cell]:
    backends, routes = arguments.backend.split(","), [name for name in arguments.route.split(",") if name]
    if unknown := set(routes) - set(ROUTES):
        raise SystemExit(f"no such route: {', '.join(sorted(unknown))}; there are {', '.join(ROUTES)}")
    return [
        cell
        for cell in CELLS
        if cell.route.backend in backends
        and (not routes or cell.route.name in routes)
        and arguments.device in (None, cell.route.device)
        and re.search(arguments.only, cell.name)
    ]


def main() -> int:
    arguments = parse()
    cells = choose(arguments)
    if not cells:
        print("no cell is chosen; --list names them", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    cells = [cell for cell in cells for _ in range(arguments.repeat)]
    began = time.monotonic()
    results: list[Result] = []
    with Runner() as runner, Progress(len(cells)) as progress:
        for result in runner.run_all(cells, arguments.jobs, began + arguments.within):
            results.append(result)
            progress.at(result.cell.name)
        bad = [result for result in results if result.objections] if arguments.again else []
        seconds_before = time.monotonic() - began
        again = list(runner.run_all([result.cell for result in bad], 1, began + arguments.within))
    results.sort(key=lambda result: cells.index(result.cell))
    if again:
        print_results(bad)
        print(f"{summary(results, seconds_before)}; these once more:")
        # By name: a cell is no key of a dictionary.
        tried = {result.cell.name: result for result in again if not result.seen.skipped}
        results = [tried.get(result.cell.name, result) if result.objections else result for result in results]
    seconds = time.monotonic() - began
    print_results(results)
    print(f"{versions()}; {summary(results, seconds)}")
    if arguments.json:
        write_json(results, arguments.json)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(results, seconds))
    return 1 if any(result.objections for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
