# SPDX-License-Identifier: BSD-3-Clause
"""Moments by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.drill.scene import Scene

Program = Callable[["Scene"], None]
MOMENTS: dict[str, Program] = {}


def moment(name: str) -> Callable[[Program], Program]:
    def enter(program: Program) -> Program:
        MOMENTS[name] = program
        return program

    return enter
