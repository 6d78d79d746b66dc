# SPDX-License-Identifier: BSD-3-Clause
"""`altorch settings`: every environment variable that altorch reads; `--markdown` writes docs/settings.md."""

from __future__ import annotations

import argparse
from typing import Any

from altorch.cli._output import print_json, print_table

SUMMARY = "Every ALTORCH_* setting: what it may be, what it is, what it does."

_PAGE_BEGINS = """# Settings

Environment variables that altorch reads, each when a group is made or when it is first needed. An empty variable
counts as one that is not set. `altorch settings` prints them with their values; a spelling mistake and a value of the
wrong type are told when a group is made. The ranks of a group compare those that must agree, and a difference is an
error that names the setting, the ranks and the values.

Options of one group alone are the arguments of `altorch.Options`, given as `pg_options`.

<!-- Made by `altorch settings --markdown` from csrc/base/env.cpp: change it there. -->
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print the page docs/settings.md")


def run(arguments: argparse.Namespace) -> int:
    from altorch._extension import extension

    rows = extension().settings()
    if arguments.json:
        print_json(rows)
    elif arguments.markdown:
        print(_page(rows), end="")
    else:
        print_table(
            "Settings",
            ["name", "value", "default", "may be", "same on all ranks", "meaning"],
            [[r["name"], r["value"], r["default"], r["type"], r["must_agree"], r["meaning"]] for r in rows],
        )
    return 0


def _page(rows: list[dict[str, Any]]) -> str:
    lines = [
        _PAGE_BEGINS,
        "| setting | may be | default | must agree | what it does |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        may_be = row["type"].replace("|", ", ")
        default = f"`{row['default']}`" if row["default"] else "none"
        agree = "yes" if row["must_agree"] else ""
        lines.append(f"| `{row['name']}` | {may_be} | {default} | {agree} | {row['meaning']} |")
    return "\n".join(lines) + "\n"
