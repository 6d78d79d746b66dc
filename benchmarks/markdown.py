"""The figures as Markdown, for docs/benchmarks.md: the aims, and altorch beside Gloo with that run's floors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from altorch.bench.rows import Row
from benchmarks import report
from benchmarks.aims import Figures, Verdict

SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    lines = [columns, ["---" if index < left else "--:" for index in range(len(columns))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def aims(found: list[Verdict]) -> str:
    words = {True: "yes", False: "**no**", None: "not measured"}
    rows = [(verdict.what, verdict.aim, verdict.measured, words[verdict.reached]) for verdict in found]
    return table(["what", "aim", "measured", "reached"], rows, left=4)


def beside_gloo(rows: list[Row], operation: str, dtype: str, ranks: int) -> str:
    """Medians of the slowest rank, beside the floors: the same MPI from C, and one memcpy of as many bytes."""
    figures = Figures(rows)
    columns = ["bytes", "altorch [us]", "Gloo [us]", "ratio", "MPI from C [us]", "memcpy [us]"]
    return table(columns, _lines(figures, operation, dtype, ranks))


def _lines(figures: Figures, operation: str, dtype: str, ranks: int) -> Iterator[list[str]]:
    for size in SIZES:
        mine, gloo = (figures.find(operation, size, ranks, backend, dtype) for backend in ("al", "gloo"))
        if mine is None or gloo is None:
            continue
        from_c = [figures.find(operation, size, ranks, mode, dtype) for mode in ("mpi-test", "mpi-blocking")]
        copy = figures.find("memcpy", size, ranks, "memcpy", "uint8")
        yield [
            report.show_bytes(size),
            report.show_microseconds(mine["median_us"]),
            report.show_microseconds(gloo["median_us"]),
            f"{gloo['median_us'] / mine['median_us']:.1f}x",
            report.show_microseconds(min((row["median_us"] for row in from_c if row), default=None)),
            report.show_microseconds(copy["median_us"] if copy else None),
        ]


def document(rows: list[Row], found: list[Verdict]) -> str:
    here = next(row for row in rows if row.get("benchmark") == "run")
    parts = [
        f"{here['cpu']}, {here['cores']} cores, torch {here['torch']}, mpich {here['mpich']}, commit {here['commit']}, "
        f"{here['date'][:10]}; `{here.get('command', '')}`",
        aims(found),
    ]
    for ranks in (2, 4):
        for dtype in ("float32", "bfloat16"):
            lines = beside_gloo(rows, "all_reduce", dtype, ranks)
            if lines.count("\n") > 1:
                parts += [f"all_reduce through torch, {dtype}, {ranks} ranks, medians:", lines]
    return "\n\n".join(parts)
