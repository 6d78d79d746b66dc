"""The command line. Each command is a module with `add_arguments(parser)` and `run(arguments) -> int`."""

from __future__ import annotations


def main() -> int:
    raise SystemExit("altorch: the commands are not written yet")
