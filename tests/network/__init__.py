# SPDX-License-Identifier: BSD-3-Clause
"""Jobs on virtual nodes over each MPI and Gloo, with good and bad networks: `python -m tests.network`."""

from __future__ import annotations

import sys
from pathlib import Path

# For its harness and its virtual nodes.
sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
