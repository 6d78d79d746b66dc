# SPDX-License-Identifier: BSD-3-Clause
"""Frameworks in tiny real runs of two ranks: what they make over altorch is what they make over Gloo.

Each test runs one program on all ranks, once over altorch and once over torch's Gloo, and compares what rank 0 prints
last, as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.ranks.launch import clean_environment, free_port

DEADLINE = 300  # of a program on all ranks, seconds


def run_ranks(program: str, size: int = 2, **environment: str) -> Any:
    """What rank 0 printed last; fails with what all ranks said, if one of them failed."""
    env = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHELASTIC_RUN_ID": "frameworks",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    } | environment
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", program],
                env=clean_environment(env | {"RANK": str(rank), "LOCAL_RANK": str(rank)}),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=folder,
            )
            for rank in range(size)
        ]
        try:
            end = time.monotonic() + DEADLINE
            said = [rank.communicate(timeout=max(1, end - time.monotonic()))[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    codes = [rank.returncode for rank in ranks]
    if any(codes):
        pytest.fail(f"exit codes {codes}\n" + "\n".join(text[-3000:] for text in said), pytrace=False)
    return json.loads(said[0].strip().splitlines()[-1])


@pytest.fixture
def ranks() -> Callable[..., Any]:
    return run_ranks
