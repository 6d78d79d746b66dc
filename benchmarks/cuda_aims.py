"""The figures that the project has set itself for CUDA tensors, checked against the rows of the cuda_* benchmarks.

    python -m benchmarks.cuda_aims benchmarks/results/cuda-4xH200-2026-11-21.jsonl

Prints Markdown, a table for each number of ranks. What a row measures is said by the benchmark that wrote it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from altorch.bench.rows import Row
from benchmarks import markdown, report
from benchmarks.aims import Verdict
from benchmarks.cuda_collectives import bus_factor
from benchmarks.cuda_overlap import HIDDEN_AT_LEAST, PRODUCT

KIB, MIB = 1024, 1024 * 1024
STAGED = "al:host_staged"


class CudaFigures:
    """The rows of one number of ranks, with a GPU each."""

    def __init__(self, rows: Iterable[Row], ranks: int) -> None:
        self.rows = [row for row in rows if row.get("ranks") == ranks <= row.get("gpus", 0)]

    def of(self, benchmark: str, at_least: int = 0, at_most: int = 1 << 62) -> Iterator[Row]:
        for row in self.rows:
            if row["benchmark"] == benchmark and at_least <= row.get("bytes", at_least) <= at_most:
                yield row

    def all_reduce(self, contender: str, size: int) -> Row | None:
        """Of float32; the last, if it was measured more than once."""
        found = None
        for row in self.of("cuda_routes", size, size):
            if (row["contender"], row["operation"], row["dtype"]) == (contender, "all_reduce", "float32"):
                found = row
        return found

    def device_us(self, contender: str, size: int) -> float | None:
        row = self.all_reduce(contender, size)
        return float(row["device_us"]) if row else None


def label(row: Row) -> str:
    return f"{row['operation']} {report.show_bytes(row['bytes'])}"


def ratios(what: str, aim: str, found: dict[str, float], bound: float) -> Verdict:
    """`found`: how many times altorch is faster, by case."""
    if not found:
        return Verdict(what, aim, "not measured", None)
    worst, best = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    short = [case for case, ratio in found.items() if ratio < bound]
    text = f"{found[worst]:.2f}x ({worst}) to {found[best]:.2f}x ({best})"
    if short:
        text += f"; {len(found) - len(short)} of {len(found)} reach it"
    return Verdict(what, aim, text, not short)


def against_nccl(figures: CudaFigures) -> Iterator[Verdict]:
    def faster(key: str, *sizes: int) -> dict[str, float]:
        rows = figures.of("cuda_collectives", *sizes)
        return {label(row): row[f"nccl_{key}"] / row[f"al_{key}"] for row in rows if row[f"al_{key}"] > 0}

    yield ratios("bandwidth, >= 64 MiB", ">= 0.99x", faster("eager_us", 64 * MIB), 0.99)
    yield ratios("eager synchronous, <= 64 KiB", ">= 1.5x faster", faster("eager_us", 0, 64 * KIB), 1.5)
    yield ratios("host time to issue a call", "at most half", faster("host_us"), 2.0)
    yield ratios("replay of a CUDA graph", "within 3 %", faster("graph_us"), 0.97)


def staged(figures: CudaFigures) -> Iterator[Verdict]:
    """The aims of two GPUs."""
    small = [t for size in (8, KIB, 4 * KIB) if (t := figures.device_us(STAGED, size)) is not None]
    what, aim = f"{STAGED}, all_reduce, 8 B to 4 KiB", "<= 8 us on the device"
    measured = f"{min(small):.1f} to {max(small):.1f} us" if small else "not measured"
    yield Verdict(what, aim, measured, max(small) <= 8 if small else None)
    for contender, bound in (("nccl_no_p2p", 1.2), ("gloo", 10.0)):
        found = {}
        for size in (16 * MIB, 64 * MIB, 256 * MIB):
            mine, theirs = figures.device_us(STAGED, size), figures.device_us(contender, size)
            if mine is not None and theirs is not None:
                found[report.show_bytes(size)] = theirs / mine
        yield ratios(
            f"{STAGED}, all_reduce, 16 to 256 MiB, against {contender}", f">= {bound:g}x", found, bound
        )
    yield share_of_links(figures)


def share_of_links(figures: CudaFigures) -> Verdict:
    """What a GPU copies down and up in 64 MiB of all_reduce, of what plain copies of all GPUs both ways gave."""
    what, aim = f"{STAGED}, all_reduce, 64 MiB, of the host links", ">= 70 %"
    row = figures.all_reduce(STAGED, 64 * MIB)
    if row is None:
        return Verdict(what, aim, "not measured", None)
    # Down: the others' shares, and the own result. Up: the others' parts of the own share, and their results.
    copied = 64 * MIB * (1 + bus_factor("all_reduce", row["ranks"]))
    share = copied / (row["device_us"] * 1e3) / (2 * row["link_GBps"])
    return Verdict(
        what,
        aim,
        f"{100 * share:.0f} % of {row['link_GBps']} GB/s each way",
        share >= 0.7,
    )


def beside_computing(figures: CudaFigures) -> Iterator[Verdict]:
    hidden = {
        row["contender"]: row["hidden_percent"]
        for row in figures.of("cuda_overlap", 64 * MIB, 64 * MIB)
        if row["dtype"] == "float32"
        and tuple(row["product"]) == PRODUCT
        and not row.get("left_multiprocessors")
    }
    for (contender, route), bound in HIDDEN_AT_LEAST.items():
        what = f"64 MiB of all_reduce hidden behind matrix products, {route}"
        if contender not in hidden:
            yield Verdict(what, f">= {bound} %", "not measured", None)
            continue
        beside = f"; torch's own: {hidden['nccl']:.0f} %" if route == "NCCL" and "nccl" in hidden else ""
        yield Verdict(what, f">= {bound} %", f"{hidden[contender]:.0f} %{beside}", hidden[contender] >= bound)
    steps = {(row["wrap"], row["contender"]): row for row in figures.of("cuda_training")}
    for wrap in ("ddp", "fsdp2"):
        what, aim = f"training step, {wrap}", "not slower than nccl"
        mine, theirs = steps.get((wrap, "al")), steps.get((wrap, "nccl"))
        if not mine or not theirs:
            yield Verdict(what, aim, "not measured", None)
            continue
        ratio = theirs["step_ms"] / mine["step_ms"]
        turns = " ms; turns ".join(", ".join(f"{t:.1f}" for t in row["turns_ms"]) for row in (mine, theirs))
        yield Verdict(what, aim, f"{ratio:.3f}x (turns {turns} ms)", ratio >= 1)


def check(rows: list[Row], ranks: int) -> list[Verdict]:
    figures = CudaFigures(rows, ranks)
    pairs = staged(figures) if ranks == 2 else [share_of_links(figures)]
    return [*against_nccl(figures), *pairs, *beside_computing(figures)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, help="files of JSON lines")
    rows = [
        row
        for file in parser.parse_args().results
        for row in report.read(file)
        if str(row.get("benchmark")).startswith("cuda_")
    ]
    for ranks in sorted({row["ranks"] for row in rows if row["ranks"] <= row["gpus"]}):
        some = CudaFigures(rows, ranks).rows
        commits = ", ".join(sorted({row["commit"] for row in some}))
        machine, torch, nccl = (some[0][key] for key in ("machine", "torch", "nccl"))
        print(f"{ranks} ranks, {machine}, torch {torch}, NCCL {nccl}, {commits}\n")
        print(markdown.aims(check(rows, ranks)) + "\n")


if __name__ == "__main__":
    main()
