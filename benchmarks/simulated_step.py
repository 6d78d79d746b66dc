# SPDX-License-Identifier: BSD-3-Clause
"""Compares a DDP step with the one that `altorch simulate --record` predicts from the record of fewer ranks.

The decoder of cpu_training trains with each number of ranks; the record of the fewest predicts the others. A step is
the time between the first gradient buckets of two steps, its median over the record, on the slowest rank. Before torch
2.15, whose flight record holds altorch's calls, a hook of DDP writes the record.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import altorch
from altorch.bench import process_group, rows
from altorch.bench.rows import Row
from altorch.cli import _replay, _simulate_record
from altorch.cli._output import console, print_table
from altorch.report import files
from benchmarks import report, training
from benchmarks.ranks import Emit, run_ranks

SHAPE = {"batch": 1, "sequence": 64, "layers": 4, "width": 256, "heads": 4, "vocabulary": 1024}
STEPS = 40


class Recorder:
    """Reduces the buckets of DDP, and writes what a flight record says of them."""

    def __init__(self) -> None:
        self.entries: list[Row] = []

    def reduce(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        buffer.div_(dist.get_world_size())
        entry: Row = {
            "process_group": ["0", "default_pg"],
            "collective_seq_id": len(self.entries) + 1,
            "profiling_name": "al:all_reduce",
            "input_sizes": [[buffer.numel()]],
            "input_dtypes": ["Float"],
            "state": "completed",
            "time_created_ns": time.time_ns(),
        }
        self.entries.append(entry)
        work = dist.all_reduce(buffer, async_op=True)
        assert work is not None

        def end(_: torch.futures.Future[Any]) -> torch.Tensor:
            entry["time_discovered_completed_ns"] = time.time_ns()
            return buffer

        return work.get_future().then(end)

    def record(self) -> bytes:
        ranks = str(list(range(dist.get_world_size())))
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
        return json.dumps({"version": "", "pg_config": config, "entries": self.entries}).encode()


def train(config: Row, emit: Emit) -> None:
    """Writes the record of its last steps to config["folder"]."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "5000"
    here = process_group.join("cpu")
    made = training.Training("ddp", dist.group.WORLD, here, torch.float32, argparse.Namespace(**SHAPE))
    flight: Any = torch._C._distributed_c10d
    own = None if hasattr(flight, "_reset_fr_trace") else Recorder()
    if own:
        # DDP accepts no annotations that are text.
        made.model.register_comm_hook(own, lambda recorder, bucket: recorder.reduce(bucket.buffer()))  # type: ignore[operator]
    for _ in range(5):
        made.step()
    if own:
        own.entries.clear()
    else:
        altorch.publish_flight_record()
        flight._reset_fr_trace("al")
    for _ in range(STEPS):
        made.step()
    altorch.publish_flight_record()
    record = own.record() if own else flight._dump_fr_trace_json(includeCollectives=True, backend="al")
    (Path(config["folder"]) / f"rank_{dist.get_rank()}").write_bytes(record)
    emit({"bytes": len(record)})
    process_group.leave()


def job_of(ranks: int) -> _replay.Job:
    with tempfile.TemporaryDirectory() as folder:
        run_ranks("benchmarks.simulated_step:train", ranks, {"folder": folder})
        inputs = files.read(sorted(Path(folder).glob("rank_*")))
    return _replay.job_of(inputs.calls)


def main() -> None:
    parser = report.parser_of(__doc__)
    report.add_ranks(parser, "2,4,8")
    parser.add_argument("--repeats", type=int, default=3, help="jobs of each number of ranks, default 3")
    arguments = parser.parse_args()
    run = report.where()
    fewest, *others = sorted(arguments.ranks)
    found = []
    for _ in range(arguments.repeats):
        with console().status(f"{fewest} ranks, recorded"):
            predictor = _simulate_record.Predictor(job_of(fewest), {})
        for ranks in (fewest, *others):
            with console().status(f"{ranks} ranks, measured"):
                job = predictor.job if ranks == fewest else job_of(ranks)
            predicted = _simulate_record.row_of(predictor, ranks, ranks, run["cores"])
            measured = _replay.recorded_step_seconds(job)
            found.append(
                {"benchmark": "simulated_step", "recorded_ranks": fewest, "ranks": ranks}
                | {"measured_ms": measured * 1e3, "predicted_ms": predicted["step_seconds"] * 1e3}
                | {
                    "error": predicted["step_seconds"] / measured - 1,
                    "dominated_by": predicted["dominated_by"],
                }
            )
    print(f"{run['machine']}, {run['cores']} cores, torch {run['torch']}, commit {run['commit']}")
    print_table(
        f"a DDP step, predicted from a record of {fewest} ranks",
        ["ranks", "measured [ms]", "predicted [ms]", "error", "dominated by"],
        [
            [
                row["ranks"],
                f"{row['measured_ms']:.1f}",
                f"{row['predicted_ms']:.1f}",
                f"{row['error']:+.0%}",
                row["dominated_by"],
            ]
            for row in found
        ],
        right=["ranks", "measured [ms]", "predicted [ms]", "error"],
    )
    rows.append(arguments.json, [run, *found])


if __name__ == "__main__":
    main()
