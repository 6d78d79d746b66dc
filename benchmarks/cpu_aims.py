# SPDX-License-Identifier: BSD-3-Clause
"""The figures that the project has set itself for CPU tensors. What a row measures is said by its benchmark."""

from __future__ import annotations

from altorch.bench.aims import Aim, Cases, Results, labelled
from altorch.bench.rows import Row
from benchmarks import cpu_memory_aims, mpi_floor

KIB, MIB = 1 << 10, 1 << 20
OPERATIONS = "cpu_collectives"
# A batch that takes so much longer than the median one, and three times as long, held a stall.
STALL_MS = 20.0


def parts(results: Results) -> dict[str, float] | None:
    """What a small all_reduce takes by contender, in microseconds; `mpi`: the faster of the two ways to call it."""
    rows = results.of(benchmark=OPERATIONS, operation="all_reduce", dtype="float32", bytes=KIB, mode="sync")
    took = {row["contender"]: row["p10_us"] for row in rows}
    from_c = [took[mode] for mode in mpi_floor.MODES if mode in took]
    return took | {"mpi": min(from_c)} if {"al", "fake"} <= took.keys() and from_c else None


def dispatched(took: dict[str, float]) -> float:
    """`recorded` was measured where torch's flight recorder is attached to altorch's groups (contenders.py)."""
    return took.get("recorded", took["fake"])


def own_share(results: Results) -> float | None:
    took = parts(results)
    return took["al"] - dispatched(took) - took["mpi"] if took else None


def shares(results: Results) -> str:
    took = parts(results)
    assert took is not None, "own_share was measured"
    recorder = dispatched(took) - took["fake"]
    dispatch = f"torch's dispatch {dispatched(took):.1f} (flight recorder {recorder:.1f} of it)"
    return f"{took['al']:.1f} us less {dispatch} and MPI's {took['mpi']:.1f}"


def against_kernels(sizes: range, target: float, ranks: int, words: str = "") -> Aim:
    """altorch against the fastest kernel of the inference engines in each case.

    The benchmark calls those kernels past torch.distributed, so torch's dispatch is subtracted from altorch's time.
    """

    def measure(results: Results) -> Cases:
        rows = results.of(benchmark="cpu_kernels", bytes=sizes)
        found: dict[tuple[str, str, int], dict[str, float]] = {}
        for row in rows:
            case = (row["operation"], row["dtype"], row["bytes"])
            found.setdefault(case, {})[row["contender"]] = row["p10_us"]
        ratios = {}
        for case, took in found.items():
            kernels = [us for name, us in took.items() if name not in ("al", "fake")]
            if kernels:
                ratios[case] = min(kernels) / max(took["al"] - took["fake"], 1e-3)
        return labelled(ratios)

    what = f"all_reduce{words}, less torch's dispatch, against the fastest kernel of vLLM and DeepSpeed"
    return Aim(what, target, measure, ranks=ranks)


def stall(row: Row) -> float:
    """Milliseconds by which the slowest batch exceeded the median one, if it took more than three times as long."""
    excess = (row["max_us"] - row["median_us"]) * row["calls_per_batch"] / 1e3
    return float(excess) if row["max_us"] > 3 * row["median_us"] else 0.0


def stalls(results: Results, contender: str = "al") -> Cases:
    rows = results.of(benchmark=OPERATIONS, contender=contender)
    return labelled({(row["operation"], row["dtype"], row["bytes"]): stall(row) for row in rows})


def stalls_of_gloo(results: Results) -> str:
    return f"Gloo's beyond it: {sum(ms > STALL_MS for ms in stalls(results, 'gloo').values())}"


def start(results: Results, figure: str = "worst_total_ms") -> float | None:
    return next((row[figure] for row in results.of(benchmark="startup", contender="al")), None)


def processor_time(results: Results) -> dict[str, float]:
    return {row["contender"]: row["cpu_ms_per_s"] for row in results.of(benchmark="idle")}


def beyond_store(results: Results) -> float | None:
    """A c10d store, as every group of torch has one, is not altorch's."""
    used = processor_time(results)
    return used["al"] - used.get("store", 0.0) if "al" in used else None


def memory(results: Results) -> list[Row]:
    return results.of(benchmark="memory", contender="al")


def growth(results: Results) -> float | None:
    """From a tenth of the operations to the last."""
    rows = memory(results)
    settled = [row["rss_mib"] for row in rows if row["operations"] >= rows[-1]["operations"] / 10]
    return settled[-1] - settled[0] if settled else None


def trained(results: Results, workload: str, figure: str) -> dict[str, float]:
    rows = results.of(benchmark="cpu_training", workload=workload)
    return {row["contender"]: row[figure] / 1e3 for row in rows if figure in row}


def exposed(results: Results, figure: str = "exposed_p10_us") -> float | None:
    """Nothing where a step took less than one that sends nothing: the machine was too busy to tell."""
    took = trained(results, "ddp", figure)
    measured = {"al", "gloo"} <= took.keys() and min(took.values()) > 0
    return took["al"] / took["gloo"] if measured else None


def exposed_ms(results: Results) -> str:
    took, medians = trained(results, "ddp", "exposed_p10_us"), exposed(results, "exposed_median_us")
    return f"{took['al']:.1f} ms, Gloo {took['gloo']:.1f} ms" + (
        f"; medians {medians:.2f}x" if medians else ""
    )


def decoding(results: Results, figure: str = "p10_us") -> float | None:
    took = trained(results, "decode", figure)
    return took["gloo"] / took["al"] if {"al", "gloo"} <= took.keys() else None


AIMS = [
    Aim(
        "all_reduce of 1 KiB, beyond torch's dispatch and the same MPI from C", 2, own_share,
        unit=" us", digits=1, at_most=True, ranks=2, remark=shares,
    ),
    *cpu_memory_aims.AIMS,
    against_kernels(range(64 * MIB + 1), 1, ranks=2),
    against_kernels(range(64 * KIB), 20, ranks=4, words=" below 64 KiB"),
    against_kernels(range(16 * MIB, 64 * MIB + 1), 1, ranks=4, words=" from 16 MiB on"),
    Aim(
        "slowest batch beyond the median one, of each case where it took three times as long", STALL_MS, stalls,
        unit=" ms", digits=1, at_most=True, ranks=4, remark=stalls_of_gloo,
    ),
    Aim(
        "communication of a DDP step that computing does not hide, of Gloo's", 0.2, exposed,
        at_most=True, ranks=2, remark=exposed_ms,
    ),
    Aim(
        "tokens/s of tensor-parallel decoding against Gloo", 2, decoding, digits=1, ranks=2,
        remark=lambda results: f"medians {decoding(results, 'median_us'):.1f}x",
    ),
    Aim(
        "init_process_group to the end of the first barrier, the worst", 1000, start,
        unit=" ms", digits=0, at_most=True, ranks=4,
        remark=lambda results: f"median {start(results, 'total_ms'):.0f} ms",
    ),
    Aim(
        "processor time a second of an idle group, beyond torch's store", 1, beyond_store,
        unit=" ms", at_most=True, ranks=2,
        remark=lambda results: ", ".join(f"{who} {ms:.2f}" for who, ms in processor_time(results).items()),
    ),
    Aim(
        "memory beyond the tensors, a rank", 64, unit=" MiB", digits=1, at_most=True, ranks=2,
        measure=lambda results: max((row["rss_mib"] for row in memory(results)), default=None),
    ),
    Aim(
        "its growth from a tenth of the operations to the last", 1, growth, unit=" MiB", at_most=True, ranks=2,
        remark=lambda results: f"{memory(results)[-1]['operations']:,} operations",
    ),
]  # fmt: skip


def on_nodes(against: str, what: str, target: float) -> Aim:
    return Aim(
        f"every operation and size on two nodes, against {what}", target,
        lambda results: results.ratios("al", against, "median_us", benchmark="cpu_nodes"),
    )  # fmt: skip


AIMS_ON_NODES = [
    on_nodes("al:messages", "altorch's messages between all ranks", 1.3),
    on_nodes("gloo", "Gloo", 5),
]
