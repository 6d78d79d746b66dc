# SPDX-License-Identifier: BSD-3-Clause
"""What CPU tensors are to reach where all ranks share a node's memory.

Beside the floors of the same run (torch's dispatch), the same operations from C (the fastest of the MPIs measured,
blocking or testing), and Gloo. 10th percentiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from altorch.bench.aims import Aim, Cases, Results, labelled
from altorch.bench.rows import Row
from benchmarks import mpi_floor

KIB, MIB = 1 << 10, 1 << 20
FROM_C = mpi_floor.MODES + mpi_floor.OPEN_MPI_MODES
SMALL, FROM_16_KIB = range(KIB + 1), range(16 * KIB, 1 << 40)
Took = dict[tuple[str, str, int], float]


def took(results: Results, contender: str, **wanted: Any) -> Took:
    return results.figures("p10_us", benchmark="cpu_collectives", contender=contender, mode="sync", **wanted)


def ratios(over: Took, under: Took) -> Cases:
    return labelled({case: over[case] / under[case] for case in under if case in over})


def from_c(results: Results, spare_cores: bool | None = None, **wanted: Any) -> Cases:
    """How many times less altorch took than the fastest C program.

    `spare_cores`: only with a core for each rank, or only without.
    """
    if spare_cores is not None and any((row["cores"] >= row["ranks"]) != spare_cores for row in results.rows):
        return {}
    return ratios(fastest_c(results, **wanted), took(results, "al", **wanted))


def fastest_c(results: Results, **wanted: Any) -> Took:
    fastest: Took = {}
    for name in FROM_C:
        for case, microseconds in took(results, name, **wanted).items():
            fastest[case] = min(microseconds, fastest.get(case, microseconds))
    return fastest


def dispatch(results: Results, **wanted: Any) -> Took:
    """`recorded` was measured where torch's flight recorder is attached to altorch's groups (contenders.py)."""
    return took(results, "fake", **wanted) | took(results, "recorded", **wanted)


def beyond_dispatch(results: Results, **wanted: Any) -> Cases:
    floor = dispatch(results, **wanted)
    return labelled({c: us - floor[c] for c, us in took(results, "al", **wanted).items() if c in floor})


def against_gloo(results: Results, **wanted: Any) -> Cases:
    return ratios(took(results, "gloo", **wanted), took(results, "al", **wanted))


def crowded_all_reduce(results: Results) -> float | None:
    # 8 bytes are rounded up, so that every rank has a share.
    small = range(8, 65)
    rows = [
        row
        for row in results.of(
            benchmark="cpu_collectives", contender="al", operation="all_reduce", bytes=small
        )
        if row["cores"] < row["ranks"]
    ]
    return min((row["p10_us"] for row in rows), default=None)


def asynchronous(results: Results) -> float | None:
    """Microseconds beyond the synchronous call."""
    both = {
        row["mode"]: row["p10_us"]
        for row in results.of(benchmark="cpu_collectives", contender="al", operation="all_reduce", bytes=KIB)
    }
    return both["async"] - both["sync"] if {"async", "sync"} <= both.keys() else None


def beside_programs(results: Results) -> float | None:
    rows = results.of(benchmark="cpu_beside", contender="al", operation="barrier", busy=2)
    return rows[-1]["median_us"] if rows else None


def hidden(results: Results) -> float | None:
    rows = [
        row
        for row in results.of(benchmark="cpu_overlap", contender="al", bytes=16 * MIB)
        if row["cores"] > row["ranks"]
    ]
    return rows[-1]["hidden_percent"] if rows else None


def half_types(results: Results) -> Cases:
    """Times as long as float32 of as many bytes."""
    full = {case[::2]: us for case, us in took(results, "al", dtype="float32").items()}
    half = took(results, "al", dtype="bfloat16")
    return labelled({case: us / full[case[::2]] for case, us in half.items() if case[::2] in full})


def start(results: Results) -> float | None:
    total: dict[str, float] = {row["contender"]: row["total_ms"] for row in results.of(benchmark="startup")}
    return total["gloo"] / total["al"] if {"al", "gloo"} <= total.keys() else None


def start_in_words(results: Results) -> str:
    rows: list[Row] = results.of(benchmark="startup")
    return ", ".join(f"{row['contender']} {row['total_ms']:.0f} ms" for row in rows)


def faster_than_c(sizes: range | int, target: float, text: str, ranks: int, **wanted: Any) -> Aim:
    measure: Callable[[Results], Cases] = partial(from_c, bytes=sizes, **wanted)
    return Aim(f"{text} against MPI from C", target, measure, ranks=ranks)


TWO = [
    Aim(
        "every operation up to 1 KiB, beyond torch's dispatch",
        1,
        partial(beyond_dispatch, bytes=SMALL),
        unit=" us",
        at_most=True,
        ranks=2,
    ),
    Aim(
        "barrier, beyond torch's dispatch",
        0.5,
        partial(beyond_dispatch, operation="barrier"),
        unit=" us",
        at_most=True,
        ranks=2,
    ),
    Aim(
        "all_reduce of 1 KiB, asynchronous and waited for, beyond the synchronous call",
        2,
        asynchronous,
        unit=" us",
        at_most=True,
        ranks=2,
    ),
    faster_than_c(FROM_16_KIB, 0.95, "every operation from 16 KiB on", 2),
    faster_than_c(
        range(64 * KIB, 256 * KIB + 1), 1.5, "all_reduce of 64 KiB to 256 KiB", 2, operation="all_reduce"
    ),
    faster_than_c(range(MIB, 4 * MIB + 1), 1.1, "all_reduce of 1 MiB to 4 MiB", 2, operation="all_reduce"),
    faster_than_c(16 * MIB, 2, "all_reduce of 16 MiB", 2, operation="all_reduce"),
    faster_than_c(64 * MIB, 3.5, "all_reduce of 64 MiB", 2, operation="all_reduce"),
    faster_than_c(MIB, 1, "send_recv of 1 MiB", 2, operation="send_recv"),
    Aim("bfloat16 against float32 of as many bytes", 1.15, half_types, at_most=True, ranks=2),
]

MORE = [
    aim
    for ranks, microseconds in ((4, 12), (8, 30), (16, 80))
    for aim in (
        Aim(
            "all_reduce of 8 B on fewer cores than ranks",
            microseconds,
            crowded_all_reduce,
            unit=" us",
            digits=1,
            at_most=True,
            ranks=ranks,
        ),
        Aim(
            "every operation on fewer cores than ranks, against MPI from C",
            1,
            partial(from_c, spare_cores=False),
            ranks=ranks,
        ),
        Aim("the same from 16 KiB on", 2, partial(from_c, spare_cores=False, bytes=FROM_16_KIB), ranks=ranks),
    )
]

WITH_CORES = [
    Aim(
        f"all_reduce of {text} with a core for each rank, against MPI from C",
        target,
        partial(from_c, spare_cores=True, operation="all_reduce", bytes=size),
        ranks=ranks,
    )
    for ranks in (8, 16, 32)
    for text, size, target in (
        ("1 KiB", KIB, 3),
        ("64 KiB", 64 * KIB, 2),
        ("1 MiB", MIB, 2),
        ("32 MiB", 32 * MIB, 1.5),
    )
]

AIMS = [
    *TWO,
    *MORE,
    *WITH_CORES,
    Aim("every operation below 64 KiB against Gloo", 10, partial(against_gloo, bytes=range(64 * KIB))),
    Aim("every operation, type and size against Gloo", 3, against_gloo),
    Aim(
        "barrier beside two programs that compute, median",
        60,
        beside_programs,
        unit=" us",
        digits=1,
        at_most=True,
    ),
    Aim(
        "of an asynchronous all_reduce of 16 MiB, with a spare core, hidden behind computing",
        80,
        hidden,
        unit=" %",
        digits=1,
    ),
    Aim("init_process_group to the end of the first barrier, against Gloo", 1, start, remark=start_in_words),
]
