# SPDX-License-Identifier: BSD-3-Clause
"""Damages files that Python code reads, and holds that each is read or refused with a sentence.

    python -m tests.fuzz.python_parsers --seconds 600

Targets: tuned files (altorch.cli's ALTORCH_TUNED), flight records in both forms with their replay, and the values that
describe a network. A finding is printed with its target, seed and turn; the exit code is 1 then. `make fuzz` runs it.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from altorch import _tuned
from altorch._version import __version__
from altorch.cli import _replay, _units
from altorch.report import files

# What a reader may raise: the command prints it as one sentence.
REFUSALS = (ValueError, OSError)
_ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 1e308, float("nan"), float("inf"), "", "x" * 300),
    *("0", "al:", "[0, 1", "\x00", "\ud800", [], {}, [[]], [None] * 3, {"": []}),
)


def tuned_file() -> Any:
    rule = {"operation": "all_reduce", "device": "cpu", "ranks": 2, "from": 0, "below": 65536}
    cost = {"operation": "all_reduce", "device": "cpu", "ranks": 2, "us": [[1024, 4.2], [65536, 19.5]]}
    return {
        "altorch_tuned": _tuned.FORMAT,
        "altorch": __version__,
        "machine": _tuned.machine(),
        "rules": [rule | {"choice": "shm/one_step", "gain": 1.2}],
        "costs": [cost],
    }


def flight_record() -> Any:
    entries = [
        {
            "process_group": ["0", "default_pg"],
            "collective_seq_id": step + 1,
            "p2p_seq_id": 0,
            "profiling_name": "al:all_reduce",
            "time_created_ns": 10**18 + step * 10**7,
            "time_discovered_completed_ns": 10**18 + step * 10**7 + 10**6,
            "duration_ms": 1.0,
            "input_sizes": [[1024]],
            "input_dtypes": ["Float"],
            "output_sizes": [[1024]],
            "output_dtypes": ["Float"],
            "state": "completed",
            "retired": True,
            "is_p2p": False,
        }
        for step in range(9)
    ]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}


def damaged(document: Any, chance: random.Random) -> Any:
    """A copy in which some values are replaced, removed or moved."""
    made = json.loads(json.dumps(document))
    for _ in range(chance.randrange(1, 4)):
        place = made
        while isinstance(place, dict | list) and place:
            key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or chance.random() < 0.25:
                if chance.random() < 0.2:
                    del place[key]
                else:
                    place[key] = chance.choice(_ODD)
                break
            place = inner
    return made


def written(document: Any, chance: random.Random) -> bytes:
    """As JSON or as a pickle, in part with damaged bytes."""
    try:
        as_pickle = chance.random() < 0.4
        data = bytearray(pickle.dumps(document, 2) if as_pickle else json.dumps(document).encode())
    except UnicodeEncodeError:
        data = bytearray(json.dumps(None).encode())
    if chance.random() < 0.4 and data:
        for _ in range(chance.randrange(1, 5)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    if chance.random() < 0.2:
        del data[chance.randrange(len(data) + 1) :]
    return bytes(data)


def read_tuned(folder: Path, chance: random.Random) -> None:
    file = folder / "tuned.json"
    file.write_bytes(written(damaged(tuned_file(), chance), chance))
    document = _tuned.read(file)
    _tuned.as_text(document)
    _tuned.costs_of(document)


def read_records(folder: Path, chance: random.Random) -> None:
    found = [folder / f"rank_{rank}" for rank in range(2)]
    for file in found:
        record = flight_record()
        file.write_bytes(written(damaged(record, chance) if chance.random() < 0.7 else record, chance))
    job = _replay.job_of(files.read(found).calls)
    _replay.step_seconds(job, lambda call: 1e-6 * call.bytes)
    _replay.recorded_seconds(job)


def read_units(_: Path, chance: random.Random) -> None:
    text = "".join(chance.choice("0123456789.-+eE_ nusmGMTKBb/inf") for _ in range(chance.randrange(8)))
    text += chance.choice(["", "us", "GB/s", "Gb/s", "s"])
    chance.choice([_units.parse_seconds, _units.parse_rate])(text)


TARGETS: dict[str, Callable[[Path, random.Random], None]] = {
    "tuned_file": read_tuned,
    "flight_records": read_records,
    "network": read_units,
}


def fuzz(target: str, seconds: float, seed: int, most: int = sys.maxsize) -> tuple[int, int, str]:
    """Turns, at most `most`, how many were refused, and a finding, or nothing."""
    turns = refused = 0
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while turns < most and time.monotonic() < deadline:
            turns += 1
            try:
                TARGETS[target](Path(folder), random.Random(f"{seed} {turns}"))
            except REFUSALS as error:
                refused += 1
                if not str(error) or "\n" in str(error):
                    return turns, refused, f"seed {seed}, turn {turns}: no sentence: {error!r}"
            except Exception as error:
                return turns, refused, f"seed {seed}, turn {turns}: {error!r}"
    return turns, refused, ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="of each target, default 60")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    failed = False
    for target in TARGETS:
        turns, refused, finding = fuzz(target, arguments.seconds, arguments.seed)
        print(
            f"{target:16} {turns:10,} turns, {refused:,} refused{': ' + finding if finding else ''}",
            flush=True,
        )
        failed = failed or bool(finding)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
