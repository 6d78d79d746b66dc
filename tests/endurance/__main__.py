# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tests.endurance`, or `make endurance`: what takes too long for a test."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from tests.drill.report import versions


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.endurance", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was seen")
    kinds = parser.add_subparsers(dest="kind", required=True)
    churn = kinds.add_parser(
        "churn",
        help="a training run whose processes are killed, left out, taken in and started again, many times",
    )
    churn.add_argument("--rounds", type=int, default=1000, metavar="N")
    churn.add_argument("--ranks", type=int, default=4, metavar="N", help="at most (default: %(default)s)")
    churn.add_argument("--seed", type=int, default=0, metavar="N")
    soak = kinds.add_parser(
        "soak", help="mixed operations; memory, descriptors and threads of every rank stay what they are"
    )
    soak.add_argument("--minutes", type=float, default=30, metavar="N")
    soak.add_argument("--ranks", type=int, default=4, metavar="N")
    soak.add_argument("--seed", type=int, default=0, metavar="N")
    return parser.parse_args(words)


def main() -> int:
    arguments = parse()
    os.environ.setdefault(
        "TORCH_CPP_LOG_LEVEL", "ERROR"
    )  # torch logs a page for every connection that breaks
    os.environ.setdefault("TORCH_FR_DUMP_ON_TIMEOUT", "0")
    os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")  # c10d's store looks up every peer's name
    if arguments.kind == "churn":
        from tests.endurance import churn

        outcome = churn.run(arguments.rounds, arguments.ranks, arguments.seed)
        print(churn.summary(outcome, arguments.ranks))
        seen = asdict(outcome)
        objections = outcome.objections
    else:
        from tests.endurance import soak

        report = soak.run(arguments.minutes, arguments.ranks, arguments.seed)
        print(soak.summary(report))
        seen, objections = asdict(report), report.objections
    if arguments.json:
        arguments.json.write_text(json.dumps({"versions": versions(), **seen}, indent=1))
    return 1 if objections else 0


if __name__ == "__main__":
    sys.exit(main())
