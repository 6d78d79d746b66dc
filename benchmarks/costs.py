# SPDX-License-Identifier: BSD-3-Clause
"""Writes csrc/select/default_costs.inc: what calls take by measured rows, for time estimates (csrc/select/costs.h).

python -m benchmarks.costs > csrc/select/default_costs.inc
python -m benchmarks.costs FILE.jsonl ...          # other rows of benchmarks.cpu_collectives or cuda_collectives
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from altorch.bench import rows
from altorch.bench.rows import Row

RESULTS = Path(__file__).parent / "results"
FILES = ("2026-11-29-xeon-32c.jsonl", "cuda-2xH200-2026-11-26.jsonl", "cuda-4xH200-2026-11-26-de8080a.jsonl")
OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_HEADER = """// SPDX-License-Identifier: BSD-3-Clause
// Made by `python -m benchmarks.costs`, of the rows in benchmarks/results/ that it names.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, default=[RESULTS / name for name in FILES])
    files = parser.parse_args(arguments).files
    print(text_of((row for file in files for row in rows.read(file)), [file.name for file in files]), end="")


def text_of(found: Iterable[Row], names: Sequence[str]) -> str:
    """Of CPU tensors the call's time, of CUDA tensors the device's. Where several types were measured, the last."""
    costs: dict[tuple[str, int, str], dict[int, float]] = {}
    for row in found:
        if (
            row.get("contender") != "al"
            or row.get("mode") != "sync"
            or row.get("operation") not in OPERATIONS
        ):
            continue
        took = row.get("device_us") if row["device"] == "cuda" else row["median_us"]
        if took:
            costs.setdefault((row["device"], row["ranks"], row["operation"]), {})[row["bytes"]] = took
    lines = [_HEADER + "".join(f"// {name}\n" for name in names)]
    for (device, ranks, operation), times in sorted(costs.items()):
        points = ", ".join(f"{{{size}, {took:.6g}}}" for size, took in sorted(times.items()))
        on = {"cpu": "kHost", "cuda": "kGpu"}[device]
        lines.append(f'{{On::{on}, "{operation}", {ranks}, {{{points}}}}},\n')
    return "".join(lines)


if __name__ == "__main__":
    main()
