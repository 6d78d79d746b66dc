# SPDX-License-Identifier: BSD-3-Clause
"""Exact sums of difficult numbers against fractions.Fraction, in all processors.

    python tests/fuzz/exact_sums.py --cases 10M
    python tests/fuzz/exact_sums.py --cases 1M --device cuda

A case is the sum or the mean of 2 to 16 numbers: of one size, of sizes over the whole range, what cancels, ties,
subnormal numbers, infinities. altorch.ops.exact_sum runs the arithmetic of the collectives. Prints the first wrong sums
with their numbers, and ends with 1 if there are any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import exact_reference as ref

import altorch.ops
from altorch.cli._output import Progress

AT_ONCE = 2000


def wrong_sums(seed: int, device: str) -> list[str]:
    """Of AT_ONCE cases that follow from the seed."""
    generator = torch.Generator().manual_seed(seed)
    number = int(torch.randint(2, 17, (), generator=generator))
    dtype = ref.TYPES[seed % len(ref.TYPES)]
    mean = seed // len(ref.TYPES) % 2 == 1
    parts = ref.difficult(generator, dtype, AT_ONCE, number)
    got = altorch.ops.exact_sum(torch.stack(parts).to(device), mean=mean).cpu()
    want = ref.exact_sums(parts, number if mean else 1)
    want = torch.where(want.isnan(), torch.full_like(want, torch.nan), want)
    wrong = (ref.bits_of(got) != ref.bits_of(want)).nonzero().flatten().tolist()
    return [
        f"{dtype} {'mean' if mean else 'sum'} of {[part[i].item().hex() for part in parts]}: "
        f"{got[i].item().hex()}, not {want[i].item().hex()} (seed {seed})"
        for i in wrong[:3]
    ]


def prepare() -> None:
    torch.set_num_threads(1)


def count(text: str) -> int:
    return int(float(text[:-1]) * {"k": 1e3, "m": 1e6}[text[-1].lower()]) if text[-1].isalpha() else int(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=count, default=100_000, metavar="NUMBER", help="such as 100k, 10M")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    rounds = -(-arguments.cases // AT_ONCE)
    began, wrong = time.monotonic(), 0
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(arguments.processes, prepare) as pool, Progress(rounds) as progress:
        work = [(arguments.seed + number, arguments.device) for number in range(rounds)]
        for found in pool.imap_unordered(call, work):
            wrong += len(found)
            for text in found:
                print(text)
            progress.at(f"rounds of {AT_ONCE} sums")
    seconds = time.monotonic() - began
    print(f"{rounds * AT_ONCE:,} sums on {arguments.device} in {seconds:.0f} s, wrong: {wrong}")
    return 1 if wrong else 0


def call(work: tuple[int, str]) -> list[str]:
    return wrong_sums(*work)


if __name__ == "__main__":
    sys.exit(main())
