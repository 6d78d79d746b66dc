# SPDX-License-Identifier: BSD-3-Clause
"""Bytes a second of the element-wise reductions on one core, beside memcpy in the same run.

A reduction reads two operands and writes one, memcpy reads one and writes one: where memory is the bound, a
reduction cannot move more than about two thirds of memcpy's bytes per operand.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from altorch.bench import rows
from altorch.cli._output import console, human_bytes, print_table
from benchmarks import report

SOURCE = Path(__file__).with_name("speed.cpp")


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_sizes(parser, "64,4K,256K,16M")
    parser.add_argument("--dtypes", default="float32,float16,bfloat16,int8,int64,complex64", help="or all")
    arguments = parser.parse_args()

    run = report.where()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        program = Path(folder) / "speed"
        sources = [str(path) for path in sorted((report.REPOSITORY / "csrc/reduction").glob("*.cpp"))]
        compiler = os.environ.get("CXX", "c++")
        flags = ["-std=c++20", "-O3", f"-I{report.REPOSITORY / 'csrc'}"]
        with console().status("building"):
            subprocess.run([compiler, *flags, "-o", str(program), str(SOURCE), *sources], check=True)
        with console().status("measuring"):
            output = subprocess.run(
                [str(program), ",".join(map(str, arguments.sizes)), arguments.dtypes],
                capture_output=True,
                text=True,
                check=True,
                timeout=280,
            ).stdout
    measured = [json.loads(line) for line in output.splitlines()]
    sizes = [human_bytes(size) for size in arguments.sizes]
    columns: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in measured:
        columns.setdefault((row["set"], row["dtype"], row["op"]), {})[row["bytes"]] = row["operand_gb_per_s"]
    print_table(
        "GB/s of one operand (in place, one core)",
        ["set", "dtype", "op", *sizes],
        [
            (*key, *(f"{found[s]:.1f}" if s in found else "-" for s in arguments.sizes))
            for key, found in columns.items()
        ],
        right=sizes,
    )
    rows.append(arguments.json, [run, *measured])


if __name__ == "__main__":
    main()
