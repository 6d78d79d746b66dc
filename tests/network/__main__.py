# SPDX-License-Identifier: BSD-3-Clause
"""Runs jobs on two and three virtual nodes (network namespaces) over each carrier, and prints a table.

    python -m tests.network                                   # everything
    python -m tests.network --nodes 2 --carrier ofi --carrier gloo --cell operations
    python -m tests.network --json build/network.json --markdown docs/clusters.md

Needs root. Nodes have unequal numbers of ranks: 2 and 1; 2, 1 and 1. Exit code 1 if a cell does not end as expected.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import virtual_nodes

from tests.network.carriers import all_carriers
from tests.network.cells import CELLS, Cell
from tests.network.report import Result, machine_line, write_markdown
from tests.network.runner import run
from tests.network.stage import RANKS


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [cell.name for cell in CELLS]
    parser.add_argument(
        "--carrier", action="append", choices=list(all_carriers()), help="several times; default: all"
    )
    parser.add_argument("--nodes", action="append", type=int, choices=list(RANKS), help="default: both")
    parser.add_argument("--cell", action="append", choices=names, help="several times; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was seen")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table into FILE")
    parser.add_argument(
        "--resume", action="store_true", help="take what FILE of --json has of an earlier run"
    )
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--resume needs --json")
    return options


def chosen(options: argparse.Namespace) -> Iterator[tuple[Cell, int, str]]:
    for cell in CELLS:
        for nodes in cell.nodes:
            for name in options.carrier or all_carriers():
                if cell.name in (options.cell or [cell.name]) and nodes in (options.nodes or RANKS):
                    yield cell, nodes, name


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is killed
    if reason := virtual_nodes.unsupported_reason():
        print(f"test-network: skipped: {reason}")
        return 0
    # c10d's store looks up the name of every peer: ten seconds each without a name server.
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
    carriers = all_carriers()
    for name in [name for name in os.environ if name.startswith("ALTORCH_")]:
        if name != "ALTORCH_TEST_PATIENCE":
            del os.environ[name]  # of the caller
    results: dict[tuple[str, str, int], Result] = {}
    if options.resume and options.json.exists():
        for each in json.loads(options.json.read_text()):
            results[each["cell"], each["carrier"], each["nodes"]] = Result(**each)
    for cell, nodes, name in chosen(options):
        key = (cell.name, name, nodes)
        if key not in results:
            results[key] = run(cell, carriers[name], nodes)
        print(results[key], flush=True)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            rows = [vars(result) for result in results.values()]
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    failed = sum(result.status == "failed" for result in results.values())
    skipped = sum(result.status == "skipped" for result in results.values())
    print(f"{machine_line()}\n{len(results)} cells: {failed} failed, {skipped} skipped")
    if options.markdown:
        write_markdown(options.markdown, list(results.values()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
