# SPDX-License-Identifier: BSD-3-Clause
"""Prints the page of the command line: what each parser says under --help. Needs neither torch nor the extension."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
os.environ.update(COLUMNS="88", NO_COLOR="1")

import altorch_hooks

altorch_hooks.only_reporting = True  # `import altorch` then loads without torch

from altorch.cli import build_parser  # noqa: E402


def page() -> str:
    parser = build_parser()
    commands = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    parts = [
        "# Command line",
        "`altorch COMMAND` and `python -m altorch COMMAND` are the same program. `check`, `bench` and `tune` also run "
        "under torchrun, as `torchrun --nproc-per-node 2 -m altorch check`. Each command prints one JSON document "
        "with `--json`.",
        "This page is made from the parsers of the program.",
        f"```text\n{parser.format_help().rstrip()}\n```",
    ]
    for name, command in commands.items():
        parts += [f"## altorch {name}", f"```text\n{command.format_help().rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
