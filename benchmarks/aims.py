"""The figures that the project has set itself, checked against measured rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from altorch.bench.rows import Row
from benchmarks import report

DISPATCH_SHARE_US = 2.0  # what altorch may add to torch's dispatch and MPI's own time
# A batch that takes so much longer than the median one, and three times as long, held a stall.
STALL_MS = 20.0


class Verdict(NamedTuple):
    what: str
    aim: str
    measured: str
    reached: bool | None  # None: not measured


class Figures:
    """Rows of cpu_collectives by what they measured."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = {
            (row["operation"], row["dtype"], row["bytes"], row["ranks"], row["backend"]): row
            for row in rows
            if row.get("benchmark") == "cpu_collectives" and "p10_us" in row
        }

    def find(self, operation: str, size: int, ranks: int, backend: str, dtype: str = "float32") -> Row | None:
        return self._rows.get((operation, dtype, size, ranks, backend))

    def pairs(self, ranks: int, backend: str, other: str) -> Iterator[tuple[Row, Row]]:
        """What both backends measured alike."""
        for (operation, dtype, size, found_ranks, found), row in self._rows.items():
            against = self._rows.get((operation, dtype, size, ranks, other))
            if found_ranks == ranks and found == backend and against is not None:
                yield row, against


def dispatch(figures: Figures) -> Verdict:
    what = "all_reduce through torch, 2 ranks, 1 KiB"
    aim = f"<= torch's dispatch + the same MPI from C + {DISPATCH_SHARE_US:.0f} us"
    mine, fake, recorded = (
        figures.find("all_reduce", 1024, 2, backend) for backend in ("al", "fake", "recorded")
    )
    from_c = [
        row for mode in ("mpi-test", "mpi-blocking") if (row := figures.find("all_reduce", 1024, 2, mode))
    ]
    if mine is None or fake is None or not from_c:
        return Verdict(what, aim, "not measured", None)
    # The stricter of the two ways to call MPI.
    mpi = min(row["p10_us"] for row in from_c)
    # torch >= 2.15 attaches its flight recorder to every backend that is not its own, `fake` excepted.
    dispatched = (recorded or fake)["p10_us"]
    bound = dispatched + mpi + DISPATCH_SHARE_US
    recorder = f" (flight recorder {dispatched - fake['p10_us']:.1f} of it)" if recorded else ""
    measured = f"{mine['p10_us']:.1f} us against {dispatched:.1f}{recorder} + {mpi:.1f} + 2 = {bound:.1f} us"
    return Verdict(what, aim, measured, mine["p10_us"] <= bound)


def against_gloo(figures: Figures, size: int, factor: float) -> Verdict:
    what = f"all_reduce through torch against Gloo, 2 ranks, {report.show_bytes(size)}"
    aim = f">= {factor:g}x"
    mine, gloo = (figures.find("all_reduce", size, 2, backend) for backend in ("al", "gloo"))
    if mine is None or gloo is None:
        return Verdict(what, aim, "not measured", None)
    ratio, median = gloo["p10_us"] / mine["p10_us"], gloo["median_us"] / mine["median_us"]
    return Verdict(what, aim, f"{ratio:.1f}x (medians {median:.1f}x)", ratio >= factor)


def never_slower(figures: Figures) -> Verdict:
    what, aim = "4 ranks, every operation and size against Gloo", "never slower"
    pairs = list(figures.pairs(4, "al", "gloo"))
    if not pairs:
        return Verdict(what, aim, "not measured", None)
    slower = [(mine["median_us"] / gloo["median_us"], mine) for mine, gloo in pairs]
    slower = sorted((pair for pair in slower if pair[0] > 1), key=lambda pair: -pair[0])
    named = ", ".join(
        f"{row['operation']} {row['dtype'] or ''} {report.show_bytes(row['bytes'])} {ratio:.2f}x"
        for ratio, row in slower[:4]
    )
    measured = f"{len(pairs) - len(slower)} of {len(pairs)} faster" + (f"; slower: {named}" if slower else "")
    return Verdict(what, aim, measured, not slower)


def excess_ms(row: Row) -> float:
    """By how much the slowest batch exceeded the median one."""
    return float((row["max_us"] - row["median_us"]) * row["calls_per_batch"] / 1e3)


def stalls(rows: list[Row]) -> list[Row]:
    return [row for row in rows if excess_ms(row) > STALL_MS and row["max_us"] > 3 * row["median_us"]]


def no_stalls(figures: Figures) -> Verdict:
    what, aim = "4 ranks, slowest batch of each case", f"no stall (over {STALL_MS:g} ms and three medians)"
    mine, gloo = ([row for row, _ in figures.pairs(4, backend, backend)] for backend in ("al", "gloo"))
    if not mine:
        return Verdict(what, aim, "not measured", None)
    stalled, worst = stalls(mine), max(mine, key=excess_ms)
    name = f"{worst['operation']} {worst['dtype'] or ''} {report.show_bytes(worst['bytes'])}"
    measured = (
        f"{len(stalled)} of {len(mine)} (Gloo {len(stalls(gloo))}); worst {name}: {excess_ms(worst):.1f} ms"
    )
    return Verdict(what, aim, measured, not stalled)


def startup(rows: list[Row]) -> Verdict:
    what, aim = "4 ranks, init_process_group to the end of the first barrier", "< 1 s"
    for row in rows:
        if row.get("benchmark") == "startup" and row["backend"] == "al" and row["ranks"] == 4:
            measured = f"{row['total_ms']:.0f} ms (worst {row['worst_total_ms']:.0f} ms)"
            return Verdict(what, aim, measured, row["worst_total_ms"] < 1000)
    return Verdict(what, aim, "not measured", None)


def idle(rows: list[Row]) -> Verdict:
    what, aim = "idle group", "no measurable CPU use (< 1 ms a second beyond torch's own)"
    used: dict[str, float] = {}
    for row in rows:
        if row.get("benchmark") == "idle":
            used[row["backend"]] = max(used.get(row["backend"], 0.0), row["cpu_ms_per_s"])
    if "al" not in used:
        return Verdict(what, aim, "not measured", None)
    own = used["al"] - used.get("store", 0.0)
    measured = f"{used['al']:.2f} ms a second; torch's store alone {used.get('store', 0.0):.2f}"
    return Verdict(what, aim, measured, own < 1)


def memory(rows: list[Row]) -> list[Verdict]:
    found = [row for row in rows if row.get("benchmark") == "memory" and row["backend"] == "al"]
    what, aim = "memory beyond the tensors", "< 64 MiB a rank"
    flat_what, flat_aim = "its growth from a tenth of the operations to the last", "flat (< 1 MiB)"
    if not found:
        return [Verdict(what, aim, "not measured", None), Verdict(flat_what, flat_aim, "not measured", None)]
    most = max(row["rss_mib"] for row in found)
    verdicts = [Verdict(what, aim, f"{most:.1f} MiB", most < 64)]
    operations = max(row["operations"] for row in found)
    growths = []
    for ranks in {row["ranks"] for row in found}:
        settled = [row for row in found if row["ranks"] == ranks and row["operations"] >= operations / 10]
        growths.append(settled[-1]["rss_mib"] - settled[0]["rss_mib"])
    measured = f"{max(growths):.2f} MiB over {operations:,} operations"
    return [*verdicts, Verdict(flat_what, flat_aim, measured, max(growths) < 1)]


def verdicts(rows: list[Row]) -> list[Verdict]:
    figures = Figures(rows)
    return [
        dispatch(figures),
        against_gloo(figures, 1 << 10, 20),
        against_gloo(figures, 1 << 20, 5),
        against_gloo(figures, 64 << 20, 1.2),
        never_slower(figures),
        no_stalls(figures),
        startup(rows),
        idle(rows),
        *memory(rows),
    ]


def print_verdicts(found: list[Verdict]) -> None:
    words = {True: "reached", False: "NOT reached", None: "-"}
    report.print_table(
        "aims",
        ["what", "aim", "measured", ""],
        [(verdict.what, verdict.aim, verdict.measured, words[verdict.reached]) for verdict in found],
        left=4,
    )
