"""PyTorch's own DistributedTest, from the installed wheel, with another backend.

    python -m tests.python.torch_distributed_test --persona gloo --ranks 2 --backend al --jobs 1

The result is compared with the tests that real Gloo passes under the same persona (torch_suite_baseline.json,
written by --backend gloo --write-baseline): every one must pass, but for the exceptions below.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BASELINE = HERE / "torch_suite_baseline.json"

# Tests that Gloo passes and that the backend under test cannot: each with its reason.
EXCEPTIONS: dict[str, str] = {
    "test_ddp_logging_data_cpu": "torch itself logs every plugin's backend_name as 'custom'; the test wants the name",
    "test_sparse_all_reduce_sum": "altorch moves dense tensors only, and says so; call to_dense() first",
}

_BY_NAME = "before torch 2.14 dist.monitored_barrier refuses every backend but Gloo, by name"
EXCEPTIONS_BEFORE_2_14 = {
    "test_monitored_barrier_gloo": _BY_NAME,
    "test_monitored_barrier_gloo_subgroup": _BY_NAME,
}

# A few minutes' worth that touches every kind of operation; the whole suite is run on demand.
QUICK = (
    "test_all_gather",
    "test_all_gather_coalesced_simple",
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_full_group_sum",
    "test_all_reduce_complex_unsupported_ops",
    "test_all_reduce_group_sum",
    "test_all_reduce_sum_async",
    "test_backend_full_group",
    "test_barrier_timeout_global",
    "test_batch_isend_irecv_gloo_tags",
    "test_broadcast_object_list",
    "test_ddp_buffer_hook_allreduce",
    "test_ddp_join_model_equivalence",
    "test_DistributedDataParallelCPU",
    "test_gather_full_group",
    "test_isend_autograd_profiler",
    "test_monitored_barrier_gloo_subgroup",
    "test_new_subgroups",
    "test_reduce_full_group_max",
    "test_reduce_scatter_tensor",
    "test_scatter_checks",
    "test_send_recv_any_source",
    "test_send_recv_with_tag",
)
# Tests that Gloo does not pass and that this backend must: lists for all_to_all on CPU.
BEYOND_GLOO = {"mpi": {"test_all_to_all", "test_all_to_all_complex", "test_all_to_all_full_group"}}
# Under the persona mpi the suite runs the CPU all_to_all tests, which it skips for gloo.
QUICK_MPI = ("test_all_to_all", "test_all_to_all_single_unequal_split_complex")


def torch_minor() -> str:
    import torch

    return ".".join(torch.__version__.split(".")[:2])


def environment(persona: str, ranks: int, backend: str, deadline: int) -> dict[str, str]:
    sys.path.insert(0, str(HERE))
    from launching import clean_environment

    return clean_environment(
        {
            "ALTORCH_TEST_SUITE_PERSONA": persona,
            "ALTORCH_TEST_SUITE_BACKEND": backend,
            "WORLD_SIZE": str(ranks),
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(deadline),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        }
    )


def all_names(env: dict[str, str]) -> list[str]:
    program = "import torch_suite_cases, json; print(json.dumps(torch_suite_cases.all_names()))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise RuntimeError(f"PyTorch's DistributedTest could not be imported:\n{done.stderr[-3000:]}")
    names: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return names


class Slot:
    """One runner process; when it hangs beyond the deadline it is killed and goes on after the hanging test."""

    def __init__(
        self, names: list[str], env: dict[str, str], deadline: int, directory: Path, index: int
    ) -> None:
        self.todo, self.env, self.deadline = names, env, deadline
        self.path = directory / f"results{index}.jsonl"
        self.log = directory / f"output{index}.log"
        self.path.touch()
        self.results: dict[str, dict[str, Any]] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._restart()

    def _restart(self) -> None:
        self.todo = [name for name in self.todo if name not in self.results]
        if not self.todo:
            self.process = None
            return
        program = [sys.executable, str(HERE / "torch_suite_runner.py"), str(self.path), *self.todo]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                program, env=self.env, stdout=log, stderr=log, start_new_session=True
            )

    def _kill(self) -> None:
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def poll(self) -> bool:
        """Take in new results; whether there is still work."""
        if self.process is None:
            return False
        running = None
        for line in self.path.read_text().splitlines():
            entry = json.loads(line)
            running = entry["test"] if entry["status"] == "started" else None
            if entry["status"] != "started" and entry["test"] not in self.results:
                self.results[entry["test"]] = entry
                if entry["status"] == "failed":
                    entry["output"] = self._new_output()
                self._new_output()
        quiet = time.time() - max(self.path.stat().st_mtime, self._started_at())
        ended = self.process.poll() is not None
        if ended or quiet > self.deadline + 30:
            self._kill()
            if running:
                detail = "the runner died" if ended else f"no result after {quiet:.0f} s"
                self.results[running] = {
                    "test": running,
                    "status": "failed",
                    "seconds": quiet,
                    "detail": detail,
                }
                self.results[running]["output"] = self._new_output()
            elif ended and any(name not in self.results for name in self.todo):
                for name in self.todo:
                    detail = f"the runner ended early with status {self.process.returncode}"
                    self.results.setdefault(
                        name, {"test": name, "status": "failed", "seconds": 0, "detail": detail, "output": ""}
                    )
            self._restart()
        return self.process is not None

    def _started_at(self) -> float:
        return self.log.stat().st_ctime if self.log.exists() and not self.results else 0.0

    def _new_output(self) -> str:
        data = self.log.read_bytes()
        start = getattr(self, "_offset", 0)
        self._offset = len(data)
        return data[start:][-6000:].decode(errors="replace")

    def close(self) -> None:
        self._kill()


def run(
    persona: str,
    ranks: int,
    backend: str,
    *,
    jobs: int = 1,
    patterns: tuple[str, ...] = (),
    deadline: int = 90,
    progress: bool = False,
) -> dict[str, dict[str, Any]]:
    """Run the matching tests; {name: {status: passed|failed|skipped, seconds, detail, output}}."""
    env = environment(persona, ranks, backend, deadline)
    names = all_names(env)
    if patterns:
        names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    with tempfile.TemporaryDirectory(prefix="altorch-suite-") as directory:
        jobs = max(1, min(jobs, len(names)))
        slots = [Slot(names[index::jobs], env, deadline, Path(directory), index) for index in range(jobs)]
        shown = 0
        try:
            while sum(slot.poll() for slot in slots):
                time.sleep(0.2)
                done = sum(len(slot.results) for slot in slots)
                if progress and done != shown:
                    print(f"\r{done}/{len(names)}", end="", file=sys.stderr, flush=True)
                    shown = done
        finally:
            for slot in slots:
                slot.close()
    if progress:
        print(file=sys.stderr)
    return {name: entry for slot in slots for name, entry in slot.results.items()}


def exceptions() -> dict[str, str]:
    older = tuple(map(int, torch_minor().split("."))) < (2, 14)
    return EXCEPTIONS | (EXCEPTIONS_BEFORE_2_14 if older else {})


def baseline(persona: str, ranks: int) -> set[str] | None:
    """What Gloo passes with this torch, or None when nobody has measured it."""
    if not BASELINE.exists():
        return None
    table = json.loads(BASELINE.read_text())
    names = table.get(torch_minor(), {}).get(f"{persona}-{ranks}")
    return None if names is None else set(names)


def write_baseline(persona: str, ranks: int, results: dict[str, dict[str, Any]]) -> None:
    table = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    passed = sorted(name for name, entry in results.items() if entry["status"] == "passed")
    table.setdefault(torch_minor(), {})[f"{persona}-{ranks}"] = passed
    BASELINE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


def telling_line(detail: str) -> str:
    """The line of a traceback that says what went wrong."""
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    telling = [line for line in lines if "Error: " in line or line.startswith("Expected ")]
    return " / ".join(telling[-2:]) or (lines[-1] if lines else "")


def shortfall(persona: str, ranks: int, backend: str, results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Tests that Gloo passes, that ran here and did not pass, and that no exception covers: name -> reason."""
    expected = baseline(persona, ranks)
    if expected is None:  # nobody has measured Gloo with this torch: whatever fails counts
        expected = {name for name, entry in results.items() if entry["status"] == "failed"}
    if backend != "gloo":
        expected = expected | BEYOND_GLOO.get(persona, set())
    return {
        name: f"{results[name]['status']}: {telling_line(results[name]['detail'])}"
        for name in sorted(expected & set(results) - set(exceptions()))
        if results[name]["status"] != "passed"
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persona", default="gloo", help="the backend whose tests are run: gloo or mpi")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="al")
    parser.add_argument("--jobs", type=int, default=1, help="tests run at a time")
    parser.add_argument("--deadline", type=int, default=90, help="seconds for one test")
    parser.add_argument("--json", type=Path, help="write all results here")
    parser.add_argument(
        "--write-baseline", action="store_true", help="record what passes (with --backend gloo)"
    )
    parser.add_argument("--quick", action="store_true", help="only the subset that the default pytest runs")
    parser.add_argument("--profiling", action="store_true", help="also ask for profiler events, as of Gloo")
    parser.add_argument("--verbose", action="store_true", help="print the output of failed tests")
    parser.add_argument("patterns", nargs="*", help="test names, with * and ?")
    options = parser.parse_args()
    if options.profiling:
        os.environ["ALTORCH_TEST_SUITE_PROFILING"] = "1"
    started = time.monotonic()
    results = run(
        options.persona,
        options.ranks,
        options.backend,
        jobs=options.jobs,
        patterns=tuple(options.patterns) or (QUICK if options.quick else ()),
        deadline=options.deadline,
        progress=sys.stderr.isatty(),
    )
    if options.write_baseline:
        write_baseline(options.persona, options.ranks, results)
    counts = {
        status: sum(entry["status"] == status for entry in results.values())
        for status in ("passed", "failed", "skipped")
    }
    short = shortfall(options.persona, options.ranks, options.backend, results)
    summary: dict[str, Any] = {
        "persona": options.persona,
        "ranks": options.ranks,
        "backend": options.backend,
        "torch": torch_minor(),
        **counts,
        "gloo_passes": len(baseline(options.persona, options.ranks) or ()),
        "exceptions": {name: why for name, why in exceptions().items() if name in results},
        "short_of_gloo": short,
        "seconds": round(time.monotonic() - started),
    }
    if options.json:
        options.json.write_text(json.dumps({"summary": summary, "results": results}, indent=1) + "\n")
    for name, entry in sorted(results.items()):
        if entry["status"] == "failed":
            print(f"FAILED {name} ({entry['seconds']} s)")
            if options.verbose:
                print(entry["detail"], entry.get("output", ""), sep="\n")
    print(json.dumps(summary, indent=1))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
