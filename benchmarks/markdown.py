# SPDX-License-Identifier: BSD-3-Clause
"""Tables for docs/benchmarks.md and benchmarks-nodes.md: aims, altorch beside Gloo and floors, ratios on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from altorch.bench.aims import REACHED, AimResult, Results
from altorch.bench.rows import Row
from altorch.cli._output import human_bytes, short_number
from benchmarks import cpu_memory_aims, mpi_floor

SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """``left`` columns are aligned left, the rest are figures."""
    lines = [columns, ["---" if index < left else "--:" for index in range(len(columns))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def results(found: list[AimResult]) -> str:
    words = REACHED | {False: "**no**"}
    return table(["what", "aim", "measured", "reached"], [(*v[:3], words[v.reached]) for v in found], left=4)


def beside_gloo(rows: list[Row]) -> Iterator[str]:
    """Medians of the slowest rank, beside the floors: the same MPI from C, and one memcpy of as many bytes."""
    results = Results(rows)
    columns = ["bytes", "altorch [us]", "Gloo [us]", "ratio", "MPI from C [us]", "memcpy [us]"]
    for dtype in ("float32", "bfloat16"):
        if lines := list(_lines(results, dtype)):
            yield f"all_reduce of {dtype}, {rows[0]['ranks']} ranks, medians:\n\n{table(columns, lines)}"


def slower_than_a_peer(rows: list[Row]) -> str:
    """Where altorch took longer than Gloo or the fastest C program, 10th percentiles; empty where it never did."""
    results = Results(rows)
    own = cpu_memory_aims.took(results, "al")
    peers = {
        "MPI from C": cpu_memory_aims.fastest_c(results),
        "Gloo": cpu_memory_aims.took(results, "gloo"),
    }
    lines = []
    for peer, took in peers.items():
        slower: dict[str, list[str]] = {}
        for (operation, dtype, size), microseconds in sorted(took.items()):
            ours = own.get((operation, dtype, size))
            if ours and microseconds < ours:
                slower.setdefault(f"{operation} {dtype}".strip(), []).append(
                    f"{human_bytes(size)} {microseconds / ours:.2f}x"
                )
        lines += [(peer, what, ", ".join(sizes)) for what, sizes in slower.items()]
    if not lines:
        return ""
    return f"slower than a peer, {rows[0]['ranks']} ranks:\n\n" + table(
        ["peer", "what", "where"], lines, left=3
    )


def on_nodes(rows: list[Row]) -> Iterator[str]:
    """How many times as fast a contender is as others on several nodes, by medians: a table for each contender."""
    cpu = Results(rows).of(benchmark="cpu_nodes")
    gpus = Results(rows).of(benchmark="cuda_collectives")
    for link in sorted({row.get("link_gbit", 0) for row in cpu}):
        over = [row for row in cpu if row.get("link_gbit", 0) == link]
        floors = [
            row | {"contender": "link", "median_us": row["link_us"]} for row in over if row.get("link_us")
        ]
        tables = _times_as_fast("al", [("al:messages", "sync"), ("gloo", "sync")], over)
        shares = _times_as_fast("al", [("link", "sync")], over + floors)
        yield from (
            f"over {link:g} Gbit/s for each node, {text}" if link else text for text in (*tables, *shares)
        )
    yield from _times_as_fast("al:hierarchical", [("nccl", "sync"), ("nccl", "graph")], gpus)
    # Where each rank is alone on its node, CPU tensors go by the same MPI; types do not matter.
    alone = [row for row in cpu + gpus if row["ranks"] == row["nodes"] and not row.get("link_gbit")]
    over_mpi = [
        row | {"contender": "MPI"} for row in alone if (row["contender"], row["device"]) == ("al", "cpu")
    ]
    yield from _times_as_fast("al:host_relay", [("MPI", "sync"), ("nccl", "sync")], alone + over_mpi)


def _times_as_fast(mine: str, others: list[tuple[str, str]], rows: list[Row]) -> Iterator[str]:
    """A line for each operation and number of ranks, a column for each size that all of them have measured."""
    cases: dict[tuple[str, int, int], dict[tuple[str, str], float]] = {}
    for row in rows:
        took = cases.setdefault((row["operation"], row["ranks"], row["bytes"]), {})
        took[row["contender"], row["mode"]] = row["median_us"]
    lines: dict[tuple[str, int], dict[int, str]] = {}
    for (operation, ranks, size), took in cases.items():
        pairs = [((mine, mode), (other, mode)) for other, mode in others]
        if all(key in took for pair in pairs for key in pair):
            ratios = (took[theirs] / took[ours] for ours, theirs in pairs)
            lines.setdefault((operation, ranks), {})[size] = ", ".join(map(_ratio, ratios))
    if not lines:
        return
    sizes = sorted({size for line in lines.values() for size in line if size})
    columns = ["operation", "ranks", *map(human_bytes, sizes)]
    found = [
        [operation, str(ranks), *(line.get(size, "") for size in sizes)]
        for (operation, ranks), line in lines.items()
        if 0 not in line
    ]
    against = ", ".join(f"{other} ({mode})" for other, mode in others)
    yield f"{mine}, times as fast as {against}:\n\n{table(columns, found)}"
    if empty := [f"{name} of {ranks} ranks {line[0]}" for (name, ranks), line in lines.items() if 0 in line]:
        yield "; ".join(empty)


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 3 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _lines(results: Results, dtype: str) -> Iterator[list[str]]:
    for size in SIZES:
        rows = results.of(benchmark="cpu_collectives", operation="all_reduce", dtype=dtype, bytes=size)
        took = {row["contender"]: row["median_us"] for row in rows}
        if not {"al", "gloo"} <= took.keys():
            continue
        from_c = [took[mode] for mode in mpi_floor.MODES if mode in took]
        copied = [row["median_us"] for row in results.of(operation="memcpy", bytes=size)]
        yield [
            human_bytes(size),
            short_number(took["al"]),
            short_number(took["gloo"]),
            f"{took['gloo'] / took['al']:.1f}x",
            short_number(min(from_c, default=None)),
            short_number(copied[-1] if copied else None),
        ]
