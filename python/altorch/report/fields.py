# SPDX-License-Identifier: BSD-3-Clause
"""Fields of files that others have written: each is checked, and a ValueError says with a clause what is wrong.

What is read goes into an HTML page, so texts are cut.
"""

from __future__ import annotations

import math
import re
from typing import Any

LATEST_NS = 1 << 62
_MOST_TEXT = 200


def text_of(value: Any, what: str, most: int = _MOST_TEXT) -> str:
    """Without control characters, and surrogates, which have no encoding."""
    if not isinstance(value, str):
        raise ValueError(f"its {what} is not a string")
    text = value[:most]
    return text if text.isprintable() else re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+", " ", text)


def number_of(value: Any, what: str) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:  # as the JSON dump has counters
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < LATEST_NS:
        raise ValueError(f"its {what} is out of range")
    return value


def seconds_of(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"its {what} is not a number")
    if not 0 <= value < 1e9 or not math.isfinite(value):
        raise ValueError(f"its {what} is not a duration")
    return float(value)


def list_of(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"its {what} is not a list")
    return list(value)


def dict_of(value: Any, what: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"its {what} is not a dictionary")
    return value
