# SPDX-License-Identifier: BSD-3-Clause
"""Where in a program the failure happens: each moment is the program that all ranks of a cell run.

`scene.strike()` stands where the victim is struck, `scene.attempt()` around the call in which the others meet that.
"""

from tests.drill.moments import bootstrap, calls, ends, membership, messages, on_gpus
from tests.drill.moments.table import MOMENTS

__all__ = ["MOMENTS", "bootstrap", "calls", "ends", "membership", "messages", "on_gpus"]
