# SPDX-License-Identifier: BSD-3-Clause
"""The figures that the project has set itself for CUDA tensors. What a row measures is said by its benchmark."""

from __future__ import annotations

from typing import Any

from altorch.bench.aims import Aim, Cases, Results, labelled
from altorch.bench.cases import CASES
from altorch.bench.rows import Row

KIB, MIB = 1 << 10, 1 << 20
STAGED, PEER, SYMMETRIC = "al:host_staged", "al:peer", "symm:two_shot"
LARGEST = 1 << 40
PRODUCT = [4096, 4096, 4096]  # rows, columns, inner: what communication hides behind
ALL_REDUCE = {"benchmark": "cuda_collectives", "operation": "all_reduce", "dtype": "float32", "mode": "sync"}


def against_nccl(what: str, target: float, figure: str, mode: str = "sync", **wanted: Any) -> Aim:
    """Over all operations. The default route in bfloat16; the others are measured in float32."""
    wanted |= {"benchmark": "cuda_collectives", "dtype": "bfloat16", "mode": mode}
    return Aim(
        f"{what}, against nccl", target, lambda results: results.ratios("al", "nccl", figure, **wanted)
    )


def by_peer(what: str, target: float, contender: str, figure: str, mode: str, **wanted: Any) -> Aim:
    """Where GPUs map each other's memory, in bfloat16: how many times faster than the contender."""
    wanted |= {"benchmark": "cuda_collectives", "dtype": "bfloat16", "mode": mode}
    return Aim(
        f"{PEER}, {what}, against {contender}", target,
        lambda results: results.ratios(PEER, contender, figure, **wanted),
    )  # fmt: skip


def small_by_peer(figure: str, mode: str, target: float) -> Aim:
    wanted = ALL_REDUCE | {"dtype": "bfloat16", "mode": mode, "bytes": range(8, 16 * KIB + 1)}
    return Aim(
        f"{PEER}, all_reduce, 8 B to 16 KiB, {'in a graph' if mode == 'graph' else 'on the device'}", target,
        lambda results: labelled(results.figures(figure, contender=PEER, **wanted)),
        unit=" us", digits=1, at_most=True, ranks=2,
    )  # fmt: skip


def decoding(target: float) -> Aim:
    def ratios(results: Results) -> Cases:
        took = {
            (row["contender"], row["batch"]): row["median_us"] for row in results.of(benchmark="cuda_decode")
        }
        return {
            f"{batch} tokens": took["nccl", batch] / mine
            for (name, batch), mine in took.items()
            if name == "al" and ("nccl", batch) in took
        }

    return Aim("a layer of a decoding step, in a graph, against nccl", target, ratios)


def staged_against(contender: str, target: float) -> Aim:
    wanted = ALL_REDUCE | {"bytes": (16 * MIB, 64 * MIB, 256 * MIB)}
    return Aim(
        f"{STAGED}, all_reduce, 16 to 256 MiB, against {contender}", target, ranks=2,
        measure=lambda results: results.ratios(STAGED, contender, "device_us", "median_us", **wanted),
    )  # fmt: skip


def small_staged(results: Results) -> Cases:
    small = range(8, 4 * KIB + 1)
    return labelled(results.figures("device_us", contender=STAGED, bytes=small, **ALL_REDUCE))


def staged(results: Results) -> Row | None:
    rows = results.of(contender=STAGED, bytes=64 * MIB, **ALL_REDUCE)
    return next((row for row in reversed(rows) if {"device_us", "link_GBps"} <= row.keys()), None)


def share_of_links(results: Results) -> float | None:
    """What a GPU copies down and up, of what plain copies of all GPUs both ways gave, in percent."""
    row = staged(results)
    if row is None:
        return None
    # Down: the others' shares, and the own result. Up: the others' parts of the own share, and
    # their results.
    copied = row["bytes"] * (1 + CASES["all_reduce"].bus_factor(row["ranks"]))
    return float(100 * copied / (row["device_us"] * 1e3) / (2 * row["link_GBps"]))


def links(results: Results) -> str:
    row = staged(results)
    return f"{row['link_GBps']} GB/s each way" if row else ""


def hidden(contender: str, route: str, target: float) -> Aim:
    wanted = {"benchmark": "cuda_overlap", "dtype": "float32", "bytes": 64 * MIB, "left_multiprocessors": 0}

    def percent(results: Results, of: str = contender) -> float | None:
        rows = results.of(contender=of, product=(PRODUCT,), **wanted)
        return rows[-1]["hidden_percent"] if rows else None

    def torchs_own(results: Results) -> str:
        beside = percent(results, "nccl") if route == "NCCL" else None
        return f"torch's own: {beside:.0f} %" if beside is not None else ""

    what = f"64 MiB of all_reduce hidden behind matrix products, {route}"
    return Aim(what, target, percent, unit=" %", digits=0, remark=torchs_own)


WINDOWS = {"benchmark": "cuda_windows", "dtype": "uint8"}


def signalled(what: str, target: float, figure: str, mode: str) -> Aim:
    """A put of 8 bytes with its signal, until the peer's wait is over."""
    wanted = WINDOWS | {"operation": "one_way", "bytes": 8, "mode": mode}

    def beside(results: Results) -> str:
        took = list(results.figures(figure, contender="nccl", **wanted).values())
        return f"send and recv over nccl: {took[-1]:.1f} us" if took else ""

    return Aim(
        f"window, put_signal of 8 B to the peer's wait, {what}", target,
        lambda results: labelled(results.figures(figure, contender="window", **wanted)),
        unit=" us", digits=1, at_most=True, ranks=2, remark=beside,
    )  # fmt: skip


def put_bandwidth(target: float) -> Aim:
    wanted = WINDOWS | {"operation": "stream", "bytes": 64 * MIB}

    def share(results: Results, contender: str = "window") -> float | None:
        found = [row["of_copies"] for row in results.of(contender=contender, **wanted) if "of_copies" in row]
        return found[-1] if found else None

    def beside(results: Results) -> str:
        found = share(results, "nccl")
        return f"send and recv over nccl: {found:.2f}x" if found else ""

    return Aim(
        "window, puts of 64 MiB, of the bandwidth of copy engines", target, share, ranks=2, remark=beside
    )


def training(wrap: str) -> Aim:
    def both(results: Results) -> list[Row]:
        steps = {row["contender"]: row for row in results.of(benchmark="cuda_training", wrap=wrap)}
        return [steps["al"], steps["nccl"]] if {"al", "nccl"} <= steps.keys() else []

    def ratio(results: Results) -> float | None:
        took = [row["step_ms"] for row in both(results)]
        return took[1] / took[0] if took else None

    def turns(results: Results) -> str:
        took = [", ".join(f"{ms:.1f}" for ms in row["turns_ms"]) for row in both(results)]
        return f"turns {' ms; turns '.join(took)} ms"

    return Aim(f"training step, {wrap}, against nccl", 1, ratio, digits=3, remark=turns)


AIMS = [
    against_nccl("bandwidth, >= 64 MiB", 0.99, "median_us", bytes=range(64 * MIB, LARGEST)),
    against_nccl("eager synchronous, <= 64 KiB", 1.5, "median_us", bytes=range(64 * KIB + 1)),
    against_nccl("host time to issue a call", 2, "host_us"),
    against_nccl("replay of a CUDA graph", 0.97, "median_us", mode="graph"),
    small_by_peer("median_us", "graph", 5.0),
    small_by_peer("device_us", "sync", 5.5),
    by_peer("<= 256 KiB, in a graph", 1.5, "nccl", "median_us", "graph", bytes=range(256 * KIB + 1)),
    by_peer("64 KiB to 4 MiB, in a graph", 1, SYMMETRIC, "median_us", "graph", bytes=range(64 * KIB, 4 * MIB + 1)),
    by_peer("host time, <= 1 MiB", 1 / 0.35, "nccl", "host_us", "sync", bytes=range(MIB + 1)),
    decoding(1.25),
    Aim(
        f"{STAGED}, all_reduce, 8 B to 4 KiB, on the device", 8, small_staged,
        unit=" us", digits=1, at_most=True, ranks=2,
    ),
    staged_against("nccl_no_p2p", 1.2),
    staged_against("gloo", 10),
    Aim(
        f"{STAGED}, all_reduce, 64 MiB, of the host links", 70, share_of_links,
        unit=" %", digits=0, remark=links,
    ),
    hidden("al", "NCCL", 95),
    hidden(STAGED, "host_staged", 90),
    signalled("on the device", 5, "device_us", "sync"),
    signalled("in a graph", 4, "median_us", "graph"),
    put_bandwidth(0.9),
    training("ddp"),
    training("fsdp2"),
]  # fmt: skip
