# SPDX-License-Identifier: BSD-3-Clause
"""The command line. Each command is a module with SUMMARY, `add_arguments(parser)` and `run(arguments) -> int`."""

from __future__ import annotations

import argparse
import importlib
import sys

from altorch._version import __version__

COMMANDS = (
    "info",
    "settings",
    "algorithms",
    "explain",
    "routes",
    "check",
    "trace",
    "bench",
    "tune",
    "simulate",
    "report",
    "plot",
)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="altorch",
        description="A torch.distributed backend: what it is made of, "
        "what it would do and whether it works here.",
    )
    parser.add_argument("--version", action="version", version=f"altorch {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"altorch.cli.{name}")
        sub = commands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        sub.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(arguments: list[str] | None = None) -> int:
    parsed = build_parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except ImportError as error:  # the extension or torch: the sentence says what to do
        print(f"altorch {parsed.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `altorch algorithms | head`
        sys.stderr.close()
        return 0
