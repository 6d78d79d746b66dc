# SPDX-License-Identifier: BSD-3-Clause
"""`altorch algorithms`: the table of collective algorithms."""

from __future__ import annotations

import argparse

from altorch.cli._output import print_json, print_table

SUMMARY = "The algorithms of every collective, with the cost of each."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operation", nargs="?", help="only this operation, for example all_reduce")


def run(arguments: argparse.Namespace) -> int:
    from altorch._extension import extension

    rows = extension().algorithms()
    if arguments.operation:
        known = sorted({row["op"] for row in rows})
        if arguments.operation not in known:
            print(f"There is no operation '{arguments.operation}'; there are: {', '.join(known)}.")
            return 2
        rows = [row for row in rows if row["op"] == arguments.operation]
    if arguments.json:
        print_json(rows)
        return 0
    print_table(
        "p ranks, n bytes of the vector or block; a: cost of a message, b: of a byte moved, g: of a byte reduced",
        ["operation", "algorithm", "cost", "uneven counts", "what it does"],
        [[r["op"], r["name"], r["cost_formula"], not r["even_only"], r["summary"]] for r in rows],
    )
    return 0
