# SPDX-License-Identifier: BSD-3-Clause
"""Runs some tests of TorchSuite and writes one JSON line for each. Started by torch_distributed_test.py."""

from __future__ import annotations

import json
import sys
import time
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch_suite_cases


def without_frames(traceback: str) -> str:
    """The end of a traceback; the C++ frames that torch appends would leave no room for the message."""
    lines = [
        line for line in traceback.splitlines() if not line.startswith(("frame #", "Exception raised from "))
    ]
    return "\n".join(lines)[-4000:]


class Recorder(unittest.TestResult):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = Path(path).open("a")  # noqa: SIM115 - closed with the process
        self.started = 0.0

    def write(self, test: Any, status: str, detail: str = "") -> None:
        name = test.id().split(".")[-1]
        seconds = round(time.monotonic() - self.started, 2)
        self.file.write(
            json.dumps({"test": name, "status": status, "seconds": seconds, "detail": detail}) + "\n"
        )
        self.file.flush()

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.started = time.monotonic()
        self.write(test, "started")

    def addSuccess(self, test: Any) -> None:
        self.write(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self.write(test, "skipped", reason)

    def addError(self, test: Any, error: Any) -> None:
        super().addError(test, error)
        self.write(test, "failed", without_frames(self.errors[-1][1]))

    def addFailure(self, test: Any, error: Any) -> None:
        super().addFailure(test, error)
        self.write(test, "failed", without_frames(self.failures[-1][1]))


def main() -> None:
    path, names = sys.argv[1], sys.argv[2:]
    recorder = Recorder(path)
    torch_suite_cases.TorchSuite.setUpClass()  # sets MASTER_ADDR
    for name in names:
        torch_suite_cases.TorchSuite(name).run(recorder)


if __name__ == "__main__":
    main()
