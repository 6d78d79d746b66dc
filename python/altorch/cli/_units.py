# SPDX-License-Identifier: BSD-3-Clause
"""Times and rates as people write them: `2us`, `25GB/s`, `200Gb/s`."""

from __future__ import annotations

import math

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES = {"B/s": 1.0, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "Mb/s": 1e6 / 8, "Gb/s": 1e9 / 8}


def parse_seconds(text: str) -> float:
    """`300ns`, `2us`, `1.5ms`, `1s`."""
    return _parse(text, _SECONDS, "a time: write 300ns, 2us or 1.5ms")


def parse_rate(text: str) -> float:
    """Bytes a second, of `25GB/s` (bytes) or `200Gb/s` (bits); units are powers of 1000."""
    rate = _parse(text, _BYTES, "a rate: write 25GB/s or 200Gb/s")
    if rate == 0:
        raise ValueError(f"'{text}' is not a rate: it must be above 0.")
    return rate


def _parse(text: str, units: dict[str, float], example: str) -> float:
    number = text.strip()
    for unit in sorted(units, key=len, reverse=True):
        if number.endswith(unit):
            try:
                value = float(number.removesuffix(unit)) * units[unit]
            except ValueError:
                break
            if math.isfinite(value) and value >= 0:
                return value
            break
    raise ValueError(f"'{text}' is not {example}.")


def short_time(seconds: float) -> str:
    """Three digits or so: `4.18 us`, `12.3 ms`."""
    for unit in ("ns", "us", "ms", "s"):
        value = seconds / _SECONDS[unit]
        if value < 1000 or unit == "s":
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return f"{value:.{digits}f} {unit}"
    raise AssertionError("unreachable")
